"""What becomes of messages that are given back or removed, whatever the store answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest

from broker_shim.completion import OnComplete, refusal_of
from broker_shim.errors import CorruptData, NotAcquired, StoreError, Unavailable
from broker_shim.store.interface import MessageHeader, Queue
from broker_shim.store.memory import MemoryMessageStore
from sparkstore.core.records import RecordRun, message_dequeued
from sparkstore.core.state_machine.admission import REPLACED
from sparkstore.core.state_machine.call_values import (
    AcquireCall,
    DequeueCall,
    ReleaseCall,
    StoreCall,
)
from tests.support.amqp.memory_broker import MemoryBroker

HEADER = MessageHeader("raw", b"h")


class AnsweringStore(MemoryMessageStore):
    """Answers batches of releases and removals as a test says; no call can cause such answers.

    Attributes:
        answers: One for each such call, of each of its messages; without any it does as it is to.
    """

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[list[StoreError | None]] = []

    def call(self, call: StoreCall, on_complete: OnComplete, *more: Any) -> None:
        """Make a call, or answer."""
        if self.answers and isinstance(call, DequeueCall | ReleaseCall):
            on_complete(refusal_of(self.answers.pop()))
        else:
            super().call(call, on_complete, *more)


class House:
    """A broker with two messages on a queue, which a consumer holds."""

    def __init__(self) -> None:
        self.store = AnsweringStore()
        self.moved = MemoryBroker(self.store)
        self.broker = self.moved.broker
        self.results: list[StoreError | None] = []
        self.create()
        for body in (b"one", b"two"):
            self.broker.publish(HEADER, body, ("q",), self.results.append)
        self.moved.run()
        self.ids = [*self.store.recover().entries["q"]]
        self.broker.queues["q"].withdraw(self.ids)
        self.moved.calls.make_each(AcquireCall(self.ids, "q", "c"), self.results.extend)
        self.moved.run()
        assert self.results == [None] * 5
        self.results.clear()

    def create(self) -> None:
        """Create the queue."""
        arguments = {"max_delivery_count": 0, "dead_letter_queue": "dead"}
        self.broker.create_queue(Queue("q", arguments=arguments), self.results.append)
        self.moved.run()

    def create_again(self) -> None:
        """Delete the queue, and make another of its name."""
        self.broker.destroy_queue("q", self.results.append)
        self.moved.run()
        self.create()

    def give_back(self, *, failed: bool = False) -> None:
        """Give all back, and note what came of it."""
        self.broker.settlement.give_back(
            self.ids, "q", "c", failed=failed, on_done=lambda _ids, ends: self.results.extend(ends)
        )
        self.moved.run()


@pytest.fixture
def house() -> Iterator[House]:
    house = House()
    yield house
    house.moved.close()


def test_a_log_that_is_corrupt_ends_the_broker_whatever_else_a_batch_answers(house: House) -> None:
    corrupt = CorruptData("planted by a test")
    house.store.answers = [[None, corrupt]]
    house.give_back()
    assert house.moved.fatal == [corrupt]
    assert house.results == [None, corrupt]
    assert house.broker.queues["q"].waits(house.ids[0])


@pytest.mark.parametrize("is_refused", [False, True])
def test_what_failed_too_often_leaves_by_one_transaction_and_one_message_keeps_no_other(
    house: House, monkeypatch: pytest.MonkeyPatch, is_refused: bool
) -> None:
    first, second = house.ids
    transact, taken = house.moved.calls.transact, list[Sequence[int]]()

    def counted(calls: Iterable[StoreCall], on_done: OnComplete) -> None:
        calls = [*calls]
        taken.append([i for c in calls if isinstance(c, DequeueCall) for i in c.message_ids])
        if is_refused and first in taken[-1]:  # as while a transaction has a claim on it
            house.moved.calls.answer((on_done, NotAcquired("planted by a test")))
        else:
            transact(calls, on_done)

    monkeypatch.setattr(house.moved.calls, "transact", counted)
    house.give_back(failed=True)
    assert taken == ([house.ids, [first], [second]] if is_refused else [house.ids])
    entries = house.store.recover().entries
    assert [*entries["q"]] == ([first] if is_refused else [])
    assert [*entries["dead"]] == ([second] if is_refused else house.ids)
    assert house.broker.queues["q"].waits(first) == is_refused


def test_of_replaced_messages_that_leave_together_each_is_counted(house: House) -> None:
    removed = message_dequeued(0, "q", house.ids[0], None)._replace(detail=REPLACED)
    house.broker.observer.took(RecordRun(removed, 2))
    assert house.broker.metrics.replaced == 2


@pytest.mark.parametrize("call", ["give back", "remove"])
def test_what_a_deleted_queue_had_is_not_looked_for_on_another_of_its_name(
    house: House, call: str
) -> None:
    unanswered = Unavailable("planted by a test")
    house.store.answers = [[unanswered, unanswered]]
    if call == "remove":
        house.broker.settlement.remove(
            house.ids, "q", "c", lambda _ids, ends: house.results.extend(ends)
        )
        house.moved.run()
    else:
        house.give_back()
    house.create_again()
    house.moved.run_delayed()
    assert house.results == [None] * 4  # the queue's end and its beginning, and each message's
    assert len(house.broker.queues["q"]) == 0
    assert not house.moved.fatal
