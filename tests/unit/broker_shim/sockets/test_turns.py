"""Turns of bounded work: how much of what a peer sent is acted on before all others have theirs."""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_shim.amqp_1_0.composites import (
    Accepted,
    Attach,
    Begin,
    Close,
    Composite,
    Disposition,
    Flow,
    Open,
    Rejected,
    Released,
    SaslInit,
    Source,
    Target,
    Transfer,
)
from broker_shim.broker.settings import BrokerSettings
from broker_shim.broker.storage.inbox import Inbox
from broker_shim.broker.storage.loop import Loop
from broker_shim.listener_1_0.receiving.message_runs import AT_A_TIME
from broker_shim.protocol_1_0.codec.frames import (
    AMQP_HEADER,
    SASL_FRAME,
    SASL_HEADER,
    encoded_frame,
    transfer_frame,
)
from broker_shim.protocol_1_0.events import DispositionReceived, FlowReceived
from broker_shim.protocol_1_0.links.runs import Run, UnsettledRuns
from broker_shim.protocol_1_0.serial import WRAP, plus
from broker_shim.sockets import turns
from broker_shim.sockets.transport import PeerProtocol
from broker_shim.sockets.turns import LoopTime, Turns
from tests.support.amqp.amqp_1_0 import Client, flow, server
from tests.support.amqp.link_clients import Client as LinkClient
from tests.support.amqp.link_clients import House, Place
from tests.support.work import lines_of

FAR = (1 << 31) - 1
READ_BYTES = 1 << 17
USUAL_S = 5e-3  # of an interpreter


# --------------------------------------------------------------------------- deliveries by number


def runs_from(start: int) -> UnsettledRuns:
    """Runs of a session whose peer gives ids from this one on."""
    runs = UnsettledRuns()
    runs.next_number = WRAP
    runs.next_number = runs.number_of(start)
    return runs


def run_of(count: int) -> Run:
    link: Any = SimpleNamespace(runs={})
    return Run(link, [b""] * count)


@given(
    start=st.sampled_from([0, 7, WRAP - 3, FAR - 2]),
    steps=st.lists(st.tuples(st.integers(0, 4), st.integers(1, 3)), min_size=1, max_size=40),
    gone=st.sets(st.integers(0, 39)),
    asked=st.tuples(st.integers(-9, 99), st.integers(-9, 99)),
    most=st.integers(1, 9),
)
def test_a_range_is_found_in_parts_whatever_was_settled_and_wherever_ids_wrap(
    start: int,
    steps: list[tuple[int, int]],
    gone: set[int],
    asked: tuple[int, int],
    most: int,
) -> None:
    """Ids leave some out where the next run begins."""
    unsettled, here, place = runs_from(start), list[int](), 0
    for left_out, size in steps:
        unsettled.next_number += left_out
        place += left_out
        unsettled.add(run_of(size))
        here += range(place, place + size)
        place += size
    for at in sorted(gone & {*here}):
        number = unsettled.number_of(plus(start, at))
        assert unsettled.has(number)
        unsettled.between(number, 1, 1, is_taken=True)
        assert not unsettled.has(number)
        here.remove(at)
    first, last = asked
    expected = [plus(start, at) for at in here if first <= at <= last]
    found: list[int] = []
    rest: int | None = unsettled.number_of(plus(start, first))
    while rest is not None:
        count = unsettled.number_of(plus(start, last)) - rest + 1
        part, rest = unsettled.between(rest, count, most, is_taken=False)
        assert sum(map(len, part)) <= most
        found += [(run.number + at) % WRAP for run in part for at in range(len(run))]
    assert found == expected
    assert len(unsettled) == len(here)


def test_a_range_costs_what_is_in_it_and_not_what_is_unsettled() -> None:
    unsettled = runs_from(0)
    for _ in range(20_000):
        unsettled.add(run_of(1))
        unsettled.next_number += 1
    unsettled.between(WRAP + 10_000, 14_000, 7_000, is_taken=True)
    for first, last in ((10_001, 23_999), (3, 3), (40_000, FAR), (FAR + 9, WRAP - 1), (9, 5)):
        asked = unsettled.number_of(first), last - first + 1, 99
        assert lines_of(lambda its=asked: unsettled.between(*its, is_taken=False)) < 60  # type: ignore[misc]
    assert lines_of(lambda: unsettled.between(WRAP, FAR, 10, is_taken=False)) < 120


