"""What members are told of wiring: nothing is missed, nothing is told without end."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.members import stream as module
from broker_shim.members.stream import WiringStream
from broker_shim.members.wiring_rows import Row
from broker_shim.service.decisions.decisions import Decisions
from broker_shim.service.outbox import MAX_BUFFERED_BYTES
from broker_shim.store import protocol as wire

RUN = "run"


def row(number: int) -> Row:
    return number, None, None, None, None


class Peer:
    """A member that remembers what it was told, and says what it has seen when it is asked."""

    def __init__(self, member: str = "m") -> None:
        self.member = member
        self.has_room, self.is_over = True, False
        self.frames: list[Sequence[Any]] = []
        self.numbers: list[int] = []
        self.position = 0

    @property
    def decisions(self) -> Decisions:
        raise NotImplementedError

    def say(self, kind: int, body: Sequence[Any]) -> None:
        assert kind == wire.CHANGES
        _run, position, is_all, is_last, rows = body
        self.frames.append(body)
        numbers = [each[0] for each in rows]
        if is_all:
            is_first = len(self.frames) == 1 or self.frames[-2][3]
            self.numbers = numbers if is_first else self.numbers + numbers
        else:
            self.numbers += numbers
        if is_last:
            self.position = position

    def end(self, error: StoreError) -> None:
        raise AssertionError(error)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("KEPT", 8), ("_PART", 3)):
        monkeypatch.setattr(module, name, value)


class Wiring:
    """A stream over rows that are only added."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.stream = WiringStream(RUN, lambda: [*self.rows])

    def add(self, maker: str | None = None) -> None:
        self.rows.append(row(len(self.rows)))
        self.stream.add(self.rows[-1], maker)


def read(wiring: Wiring, peer: Peer) -> None:
    """Say of each frame that it was seen, until nothing more comes."""
    while wiring.stream.seen(peer):
        pass


def test_a_newcomer_is_told_all_there_is_and_then_what_comes(small: None) -> None:
    wiring, peer = Wiring(), Peer()
    for _ in range(7):
        wiring.add()
    wiring.stream.watch(peer, "", 0)
    read(wiring, peer)
    assert peer.numbers == [*range(7)]
    assert [frame[3] for frame in peer.frames] == [False, False, True]
    wiring.add()
    assert peer.numbers == [*range(8)]


def test_of_all_there_is_no_more_is_told_than_was_seen_and_changes_come_after_it(
    small: None,
) -> None:
    wiring, peer = Wiring(), Peer()
    for _ in range(20):
        wiring.add()
    wiring.stream.watch(peer, "", 0)
    assert len(peer.frames) == module.WINDOW
    wiring.add("another")
    assert len(peer.frames) == module.WINDOW
    assert wiring.stream.seen(peer)
    assert len(peer.frames) == module.WINDOW + 1
    read(wiring, peer)
    assert peer.numbers == [*range(21)]
    assert not wiring.stream.seen(peer)  # more than it was told is not believed
    wiring.stream.left(peer)
    assert not wiring.stream.seen(peer)


def test_one_that_comes_back_is_told_so_though_nothing_has_changed() -> None:
    wiring, peer = Wiring(), Peer()
    wiring.add()
    wiring.stream.watch(peer, RUN, 1)
    assert peer.frames == [(RUN, 1, False, True, [])]


def test_an_empty_whole_is_told_too() -> None:
    wiring, peer = Wiring(), Peer()
    wiring.stream.watch(peer, "another run", 5)
    assert [(frame[2], frame[3], [*frame[4]]) for frame in peer.frames] == [(True, True, [])]


def test_a_member_that_was_away_goes_on_where_it_was(small: None) -> None:
    wiring, peer = Wiring(), Peer()
    wiring.stream.watch(peer, RUN, 0)
    wiring.add()
    wiring.stream.left(peer)
    wiring.add()
    again = Peer()
    wiring.stream.watch(again, RUN, peer.position)
    assert again.numbers == [1]
    assert not any(frame[2] for frame in again.frames)


