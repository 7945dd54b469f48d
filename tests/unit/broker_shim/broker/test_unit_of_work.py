"""A unit of work whose decisions are cut: their order, and what that costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from broker_shim.broker.flow.served_queues import ServedQueues
from broker_shim.completion import OnComplete, nobody
from tests.support.amqp.bench import Bench
from tests.support.stores.stores import RecordedMessageStore


class Decision:
    """Some numbers; counts how often it is compared with another, and lists what is undone."""

    comparisons = 0

    def __init__(self, numbers: list[int], undone: list[int]) -> None:
        self.numbers, self.numbers_undone = numbers, undone

    def __len__(self) -> int:
        return len(self.numbers)

    def __eq__(self, other: object) -> bool:
        Decision.comparisons += 1
        return self is other

    __hash__ = object.__hash__

    def cut(self, count: int) -> Decision:
        rest = Decision(self.numbers[count:], self.numbers_undone)
        del self.numbers[count:]
        return rest

    @property
    def place(self) -> tuple[str, Sequence[int]]:
        return "q", self.numbers

    def operations(self, served: ServedQueues) -> list[Any]:  # noqa: ARG002
        return []

    def committed(self, served: ServedQueues) -> None:
        pass

    def promised(self) -> None:
        pass

    def undone(self, on_done: OnComplete) -> None:
        self.numbers_undone.extend(self.numbers)
        on_done(None)


def test_decisions_that_are_cut_to_pieces_keep_their_order_and_are_never_searched() -> None:
    unit, undone = Bench(RecordedMessageStore([])).broker.unit_of_work(), list[int]()
    decisions = [Decision([*range(first, first + 100)], undone) for first in range(0, 500, 100)]
    for decision in decisions:
        unit.settle(decision)
    Decision.comparisons = 0
    for decision in decisions:
        unit.parted(decision, decision.cut(90))
        front = decision
        while len(front) > 1:
            rest = front.cut(1)
            unit.parted(front, rest)
            front = rest
    unit.undo(nobody)
    assert undone == [*range(500)]
    assert Decision.comparisons == 0
    unit.parted(decisions[0], Decision([7], undone))  # it is over
    assert unit.is_empty