# ------------------------------------------------------------------------------------ dispositions


def sent(count: int) -> tuple[Client, list[Run]]:
    """A client that was sent so many messages and has settled none."""
    client = Client(server()).opened()
    client.begun(window=FAR)
    link = client.receiving(credit=count)
    client.events.clear()
    return client, [link.transfer(n.to_bytes(4, "big"), (b"x",)) for n in range(count)]


def disposed(client: Client) -> list[DispositionReceived]:
    return [each for each in client.events if isinstance(each, DispositionReceived)]


def told(client: Client) -> int:
    """Deliveries in the events that came since."""
    count = sum(len(each.deliveries) for each in disposed(client))
    client.events.clear()
    return count


def test_a_disposition_that_changes_nothing_tells_nothing() -> None:
    client, deliveries = sent(300)
    for state in (Released(), None, Released()):
        client.send(Disposition(True, 0, FAR, state=state))
    assert told(client) == 300
    client.send(Disposition(True, 0, FAR, state=Rejected()))
    assert told(client) == 300
    for settled in (True, True):
        client.send(Disposition(True, 0, FAR, settled=settled, state=Accepted()))
    assert told(client) == 300
    assert all(each.is_settled for each in deliveries)


@pytest.mark.parametrize(("state", "share"), [(Accepted(), 8), (Released(), 1), (Rejected(), 1)])
@pytest.mark.parametrize("work", [1, 7, 100])
def test_a_range_is_told_in_parts_and_what_came_after_it_waits(
    work: int, state: Accepted | Released | Rejected, share: int
) -> None:
    client, deliveries = sent(300)
    frames = (Disposition(True, 0, FAR, settled=True, state=state), flow(0, 5))
    client.peer.receive_data(b"".join(map(encoded_frame, frames)), now_s=0.0, most_work=work)
    turns = 1
    while client.peer.has_more:
        client.events += client.peer.events()
        assert sum(len(each.deliveries) for each in disposed(client)) <= work * share * turns
        client.peer.go_on(work)
        turns += 1
    client.events += client.peer.events()
    assert sum(len(each.deliveries) for each in disposed(client)) == 300
    assert all(each.is_settled for each in deliveries)
    assert turns >= 300 // (work * share)
    assert type(client.events[-1]) is FlowReceived


def test_a_session_that_ends_in_the_middle_of_a_range_tells_no_more() -> None:
    client, _deliveries = sent(300)
    said = encoded_frame(Disposition(True, 0, FAR, settled=True, state=Released()))
    client.peer.receive_data(said, now_s=0.0, most_work=10)
    client.events += client.peer.events()
    before = told(client)
    client.peer.sessions[0].end()
    while client.peer.has_more:
        client.peer.go_on(10)
    client.events += client.peer.events()
    assert before <= 10
    assert not client.events


# ------------------------------------------------------------------------------------------ frames


@given(st.lists(st.integers(1, 40), min_size=1, max_size=30))
def test_frames_mean_the_same_in_however_many_turns(works: list[int]) -> None:
    def greeted() -> tuple[Client, Any]:
        client = Client(server()).opened()
        client.begun()
        link = client.receiving(credit=50)
        client.events.clear()
        for number in range(40):
            link.transfer(bytes([number]), (b"x",))
        return client, link

    frames: list[Composite] = []
    for number in range(20):
        frames.append(Disposition(True, number, 2 * number, settled=True, state=Accepted()))
        frames.append(flow(0, 50 + number, echo=number % 3 == 0))
    said = b"".join(map(encoded_frame, frames))
    (whole, _), (parts, _) = greeted(), greeted()
    whole.peer.receive_data(said, now_s=0.0)
    parts.peer.receive_data(said, now_s=0.0, most_work=works[0])
    for work in works[1:]:
        parts.peer.go_on(work)
    parts.peer.go_on(1 << 30)
    ours = [
        repr(type(each)) for each in whole.peer.events() if type(each) is not DispositionReceived
    ]
    theirs = [
        repr(type(each)) for each in parts.peer.events() if type(each) is not DispositionReceived
    ]
    assert ours == theirs
    assert whole.performatives() == parts.performatives()