def test_a_member_that_was_away_too_long_is_told_all_anew(small: None) -> None:
    wiring = Wiring()
    for _ in range(20):
        wiring.add()
    for position in (3, 21, 10**9):
        peer = Peer()
        wiring.stream.watch(peer, RUN, position)
        read(wiring, peer)
        assert peer.numbers == [*range(20)], position


def test_one_that_does_not_say_what_it_has_seen_is_told_no_more(small: None) -> None:
    wiring, peer = Wiring(), Peer()
    wiring.stream.watch(peer, RUN, 0)
    for _ in range(30):
        wiring.add()
    assert len(peer.numbers) < 10
    read(wiring, peer)
    assert peer.numbers == [*range(30)]


def test_rows_with_long_names_are_told_in_frames_that_have_an_end() -> None:
    wiring, peer, pack = Wiring(), Peer(), wire.frame_packer()
    name = "\N{SNOWMAN}" * 10_000
    wiring.rows = [(number, name, name, name, "{}") for number in range(300)]
    wiring.stream.watch(peer, "", 0)
    for number in range(300, 600):
        wiring.stream.add((number, name, name, name, "{}"), None)
    waiting = sum(len(pack(wire.CHANGES, body)) for body in peer.frames)
    assert waiting < MAX_BUFFERED_BYTES / 2
    read(wiring, peer)
    assert peer.numbers == [*range(600)]
    assert 12 < len(peer.frames) < 50
    for body in peer.frames:
        pack(wire.CHANGES, body)


def test_nobody_is_told_of_a_link_that_it_has_itself(small: None) -> None:
    wiring, mine, others = Wiring(), Peer("mine"), Peer("other")
    for peer in (mine, others):
        wiring.stream.watch(peer, RUN, 0)
    for number in range(20):
        wiring.add("mine" if number % 3 else None)
        for peer in (mine, others):
            wiring.stream.seen(peer)
    assert others.numbers == [*range(20)]
    assert mine.numbers == [*range(0, 20, 3)]


def test_a_call_is_made_when_all_that_was_there_is_told(small: None) -> None:
    wiring, peer = Wiring(), Peer()
    known: list[int] = []

    def told() -> None:
        known.append(len(peer.numbers))

    wiring.stream.after(peer, told)
    for _ in range(20):
        wiring.add()
    assert known == [], "it does not watch yet"
    wiring.stream.watch(peer, "", 0)
    assert known == [], "all there is has only begun to be told"
    wiring.stream.after(peer, told)
    wiring.add()
    read(wiring, peer)
    assert known == [20, 20]
    wiring.add()
    wiring.stream.after(peer, told)
    assert known == [20, 20, 22]


def test_a_call_is_not_made_for_a_connection_that_is_lost(small: None) -> None:
    wiring, peer = Wiring(), Peer()
    known: list[str] = []
    wiring.stream.after(peer, lambda: known.append("before"))
    wiring.stream.left(peer)
    for _ in range(20):
        wiring.add()
    wiring.stream.watch(peer, "", 0)
    wiring.stream.after(peer, lambda: known.append("meanwhile"))
    wiring.stream.left(peer)
    wiring.stream.watch(peer, "", 0)
    read(wiring, peer)
    assert known == []


@pytest.mark.parametrize("watches", [False, True])
def test_one_that_asks_without_end_is_told_so(small: None, *, watches: bool) -> None:
    wiring, peer = Wiring(), Peer()
    for _ in range(20):
        wiring.add()
    if watches:
        wiring.stream.watch(peer, "", 0)
    for _ in range(wire.MAX_WAITING_READS):
        wiring.stream.after(peer, lambda: None)
    with pytest.raises(InvalidRequest, match="questions wait"):
        wiring.stream.after(peer, lambda: None)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_all_is_known_at_the_end(small: None, seed: int) -> None:
    dice, wiring, peer = random.Random(seed), Wiring(), Peer("m")
    wiring.stream.watch(peer, "", 0)
    for _ in range(60):
        step = dice.randrange(4)
        if step < 2:
            wiring.add()
        elif step == 2:
            wiring.stream.seen(peer)
        else:
            wiring.stream.left(peer)
            peer.frames.clear()
            wiring.stream.watch(peer, RUN, peer.position)
    read(wiring, peer)
    assert peer.numbers == [*range(len(wiring.rows))]
