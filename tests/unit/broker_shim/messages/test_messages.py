"""One message: its holders, its content in memory and on disk, its header in three views."""

from __future__ import annotations

import gc
import logging
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_shim.errors import StoreError, Unavailable
from broker_shim.messages.hold import Messages
from broker_shim.messages.residency import LoadedMessage, OnLoaded, Residency, byte_count_of
from sparkstore.core.records import MessageHeader

BODY = bytes(range(200))


class Disk:
    """Content by message id; what is not at hand comes when the test says so."""

    def __init__(self) -> None:
        self.bodies = dict.fromkeys(range(1, 9), BODY)
        self.at_hand: set[int] = set()
        self.loading: list[tuple[int, OnLoaded]] = []
        self.error: StoreError | None = None

    def now(self, message_ids: Sequence[int]) -> dict[int, LoadedMessage]:
        return {each: self.loaded(each) for each in message_ids if each in self.at_hand}

    def load(self, message_id: int, on_loaded: OnLoaded) -> None:
        self.loading.append((message_id, on_loaded))

    def read(self, message_id: int, offset: int, length: int) -> bytes:
        return self.bodies[message_id][offset : offset + length]

    def turn(self) -> None:
        loading, self.loading = self.loading, []
        for message_id, on_loaded in loading:
            on_loaded(self.error or self.loaded(message_id))

    def loaded(self, message_id: int) -> LoadedMessage:
        header = MessageHeader(header=b"head", body_bytes=len(BODY))
        return LoadedMessage(header, self.bodies[message_id])


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def posted() -> list[Callable[[], None]]:
    return []


@pytest.fixture
def messages(disk: Disk, posted: list[Callable[[], None]]) -> Messages:
    return Messages(Residency(500, disk), posted.append)


def test_a_hold_names_who_has_which_messages_until_it_is_released(messages: Messages) -> None:
    first = messages.hold((1, 2), "queue a", wants=False)
    second = messages.hold((1,), "queue b", wants=False)
    assert messages.holders() == {1: ["queue a", "queue b"], 2: ["queue a"]}
    first.release()
    first.release()  # the second time does nothing
    assert messages.holders() == {1: ["queue b"]}
    second.release()
    assert messages.holders() == {}


def test_a_hold_that_is_cut_is_two_and_each_ends_by_itself(messages: Messages, disk: Disk) -> None:
    disk.at_hand = {*range(1, 6)}
    first = messages.hold((1, 2, 3, 4), "a", wants=True)
    last = first.cut(3)
    middle = first.cut(1)
    assert [[*hold.message_ids] for hold in (first, middle, last)] == [[1], [2, 3], [4]]
    middle.unwant()
    middle.unwant()  # the second time does nothing
    assert messages.residency.wanted_bytes == 408
    assert messages.holders() == {number: ["a"] for number in (1, 2, 3, 4)}
    middle.release()
    last.release()
    assert (messages.holders(), messages.residency.wanted_bytes) == ({1: ["a"]}, 204)
    first.release()
    assert (messages.holders(), messages.residency.wanted_bytes) == ({}, 0)


def test_garbage_that_was_never_released_lets_go_later_and_names_its_holder(
    messages: Messages, posted: list[Callable[[], None]], caplog: pytest.LogCaptureFixture
) -> None:
    messages.hold((7, 8), "a forgetful link", wants=False)
    messages.hold((7,), "a forgetful link", wants=True)
    with caplog.at_level(logging.WARNING):
        gc.collect()
    said = "message 7 was held by 'a forgetful link', who never released it: a fault"
    heard = [record.getMessage() for record in caplog.records]
    assert [text for text in heard if "forgetful" in text] == [said, said]  # not other tests'
    assert messages.holders()[7] == ["a forgetful link"] * 2  # nothing happens on that thread
    for call in posted:
        call()
    assert messages.holders() == {}


def test_a_wanted_message_is_loaded_and_its_content_kept_until_the_last_hold_ends(
    messages: Messages, disk: Disk
) -> None:
    here, residency = list[object](), messages.residency
    one, other = messages.hold((1,), "one", wants=True), messages.hold((1,), "other", wants=True)
    assert [message_id for message_id, _ in disk.loading] == [1]
    residency.when_here(1, here.append)
    assert residency.get(1) is None
    disk.turn()
    assert here == [residency.get(1)]
    assert residency.byte_count == residency.wanted_bytes == 204
    one.release()
    assert residency.wanted_bytes == 204
    other.release()
    assert (residency.byte_count, residency.wanted_bytes) == (204, 0)


