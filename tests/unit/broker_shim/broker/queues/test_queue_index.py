"""What waits, in a few bytes a message."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable
from functools import partial

import pytest

from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.broker.queues.queue_index import Cursor, QueueIndex, Survivors
from sparkstore.core.annotations import plain_time
from sparkstore.core.entries import Entries, Entry

COUNT = 50_000
MOST_BYTES_EACH = 4
MOST_BYTES_ALIKE = 1
MOST_BYTES_DELAYED = 60


def bytes_of(make: Callable[[], object]) -> int:
    """What an object takes, with all that it holds."""
    tracemalloc.start()
    try:
        kept = make()
        size = tracemalloc.get_traced_memory()[0]
        assert kept is not None
        return size
    finally:
        tracemalloc.stop()


def filled(step: int = 1) -> QueueDispatch:
    queue, half = QueueDispatch("q"), COUNT * step // 2
    ids = range(1, half, step)
    queue.recovered([Survivors(ids, [4] * len(ids), {})])
    for message_id in range(half + step - 1, COUNT * step + 1, step):
        queue.arrived([message_id], 4)
    return queue


@pytest.mark.parametrize(("step", "most"), [(1, MOST_BYTES_ALIKE), (2, MOST_BYTES_EACH)])
def test_a_waiting_message_takes_three_bytes_and_next_to_none_in_a_run(
    step: int, most: int
) -> None:
    size = bytes_of(partial(filled, step)) / COUNT
    print(f"{size:.2f} bytes a waiting message")
    assert 0.1 <= size <= most


def test_a_message_that_waits_for_its_time_takes_some_bytes_and_no_timer() -> None:
    """Its entry and its place in dispatch; its content is in the store."""

    def make() -> tuple[Entries, QueueDispatch]:
        entries, queue = Entries(), QueueDispatch("q")
        for number in range(1, COUNT + 1):
            at_ms = 1_750_000_000_000 + number * 7919 % (30 * 24 * 3_600_000)
            entries.add(number, Entry(number, 0, 4, None, 1024, detail=plain_time(at_ms)))
            queue.arrived([number], 4)
            queue.delayed.hide(number, at_ms * 1000)
        for number in range(COUNT + 1, COUNT + 8_193):  # those that came last are objects
            entries.add(number, Entry(number, 0, 4, None, 1024))
        for number in range(COUNT + 1, COUNT + 8_193):
            entries.remove((number,))
        return entries, queue

    each = bytes_of(make) / COUNT
    print(f"{each:.2f} bytes a delayed message")
    assert 2 <= each <= MOST_BYTES_DELAYED


def test_messages_of_all_priorities_in_no_order_take_few_bytes_more() -> None:
    ids = random.Random(7).sample(range(1, COUNT + 1), COUNT)

    def make() -> QueueIndex:
        index = QueueIndex()
        for number, message_id in enumerate(ids):
            index.extend([message_id], number % 10)
        return index

    each = bytes_of(make) / COUNT
    print(f"{each:.2f} bytes a waiting message, ids at random")
    assert each <= 6 * MOST_BYTES_EACH


def test_what_left_takes_nothing() -> None:
    def emptied() -> QueueDispatch:
        queue = filled()
        for message_id in range(1, COUNT + 1):
            queue.withdraw([message_id])
            queue.removed((message_id,))
        assert len(queue) == 0
        return queue

    assert bytes_of(emptied) < 100_000


def test_a_held_message_keeps_its_chunk_and_no_more() -> None:
    queue = filled()
    queue.withdraw([1, COUNT])
    for message_id in range(2, COUNT):
        queue.withdraw([message_id])
        queue.removed((message_id,))
    assert (
        sum(len(chunk.slots) for level in queue._index._levels for chunk in level._chunks) <= 2048
    )
    queue.released(1, delivery_failed=False)
    assert queue.browse(Cursor(), 9) == [(5 << 48, 1)]


def test_ids_that_lie_far_apart_are_kept_whole() -> None:
    index = QueueIndex()
    ids = [1, 2, 1 << 15, (1 << 15) + 1, 1 << 62, (1 << 63) - 1]
    index.extend(ids[:2], 4)
    index.hold([index.find(1) or 0])
    index.extend(ids[2:], 4)
    assert [each for _place, each in index.look(Cursor(), 9)] == ids[1:]
    assert [index.find(each) is None for each in (*ids, 3)] == [True, *[False] * 5, True]
    index.put_back(5 << 48)
    assert [each for _place, each in index.look(Cursor(), 9)] == ids


def test_ids_that_come_as_a_range_wait_as_those_of_a_list() -> None:
    one, other = QueueIndex(), QueueIndex()
    for ids in (range(5, 3_000), range(2, 4), range(1 << 40, (1 << 40) + 1_500)):
        one.extend(ids, 4)
        other.extend([*ids], 4)
    assert one.look(Cursor(), 9_999) == other.look(Cursor(), 9_999)
    assert [one.find(each) for each in (2, 2_999, 1 << 40)] == [
        other.find(each) for each in (2, 2_999, 1 << 40)
    ]


def test_messages_moved_in_with_old_ids_are_found() -> None:
    index = QueueIndex()
    for message_id in [*range(5_000, 9_000), *range(1, 4_000), 20_000, 4_500]:
        index.extend([message_id], 4)
    for message_id in (1, 3_999, 4_500, 5_000, 8_999, 20_000):
        place = index.find(message_id)
        assert place is not None
        assert index.waits(place, message_id)
    assert index.find(4_999) is None


def test_what_arrives_is_found_where_a_chunk_with_room_is_the_last_one_again() -> None:
    queue = QueueDispatch("q")
    queue.arrived(range(101, 201), 4)
    queue.withdraw(range(101, 201))
    queue.arrived([5], 4)  # moved here: it begins a chunk of its own
    assert queue.browse(Cursor(), 9) == [(5 << 48 | 100, 5)]
    queue.withdraw([5])
    queue.removed([5])
    queue.arrived([201], 4)
    assert [each for _place, each in queue.browse(Cursor(), 9)] == [201]
    queue.arrived([6], 4)
    assert [each for _place, each in queue.browse(Cursor(), 9)] == [201, 6]
