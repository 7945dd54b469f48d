"""Credit in messages and bytes: the queue's order holds, and no limit is passed."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from broker_shim.broker.queues.consumer_credit import ConsumerCredit
from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.broker.queues.selective_cursor import WorkBudget
from broker_shim.selectors import parse


class Measuring:
    """A consumer that counts what it is handed out."""

    def __init__(self, sizes: list[int]) -> None:
        self._sizes, self.had, self.limits = sizes, list[int](), ConsumerCredit()

    @property
    def credit(self) -> int:
        return self.limits.count

    @property
    def measures(self) -> bool:
        return self.limits.content_bytes is not None

    def takes(self, message_id: int) -> bool:
        return self.limits.covers(self._sizes[message_id - 1])

    def assign(self, message_ids: Sequence[int]) -> int:
        for message_id in message_ids:
            self.limits.spend(self._sizes[message_id - 1])
            self.had.append(message_id)
        return len(message_ids)

    def caught_up(self) -> None:
        pass

    def turned_away(self, reason: str) -> None:
        raise AssertionError(reason)

    def queue_deleted(self) -> None:
        pass


class Header:
    steps = 0

    @staticmethod
    def get(_name: str) -> str:
        return "x"


def dispatch(queue: QueueDispatch) -> None:
    """As the broker does at the end of a turn."""
    going_on = True
    while going_on:
        for message_id, consumer in queue.take_found():
            consumer.assign((message_id,))
        batches = queue.to_look_at(8)
        found = {each: Header() for _cursor, batch in batches for _place, each in batch}
        queue.judge(batches, found, WorkBudget(1000))
        going_on = bool(batches)
    queue.dispatch()


GRANTS = st.lists(st.tuples(st.integers(0, 5) | st.none(), st.integers(0, 60) | st.none()))


@given(st.lists(st.integers(1, 50), max_size=12), GRANTS, st.booleans())
def test_a_consumer_gets_in_order_what_its_credit_covers_and_nothing_behind_it(
    sizes: list[int],
    grants: list[tuple[int | None, int | None]],
    is_selective: bool,  # hypothesis' argument
) -> None:
    queue, it = QueueDispatch("q"), Measuring(sizes)
    for message_id in range(1, len(sizes) + 1):
        queue.arrived([message_id], 4)
    queue.add_measuring(it, parse("a = 'x'") if is_selective else None)
    messages: int | None = 0
    content_bytes: int | None = 0
    for count, more in grants:
        it.limits.grant_messages(count)
        it.limits.grant_bytes(more)
        messages = None if messages is None or count is None else messages + count
        content_bytes = None if content_bytes is None or more is None else content_bytes + more
        dispatch(queue)
        had = 0
        while had < len(sizes):
            is_counted = messages is None or had < messages
            if not is_counted:
                break
            if content_bytes is not None and sum(sizes[: had + 1]) > content_bytes:
                break
            had += 1
        assert it.had == [*range(1, had + 1)]


def test_a_consumer_with_bytes_is_passed_over_for_one_that_takes_the_message() -> None:
    queue, small, other = QueueDispatch("q"), Measuring([100, 1]), Measuring([100, 1])
    for message_id in (1, 2):
        queue.arrived([message_id], 4)
    small.limits = ConsumerCredit(5, 10)
    other.limits = ConsumerCredit(1, None)
    queue.add_measuring(small)
    queue.add_measuring(other)
    dispatch(queue)
    assert (small.had, other.had) == ([], [1])
    small.limits.grant_bytes(1)
    dispatch(queue)
    assert small.had == [2]
    small.limits.restore(1)
    assert (small.limits.messages, small.limits.content_bytes) == (5, 11)
    small.limits.stop()
    assert small.credit == 0
    queue.discard(small)
    assert queue.consumer_count == 1