class Transport:
    """A socket's, that takes all."""

    def __init__(self) -> None:
        self.is_reading = True
        self.written = b""

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, *_limits: int) -> None: ...

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def write(self, encoded: bytes) -> None:
        self.written += encoded

    def abort(self) -> None: ...


class Timers:
    """Of asyncio: nothing is due."""

    def call_later(self, _delay_s: float, _call: Callable[[], None]) -> Timers:
        return self

    def cancel(self) -> None: ...


class Turning:
    """A loop whose turns a test takes."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []
        self.asyncio = Timers()

    def later(self, _delay_s: float, call: Callable[[], None]) -> None:
        self.due.append(call)

    def wake(self) -> None: ...

    def turn(self) -> None:
        due, self.due[:] = self.due[:], []
        for call in due:
            call()


class Peers:
    """Peers of one broker."""

    def __init__(self, house: House, clock: Clock) -> None:
        self.loop, self.turns, self.clock = Turning(), Turns(), clock
        self._house = house
        self._buffer = memoryview(bytearray(READ_BYTES))

    def connect(self) -> tuple[PeerProtocol, Transport]:
        """One more; it has opened, begun and attached as a receiver of q."""
        peer = PeerProtocol(
            cast("Loop", self.loop),
            lambda has_output, _transport: self._house.host.connect(has_output),
            self._buffer,
            self.turns,
            on_begin=lambda _peer: None,
            on_output=lambda _peer: None,
            on_end=lambda _peer: None,
        )
        transport = Transport()
        peer.connection_made(cast("Any", transport))
        begin = Begin(next_outgoing_id=0, incoming_window=99, outgoing_window=99)
        sasl = SASL_HEADER.encoded() + encoded_frame(SaslInit("ANONYMOUS"), kind=SASL_FRAME)
        opened = encoded_frame(Open(f"c{id(peer)}")) + encoded_frame(begin)
        self.say(peer, sasl + AMQP_HEADER.encoded() + opened)
        peer.write()
        assert not self.loop.due
        return peer, transport

    def say(self, peer: PeerProtocol, encoded: bytes) -> None:
        """As one read."""
        peer.get_buffer(0)[: len(encoded)] = encoded
        peer.buffer_updated(len(encoded))


class Clock:
    """The loop's time, as a test has it pass; it is also where pauses are noted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s, self.pauses = 1_000.0, list[float]()
        monkeypatch.setattr(turns.time, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(turns.time, "sleep", self.pauses.append)

    def turn(self, all_turns: Turns, taken: LoopTime, took_s: float, byte_count: int = 100) -> None:
        """Somebody has a turn of so long."""
        began_s, self.now_s = self.now_s, self.now_s + took_s
        all_turns.ended(taken, began_s, byte_count)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture(autouse=True)
def _usual_interval() -> Iterator[None]:
    """It is put back where a test leaves a peer with more to do, or somebody waiting.

    A listener of another test, in this process, may have left it so, too.
    """
    sys.setswitchinterval(USUAL_S)
    yield
    sys.setswitchinterval(USUAL_S)


def peers_of(settings: BrokerSettings, tmp_path: Path, clock: Clock) -> Peers:
    """No time passes by itself: on a machine that is busy a peer would seem greedy by accident."""
    house = House(Place("memory", tmp_path), settings)
    house.broker.ensure_queue("q", lambda _error: None)
    house.run()
    return Peers(house, clock)


@pytest.fixture
def peers(tmp_path: Path, clock: Clock) -> Peers:
    return peers_of(BrokerSettings(), tmp_path, clock)


def flooded(count: int) -> bytes:
    return (encoded_frame(Flow(0, 99, 0, 99, echo=True)) * count)[:READ_BYTES]


def taken(monkeypatch: pytest.MonkeyPatch, peer: PeerProtocol) -> list[Any]:
    """What the protocol of a peer is given from now on: a performative each time."""
    seen: list[Any] = []
    channels = peer.connection._machine._channels
    receive = channels.receive

    def counted(frame: Any, performative: Composite, payload: bytes) -> None:
        seen.append(performative)
        receive(frame, performative, payload)

    monkeypatch.setattr(channels, "receive", counted)
    return seen


def test_a_read_of_many_frames_takes_many_turns_and_nothing_is_read_meanwhile(
    peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer, transport = peers.connect()
    seen, most = taken(monkeypatch, peer), peers.turns.work
    said = flooded(2_000)
    peers.say(peer, said)
    turns = 1
    while peers.loop.due:
        assert len(seen) <= turns * most
        assert not transport.is_reading
        peers.loop.turn()
        turns += 1
    assert len(seen) == 2_000
    assert turns >= 2_000 // most
    assert transport.is_reading
    assert peers.turns.busy_count == 0


def test_who_asks_little_is_answered_in_its_first_turn_beside_any_flood(
    peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    (flood, _), (honest, transport) = peers.connect(), peers.connect()
    seen = taken(monkeypatch, flood)
    peers.say(flood, flooded(2_000))
    before = len(transport.written)
    peers.say(honest, flooded(1))
    honest.write()
    assert len(transport.written) > before
    assert len(seen) < 2_000


def test_turns_are_short_while_somebody_waits_for_an_answer(peers: Peers) -> None:
    (flood, _), (other, _), (honest, _) = (peers.connect() for _ in range(3))
    long = peers.turns.work
    peers.say(honest, flooded(1))
    assert peers.turns.work == long  # nobody was in its way
    flood._taken.add(0.1, peers.clock.now_s)
    peers.say(flood, flooded(2_000))
    peers.say(other, flooded(2_000))
    assert peers.turns.work == long // 2  # they are no better than each other
    peers.say(honest, flooded(1))
    assert peers.turns.work < long // 2


def test_turns_are_short_and_end_with_a_pause_while_somebody_waits_beside_a_flood(
    clock: Clock,
) -> None:
    all_turns, flood, honest = Turns(), LoopTime(), LoopTime()
    long, usual_s = all_turns.work, sys.getswitchinterval()
    clock.turn(all_turns, honest, 0.0001)
    clock.turn(all_turns, flood, 0.05, 100_000)
    assert (all_turns.work, clock.pauses) == (long, [])  # nobody says anything beside it
    clock.turn(all_turns, honest, 0.0001)
    assert all_turns.work < long // 8
    assert len(clock.pauses) == 1  # its message is the store's before the flood's next turn
    assert sys.getswitchinterval() < usual_s
    clock.turn(all_turns, honest, 0.0001)
    assert len(clock.pauses) == 1
    clock.turn(all_turns, flood, 0.001, 100_000)
    assert len(clock.pauses) == 2
    clock.now_s += 1
    assert all_turns.work == long
    clock.turn(all_turns, flood, 0.05, 100_000)
    assert (len(clock.pauses), sys.getswitchinterval()) == (2, usual_s)


def test_the_loop_pauses_for_a_fifth_of_its_time_at_most_however_many_wait(clock: Clock) -> None:
    all_turns, flood = Turns(), LoopTime()
    for _ in range(100):
        clock.turn(all_turns, flood, 0.001, 100_000)
        for _ in range(10):
            clock.turn(all_turns, LoopTime(), 0.00004)
    assert 0 < 60e-6 * len(clock.pauses) < 0.2 * 100 * 0.0014


@pytest.mark.parametrize(
    ("took_s", "byte_count"),
    [(0.02, 100), (0.0001, 8), (0.0001, 5_000), (0.0001, 0)],
    ids=["takes as much", "a heartbeat", "says much", "has more to do"],
)
def test_who_is_an_equal_or_asks_nothing_does_not_shorten_turns(
    clock: Clock, took_s: float, byte_count: int
) -> None:
    all_turns, flood, other = Turns(), LoopTime(), LoopTime()
    clock.turn(all_turns, flood, 0.05, 100_000)
    clock.turn(all_turns, other, took_s, byte_count)
    assert (all_turns.work, clock.pauses) == (Turns().work, [])


def test_nobody_waits_for_a_peer_that_is_gone_or_was_greedy_long_ago(clock: Clock) -> None:
    for goes in (True, False):
        all_turns, flood, honest = Turns(), LoopTime(), LoopTime()
        clock.turn(all_turns, flood, 0.05, 100_000)
        if goes:
            all_turns.gone(flood)
        else:
            clock.now_s += 1
        clock.turn(all_turns, honest, 0.0001)
        assert all_turns.work == Turns().work


def test_a_fast_receiver_is_an_equal_of_a_fast_sender_however_little_it_says(
    peers: Peers, clock: Clock
) -> None:
    (receiver, _), sender = peers.connect(), LoopTime()
    for _ in range(20):
        receiver._taken.sent(100_000)
        clock.turn(peers.turns, sender, 0.005, 100_000)
        clock.turn(peers.turns, receiver._taken, 0.0001)
    assert (peers.turns.work, clock.pauses) == (Turns().work, [])


def test_what_is_written_to_a_peer_counts_as_taken(peers: Peers) -> None:
    peer, transport = peers.connect()
    before_s = peer._taken.seconds(peers.clock.now_s)
    cast("Any", peer.connection).output = lambda: bytes(10_000_000)
    peer.write()
    assert len(transport.written) >= 10_000_000
    assert peer._taken.seconds(peers.clock.now_s) > before_s + 0.1


def test_a_peer_that_hangs_up_is_in_nobodys_way(peers: Peers) -> None:
    (flood, _), (honest, _) = peers.connect(), peers.connect()
    flood._taken.add(0.05, peers.clock.now_s)
    peers.say(flood, flooded(1))
    flood.connection_lost(None)
    peers.say(honest, flooded(1))
    assert peers.turns.work == Turns().work


def test_turns_are_the_shorter_the_more_peers_have_more_to_do(
    peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    floods = [peers.connect()[0] for _ in range(30)]
    seen = [taken(monkeypatch, peer) for peer in floods]
    alone = peers.turns.work
    for peer in floods:
        peers.say(peer, flooded(200))
    for _ in range(3):
        before = sum(map(len, seen))
        peers.loop.turn()
        assert sum(map(len, seen)) - before <= 3 * alone
    floods[0].connection_lost(None)
    while peers.loop.due:
        peers.loop.turn()
    assert {len(each) for each in seen[1:]} == {200}
    assert peers.turns.busy_count == 0


def test_what_came_before_the_end_is_acted_on_however_much_it_is(
    peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer, _ = peers.connect()
    seen = taken(monkeypatch, peer)
    peers.say(peer, flooded(2_000))
    peer.connection.receive(b"")
    assert len(seen) == 2_000


@pytest.mark.parametrize("frame", ["transfer", "large flow", "empty"])
def test_a_turn_is_as_long_as_its_frames_are_costly(
    peers: Peers, monkeypatch: pytest.MonkeyPatch, frame: str
) -> None:
    peer, _ = peers.connect()
    handed: list[int] = []
    machine = peer.connection._machine
    receive = machine._receive
    monkeypatch.setattr(machine, "_receive", lambda each: handed.append(1) or receive(each))
    frames = {
        "transfer": transfer_frame(0, Transfer(7, 0, b"", 0), 0),
        "large flow": encoded_frame(Flow(0, 9, 0, 9, properties={"p": [0] * 9_000})),
        "empty": bytes((0, 0, 0, 8, 2, 0, 0, 0)),
    }
    said, most = frames[frame], peers.turns.work
    peers.say(peer, said * min(6_000, READ_BYTES // len(said)))
    assert len(handed) <= most // (20 if frame == "large flow" else 1)


def test_the_items_of_a_large_frame_are_work_before_any_clock_is_read() -> None:
    client = Client(server()).opened()
    client.begun()
    client.receiving(credit=9)
    client.events.clear()
    large = encoded_frame(flow(0, 9, properties={"p": [0] * 9_000}))
    client.peer.receive_data(large * 9, now_s=0.0, most_work=200)
    taken_at_once = sum(type(each) is FlowReceived for each in client.peer.events())
    client.peer.go_on(1 << 30)
    taken_then = sum(type(each) is FlowReceived for each in client.peer.events())
    assert (taken_at_once, taken_then) == (1, 8)


@pytest.mark.parametrize("keys", [800, 1])
def test_messages_with_much_around_their_bodies_are_few_in_a_turn(
    peers: Peers, sender: PeerProtocol, monkeypatch: pytest.MonkeyPatch, keys: int
) -> None:
    metrics = sender.connection.broker.metrics
    monkeypatch.setattr(turns, "thread_time", lambda: 0.0)  # what it is counted as decides
    entries = b"".join(b"\xa1\x03%03d\x40" % (n % keys) for n in range(800))
    head = struct.pack(">II", len(entries) + 4, 1_600)
    message = b"\x00\x53\x74\xd1" + head + entries + b"\x00\x53\x75\xa0\x01x"
    frames = [transfer_frame(0, Transfer(0, n, b"%d" % n, 0), len(message)) for n in range(20)]
    peers.turns._awaited_until_s = math.inf
    most = peers.turns.work // 16
    assert most < 10
    peers.say(sender, b"".join(frame + message for frame in frames)[:READ_BYTES])
    assert metrics.received <= most
    while peers.loop.due:
        before = metrics.received
        peers.loop.turn()
        assert metrics.received <= before + most
    assert metrics.received == 20


def test_a_turn_is_over_when_its_time_is_whatever_its_work_was_thought_to_be(
    peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer, _ = peers.connect()
    peers.turns._awaited_until_s = math.inf
    seen, clock_s = taken(monkeypatch, peer), count(step=0.0005)
    monkeypatch.setattr(turns, "thread_time", lambda: next(clock_s))
    monkeypatch.setattr(turns, "monotonic", lambda: math.inf)  # so each look reads the other
    peers.say(peer, flooded(400))
    turn_count = 1
    while peers.loop.due:
        assert len(seen) <= 128 * turn_count  # a step before the clock is asked, and one after
        peers.loop.turn()
        turn_count += 1
    assert turn_count > 3
    assert len(seen) == 400


def messages(count: int, *, is_settled: bool, first: int = 0) -> bytes:
    message = b"\x00\x53\x75\xa0\x01x"
    return b"".join(
        transfer_frame(0, Transfer(0, n, b"%d" % n, 0, is_settled), len(message)) + message
        for n in range(first, first + count)
    )


@pytest.fixture
def sender(peers: Peers) -> PeerProtocol:
    return sender_of(peers)


def sender_of(peers: Peers) -> PeerProtocol:
    """A peer with a link that sends to q."""
    peer, _ = peers.connect()
    target = encoded_frame(Attach("s", 0, False, None, None, Source(), Target("q"), None, False, 0))
    peers.say(peer, target)
    while peers.loop.due:
        peers.loop.turn()
    return peer


def test_what_the_frames_of_one_step_lead_to_is_acted_on_as_far_as_the_time_goes(
    peers: Peers, sender: PeerProtocol, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers.turns._awaited_until_s = math.inf
    metrics, clock_s = sender.connection.broker.metrics, count(step=0.0005)
    monkeypatch.setattr(turns, "thread_time", lambda: next(clock_s))
    monkeypatch.setattr(turns, "monotonic", lambda: math.inf)  # so each look reads the other
    peers.say(sender, messages(30, is_settled=False))  # one step
    while peers.loop.due:
        before = metrics.received
        sender.connection.tick(0.0)
        assert metrics.received == before  # the clock hurries nothing that waits for its turn
        peers.loop.turn()
        assert 0 < metrics.received - before <= 1 + AT_A_TIME  # these are alike: one look for some
    assert metrics.received == 30


@pytest.mark.parametrize(
    "last", [encoded_frame(Close()), encoded_frame(Flow(0, 0, 0, 0), channel=9), b""]
)
def test_messages_before_the_end_of_a_connection_are_stored_in_however_many_turns(
    peers: Peers, sender: PeerProtocol, monkeypatch: pytest.MonkeyPatch, last: bytes
) -> None:
    clock_s = count(step=0.001)
    monkeypatch.setattr(turns, "thread_time", lambda: next(clock_s))
    monkeypatch.setattr(turns, "monotonic", lambda: math.inf)  # so each look reads the other
    transport = cast("Any", sender._transport)
    hung_up: list[int] = []
    metrics = sender.connection.broker.metrics
    transport.close = lambda: hung_up.append(metrics.received)
    peers.say(sender, messages(200, is_settled=True) + last)
    assert metrics.received < 200
    if not last:
        sender.eof_received()
    sender.write()
    while peers.loop.due:
        peers.loop.turn()
        sender.write()
    assert metrics.received == 200
    assert hung_up[0] == 200


@pytest.mark.parametrize("is_settled", [False, True])
def test_beside_ten_thousand_transfers_a_ping_is_answered_between_two_turns_of_little_work(
    tmp_path: Path, clock: Clock, is_settled: bool
) -> None:
    """A run is cut by the turn of its peer: a turn that has work left for n takes n messages."""
    wide = BrokerSettings(credit=20_000, session_bytes=1 << 40)
    peers = peers_of(wide, tmp_path, clock)
    flood, (honest, transport) = sender_of(peers), peers.connect()
    metrics, most = flood.connection.broker.metrics, peers.turns.work
    said = messages(10_000, is_settled=is_settled)
    while said or peers.loop.due:
        before = metrics.received
        if flood._is_reading:  # which it is not while it has more to do
            peers.say(flood, said[:READ_BYTES])
            said = said[READ_BYTES:]
        else:
            peers.loop.turn()
        assert metrics.received - before <= most
        answered = len(transport.written)
        peers.say(honest, flooded(1))
        honest.write()
        assert len(transport.written) > answered
    assert metrics.received == 10_000


def test_of_ten_thousand_that_wait_one_turn_hands_out_no_more_than_a_batch(tmp_path: Path) -> None:
    house = House(Place("memory", tmp_path), BrokerSettings())
    house.broker.ensure_queue("q", lambda _error: None)
    house.run()
    sends, takes = LinkClient(house, "sends"), LinkClient(house, "takes")
    sends.attach("s", is_receiver=False, target=Target("q"))
    count = 2_000
    for begin in range(0, count, 200):
        sends.write(messages(200, is_settled=True, first=begin))
    takes.attach("t", source=Source("q"))
    metrics = house.broker.metrics
    takes.ours.receive(encoded_frame(Flow(0, FAR, 0, 99, 0, 0, 10_000)))
    while metrics.delivered < count:
        steps = [house.broker.dispatch] + [house.take_answers] * (house.calls.open_count > 0)
        for step in steps:
            before = metrics.delivered
            step()
            assert metrics.delivered - before <= 512
        takes.ours.output()
        takes.ours.unsent(0)
    assert metrics.delivered == count


def test_what_a_turn_took_too_much_is_taken_off_the_next_ones(
    peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer, _ = peers.connect()
    seen = taken(monkeypatch, peer)
    peers.say(peer, flooded(1_000))
    peer.connection.turn.spend(3 * peers.turns.work)
    before = len(seen)
    for _ in range(2):
        peers.loop.turn()
    assert len(seen) == before
    while peers.loop.due:
        peers.loop.turn()
    assert len(seen) == 1_000


def test_the_interpreter_is_handed_over_sooner_while_a_peer_has_more_to_do(peers: Peers) -> None:
    (one, _), (two, _), usual_s = peers.connect(), peers.connect(), sys.getswitchinterval()
    peers.say(one, flooded(200))
    peers.say(two, flooded(400))
    while peers.loop.due:
        assert sys.getswitchinterval() < usual_s
        peers.loop.turn()
    assert sys.getswitchinterval() == usual_s
    peers.say(one, flooded(200))
    one.connection_lost(None)
    assert sys.getswitchinterval() == usual_s


def test_a_drain_makes_some_calls_and_leaves_the_rest_for_the_next() -> None:
    inbox, made = Inbox(), list[object]()
    for number in range(700):
        inbox.post(made.append, number)
    drains = 0
    while len(made) < 700:
        assert inbox.drain() <= 256
        drains += 1
    assert made == [*range(700)]
    assert drains == 3
    inbox.close()