def test_content_that_nobody_wants_goes_first_when_memory_is_short(
    messages: Messages, disk: Disk
) -> None:
    wanted = [messages.hold((number,), "x", wants=True) for number in (1, 2)]
    disk.turn()
    wanted[0].release()
    assert messages.residency.byte_count == 408
    more = messages.hold((3,), "x", wants=True)
    disk.turn()
    residency = messages.residency
    assert residency.get(1) is None
    assert residency.byte_count == residency.wanted_bytes == 408
    too_much = messages.hold((4,), "x", wants=True)
    disk.turn()
    assert residency.byte_count == 612  # what is wanted is never dropped
    for hold in (more, too_much, wanted[1]):
        hold.release()
    assert residency.byte_count <= 500


def test_content_of_many_is_looked_up_together_and_what_is_missing_is_loaded(
    messages: Messages, disk: Disk
) -> None:
    disk.at_hand = {1, 3}
    hold, residency = messages.hold((1, 2, 3), "x", wants=True), messages.residency
    assert [message_id for message_id, _ in disk.loading] == [2]
    one, two = disk.loaded(1), disk.loaded(2)
    assert residency.wanted_here((1, 2, 3)) == [one, None, disk.loaded(3)]
    disk.turn()
    assert residency.wanted_here((3, 2)) == [disk.loaded(3), two]
    other = messages.hold((1,), "y", wants=True)
    hold.release()
    assert residency.wanted_bytes == 204
    other.release()
    assert residency.wanted_bytes == 0


def test_content_that_was_dropped_is_read_back(messages: Messages, disk: Disk) -> None:
    buffer = bytearray(150)
    assert messages.read_content(1, 0, memoryview(buffer)) == 150
    assert buffer == BODY[:150]
    assert messages.read_content(1, 150, memoryview(buffer)) == 50
    assert buffer[:50] == BODY[150:]
    assert messages.read_content(1, 200, memoryview(buffer)) == 0
    hold = messages.hold((1,), "x", wants=True)
    disk.turn()
    del disk.bodies[1]
    assert messages.read_content(1, 190, memoryview(buffer)) == 10
    assert buffer[:10] == BODY[190:]
    hold.release()


def test_a_load_that_failed_is_tried_again_when_it_is_asked_for_again(
    messages: Messages, disk: Disk
) -> None:
    here, residency = list[object](), messages.residency
    hold = messages.hold((1,), "x", wants=True)
    disk.error = Unavailable("not now")
    residency.when_here(1, here.append)
    disk.turn()
    assert here == [disk.error]
    disk.error = None
    residency.when_here(1, here.append)
    disk.turn()
    assert isinstance(here[1], LoadedMessage)
    hold.release()


def test_content_that_comes_when_nobody_wants_it_any_more_is_not_kept(
    messages: Messages, disk: Disk
) -> None:
    messages.hold((1,), "x", wants=True).release()
    disk.turn()
    assert messages.residency.byte_count == 0
    again = messages.hold((1,), "x", wants=True)
    disk.turn()
    assert messages.residency.byte_count == 204
    again.release()
    messages.forget([1])
    assert messages.residency.byte_count == 0


IDS = range(1, 6)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["want", "unwant", "load", "fail", "forget", "at hand"]),
        st.lists(st.sampled_from(IDS), min_size=1, max_size=4),
    ),
    max_size=40,
)


def test_what_is_at_hand_before_its_load_is_answered_counts_once(disk: Disk) -> None:
    residency = Residency(10_000, disk)
    residency.want([1])
    residency.unwant([1])
    disk.at_hand = {1}
    residency.want([1])
    disk.turn()
    size = byte_count_of([disk.loaded(1)])
    assert (residency.byte_count, residency.wanted_bytes) == (size, size)
    residency.unwant([1])
    assert residency.wanted_bytes == 0


@given(STEPS)
def test_the_bytes_in_memory_are_counted_to_the_last_whatever_happens(
    steps: list[tuple[str, list[int]]],
) -> None:
    disk = Disk()
    disk.bodies = {number: bytes(100 * number) for number in IDS}
    residency, interests = Residency(700, disk), Counter[int]()
    for step, numbers in steps:
        if step == "want":
            residency.want(numbers)
            interests.update(numbers)
        elif step == "unwant":
            ended = [number for number in {*numbers} if interests[number]]
            residency.unwant(ended)
            interests.subtract(ended)
        elif step == "at hand":
            disk.at_hand = {*numbers}
        elif step in {"load", "fail"}:
            disk.error = Unavailable("not now") if step == "fail" else None
            disk.turn()
        elif step == "forget":
            residency.forget(numbers)
        here = {
            number: byte_count_of([content])
            for number in IDS
            if (content := residency.get(number)) is not None
        }
        are_wanted = [number for number in IDS if interests[number]]
        contents = residency.wanted_here(are_wanted)
        assert contents == [residency.get(number) for number in are_wanted]
        wanted = sum(count for each, count in here.items() if interests[each])
        assert residency.byte_count == sum(here.values())
        assert residency.wanted_bytes == wanted
        assert residency.byte_count <= max(700, wanted)
