"""What is taken out of dispatch together, and what that costs who looks at the queue meanwhile."""

from __future__ import annotations

from array import array

from broker_shim.broker.queues.priority_level import Chunk
from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.broker.queues.taken_out import _RUN_WEIGHT

RUN, RUNS = 64, 100


class Slots(array):  # type: ignore[type-arg]
    """Slots that count who looks at one."""

    looks = 0

    def __getitem__(self, index: int) -> int:  # type: ignore[override]
        Slots.looks += 1
        return super().__getitem__(index)


class ComparedId(int):
    """An id that counts the comparisons with it."""

    comparisons = 0

    def _compared(self, _other: object) -> None:
        ComparedId.comparisons += 1
        return NotImplemented

    __lt__ = __gt__ = __le__ = __ge__ = __eq__ = _compared  # type: ignore[assignment]
    __hash__ = int.__hash__


def alternating(run: int, count: int) -> QueueDispatch:
    """Runs of messages, each of another priority than the one before it."""
    queue = QueueDispatch("q")
    for number in range(count):
        queue.arrived(range(number * run + 1, number * run + run + 1), 4 + number % 2)
    return queue


def test_where_priorities_alternate_no_run_is_made_and_the_rest_is_left_alone() -> None:
    queue = alternating(1, 1000)
    out = queue.take_out(range(1, 1001), 250)
    assert out == ([[*range(1, 251)]], 0, 0)
    assert (queue.held_count, len(queue)) == (250, 1000)


def test_runs_go_on_until_enough_is_in_none() -> None:
    queue = alternating(RUN, 5)
    queue.withdraw(range(RUN + 1, 2 * RUN, 2))
    held, left, _gone = queue.take_out(range(1, 5 * RUN + 1), RUN + 3 * _RUN_WEIGHT)
    first, *others = (range(at, at + RUN) for at in (1, 2 * RUN + 1, 3 * RUN + 1))
    assert (held, left) == ([first, [*range(RUN + 2, 2 * RUN + 1, 2)], *others], RUN // 2)


def test_the_end_of_a_run_is_found_without_a_look_at_what_follows() -> None:
    chunk = Chunk(0, 1)
    chunk.extend([1, 2, *range(4, 1000, 2)])
    chunk.slots = Slots("h", chunk.loose())
    assert chunk.run_length(0, 1000) == 2
    assert Slots.looks <= 4


def test_whether_a_message_is_out_is_known_by_a_few_looks_at_the_runs() -> None:
    queue = alternating(RUN, RUNS)
    end = RUN * RUNS
    runs = queue.take_out(range(1, end + 1), RUNS * _RUN_WEIGHT).held
    assert (len(runs), queue.held_count) == (RUNS, end)
    for message_id in (1, RUN, RUN + 1, end):
        assert message_id in queue
        assert queue.withdraw((message_id,)).left == 1
    ComparedId.comparisons = 0
    assert ComparedId(end + 1) not in queue
    assert ComparedId.comparisons <= 40, "of 100 runs"
    for run in runs[::2]:
        queue.removed(run, "purged")
    assert (len(queue), 1 in queue, RUN + 1 in queue) == (end // 2, False, True)
