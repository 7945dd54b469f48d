"""Who gets what, how much may come, and calls from other threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.broker.queues.queue_index import Cursor, Survivors
from broker_shim.broker.storage.inbox import Inbox
from tests.support.readiness import is_ready


@dataclass(eq=False)
class Taker:
    credit: int
    taken: list[int] = field(default_factory=list)

    def assign(self, message_ids: Sequence[int]) -> int:
        self.credit -= len(message_ids)
        self.taken += message_ids
        return len(message_ids)


def dispatch(queue: QueueDispatch) -> None:
    queue.dispatch()


def queue_of(*priorities: int) -> QueueDispatch:
    queue = QueueDispatch("q")
    for message_id, priority in enumerate(priorities, start=1):
        queue.arrived([message_id], priority)
    return queue


def test_consumers_with_credit_take_turns() -> None:
    queue, one, two = queue_of(4, 4, 4, 4), Taker(2), Taker(1)
    queue.add(one)
    queue.add(two)
    dispatch(queue)
    assert (one.taken, two.taken, len(queue)) == ([1, 3], [2], 4)


def test_who_got_the_last_message_is_the_last_to_get_another() -> None:
    queue, takers = queue_of(), [Taker(9), Taker(9), Taker(9)]
    for taker in takers:
        queue.add(taker)
    for message_id in range(1, 7):
        queue.arrived([message_id], 4)
        dispatch(queue)
    assert [taker.taken for taker in takers] == [[1, 4], [2, 5], [3, 6]]


def test_one_consumer_alone_gets_as_many_as_it_has_credit_for_and_the_next_the_rest() -> None:
    queue, one, two = queue_of(*[4] * 600, 9), Taker(500), Taker(0)
    queue.add(one)
    queue.add(two)
    dispatch(queue)
    assert one.taken == [601, *range(1, 500)]
    two.credit = 500
    dispatch(queue)
    assert two.taken == [*range(500, 601)]


def test_higher_priority_goes_first_and_a_released_message_to_its_old_place() -> None:
    queue, taker = queue_of(4, 9, 4), Taker(2)
    queue.add(taker)
    dispatch(queue)
    queue.released(1, delivery_failed=True)
    queue.removed([2])
    taker.credit = 2
    dispatch(queue)
    assert taker.taken == [2, 1, 1, 3]
    assert queue.delivery_count(1) == 1


def test_a_message_that_one_consumer_refused_goes_to_another_only() -> None:
    queue, one, two = queue_of(4, 4), Taker(1), Taker(0)
    queue.add(one)
    queue.add(two)
    dispatch(queue)
    queue.refuse(1, one)
    queue.released(1, delivery_failed=False)
    one.credit = 2
    dispatch(queue)
    two.credit = 1
    dispatch(queue)
    assert (one.taken, two.taken) == ([1, 2], [1])


def test_what_survived_keeps_its_order_and_count() -> None:
    queue, taker = QueueDispatch("q"), Taker(9)
    queue.recovered([Survivors([7], [4], {}), Survivors([5, 9], [4, 5], {5: 2})])
    queue.arrived([10], 4)
    queue.add(taker)
    dispatch(queue)
    assert taker.taken == [9, 7, 5, 10]
    assert queue.delivery_count(5) == 2


def test_a_withdrawn_message_goes_to_nobody_until_it_is_released_to_its_old_place() -> None:
    queue, taker = queue_of(4, 4, 4), Taker(0)
    queue.add(taker)
    assert queue.withdraw([1, 3, 7]) == ([1, 3], 0, 1)
    assert queue.withdraw([1]) == ([], 1, 0)
    taker.credit = 9
    dispatch(queue)
    queue.released(3, delivery_failed=False)
    queue.released(1, delivery_failed=False)
    dispatch(queue)
    assert taker.taken == [2, 1, 3]


STEPS = ["arrive", "take", "release", "remove", "withdraw"]


@given(st.lists(st.sampled_from(STEPS), max_size=60))
def test_every_message_is_waiting_or_held_and_never_both(steps: list[str]) -> None:
    queue, taker = QueueDispatch("q"), Taker(0)
    queue.add(taker)
    arrived = 0
    held: list[int] = []
    for step in steps:
        if step == "arrive":
            arrived += 1
            queue.arrived([arrived], arrived % 10)
        elif step == "take":
            taker.credit = 1
            before = len(taker.taken)
            dispatch(queue)
            held += taker.taken[before:]
        elif step == "withdraw":
            held += queue.withdraw(range(arrived, max(0, arrived - 2), -1)).held
        elif held and step == "release":
            queue.released(held.pop(), delivery_failed=True)
        elif held:
            queue.removed([held.pop()])
        assert len(held) == len(set(held))
        assert len(queue.browse(Cursor(), 100)) + len(held) == len(queue)


def test_calls_from_many_threads_are_made_once_each_in_the_order_of_each_thread() -> None:
    inbox = Inbox()
    made: list[tuple[int, int]] = []

    def post(thread: int) -> None:
        for number in range(500):
            inbox.post(made.append, (thread, number))  # type: ignore[arg-type]

    threads = [threading.Thread(target=post, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    while len(made) < 2000:
        assert is_ready(inbox, 20), "a call was posted and nobody was woken"
        inbox.drain()
    for thread in threads:
        thread.join()
    for n in range(4):
        assert [number for thread, number in made if thread == n] == list(range(500))
    inbox.close()


def test_many_posts_are_one_wake_up() -> None:
    inbox = Inbox()
    for number in range(5):
        inbox.post([].append, number)
    assert os.eventfd_read(inbox.fileno()) == 1
    assert inbox.drain() == 5
    inbox.close()


def test_a_message_that_is_held_when_its_time_comes_waits_when_it_is_given_back() -> None:
    queue = QueueDispatch("q")
    queue.arrived([1, 2], 4)
    queue.delayed.hide(1, 1_000)
    assert queue.withdraw([1]).held == [1]  # as a purge does, whose store then refuses
    assert queue.delayed.due(1_000, 10) == [1]
    queue.delayed.end(1, 4)
    queue.released(1, delivery_failed=False)
    assert [each for _place, each in queue.browse(Cursor(), 10)] == [2, 1]
    assert len(queue.delayed) == 0


def test_times_of_messages_that_left_before_are_forgotten() -> None:
    queue = QueueDispatch("q")
    for message_id in range(1, 10_001):
        queue.arrived([message_id], 4)
        queue.delayed.hide(message_id, 1 << 50)
        queue.withdraw([message_id])
        queue.removed([message_id])
    assert len(queue.delayed._wheel) < 5_000
