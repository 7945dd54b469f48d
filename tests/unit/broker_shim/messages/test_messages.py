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
from broker_shim.messages.message import Messages
from broker_shim.messages.residency import LoadedMessage, OnLoaded, Residency
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


def test_a_message_is_one_object_for_all_who_hold_it_and_names_them(messages: Messages) -> None:
    first = messages.get(1).reference("queue a")
    second = messages.get(1).reference("queue b")
    assert messages.get(1) is messages.get(1)
    assert messages.get(1).holders == ["queue a", "queue b"]
    assert messages.holders() == {1: ["queue a", "queue b"]}
    first.release()
    assert messages.holders() == {1: ["queue b"]}
    second.release()
    assert messages.holders() == {}
    assert len(messages) == 0


def test_a_reference_is_released_once_however_often_it_is_let_go_of(messages: Messages) -> None:
    message = messages.get(1)
    with message.reference("a") as reference:
        message.reference("b")
        reference.release()
    reference.release()
    assert message.holders == ["b"]


def test_garbage_that_was_never_released_lets_go_later_and_names_its_holder(
    messages: Messages, posted: list[Callable[[], None]], caplog: pytest.LogCaptureFixture
) -> None:
    message = messages.get(7)
    message.reference("a forgetful link")
    message.interest("a forgetful link")
    with caplog.at_level(logging.WARNING):
        gc.collect()
    said = "message 7 was held by 'a forgetful link', who never released it: a fault"
    heard = [record.getMessage() for record in caplog.records]
    assert [text for text in heard if "forgetful" in text] == [said, said]  # not other tests'
    assert message.holders == ["a forgetful link"]  # nothing happens on the collector's thread
    for call in posted:
        call()
    assert messages.holders() == {}


def test_an_interest_loads_the_content_and_keeps_it_until_the_last_one_ends(
    messages: Messages, disk: Disk
) -> None:
    message, here = messages.get(1), list[object]()
    one, other = message.interest("one"), message.interest("other")
    assert [message_id for message_id, _ in disk.loading] == [1]
    message.when_here(here.append)
    assert message.content_now() is None
    disk.turn()
    assert here == [message.content_now()]
    residency = messages.residency
    assert residency.byte_count == residency.wanted_bytes == 204
    one.release()
    assert residency.wanted_bytes == 204
    other.release()
    assert (residency.byte_count, residency.wanted_bytes) == (204, 0)


def test_content_that_nobody_wants_goes_first_when_memory_is_short(
    messages: Messages, disk: Disk
) -> None:
    wanted = [messages.get(number).interest("x") for number in (1, 2)]
    disk.turn()
    wanted[0].release()
    assert messages.residency.byte_count == 408
    more = messages.get(3).interest("x")
    disk.turn()
    residency = messages.residency
    assert residency.get(1) is None
    assert residency.byte_count == residency.wanted_bytes == 408
    too_much = messages.get(4).interest("x")
    disk.turn()
    assert residency.byte_count == 612  # what is wanted is never dropped
    for hold in (more, too_much, wanted[1]):
        hold.release()
    assert residency.byte_count <= 500


def test_content_of_many_is_looked_up_together_and_what_is_missing_is_loaded(
    messages: Messages, disk: Disk
) -> None:
    disk.at_hand = {1, 3}
    batch = [messages.get(number) for number in (1, 2, 3)]
    interests = messages.interests(batch, "x")
    residency = messages.residency
    assert [message_id for message_id, _ in disk.loading] == [2]
    assert [*residency.wanted_here((1, 2, 3))] == [1, 3]
    disk.turn()
    assert [*residency.wanted_here((1, 2, 3))] == [1, 2, 3]
    other = batch[0].interest("y")
    interests[1].release()
    messages.release(interests)
    messages.release(interests)  # the second time does nothing
    assert residency.wanted_bytes == 204
    assert len(messages) == 1
    other.release()
    assert (len(messages), residency.wanted_bytes) == (0, 0)


def test_content_that_was_dropped_is_read_back(messages: Messages, disk: Disk) -> None:
    message, buffer = messages.get(1), bytearray(150)
    assert message.read_content(0, memoryview(buffer)) == 150
    assert buffer == BODY[:150]
    assert message.read_content(150, memoryview(buffer)) == 50
    assert buffer[:50] == BODY[150:]
    assert message.read_content(200, memoryview(buffer)) == 0
    interest = message.interest("x")
    disk.turn()
    del disk.bodies[1]
    assert message.read_content(190, memoryview(buffer)) == 10
    assert buffer[:10] == BODY[190:]
    interest.release()


def test_a_load_that_failed_is_tried_again_when_it_is_asked_for_again(
    messages: Messages, disk: Disk
) -> None:
    message, here = messages.get(1), list[object]()
    interest = message.interest("x")
    disk.error = Unavailable("not now")
    message.when_here(here.append)
    disk.turn()
    assert here == [disk.error]
    disk.error = None
    message.when_here(here.append)
    disk.turn()
    assert isinstance(here[1], LoadedMessage)
    interest.release()


def test_content_that_comes_when_nobody_wants_it_any_more_is_not_kept(
    messages: Messages, disk: Disk
) -> None:
    messages.get(1).interest("x").release()
    disk.turn()
    assert messages.residency.byte_count == 0
    again = messages.get(1).interest("x")
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
        here = {each: there.byte_count for each in IDS if (there := residency.get(each))}
        assert [*residency.wanted_here(each for each in IDS if interests[each])] == [
            each for each in here if interests[each]
        ]
        wanted = sum(count for each, count in here.items() if interests[each])
        assert residency.byte_count == sum(here.values())
        assert residency.wanted_bytes == wanted
        assert residency.byte_count <= max(700, wanted)
