"""Rejected messages: how one leaves its queue.

It goes to the queue's dead letters in one transaction of the store, with why and whence in the
annotations of its entry there. Where the queue says nothing of dead letters, it goes likewise where
the queue's alternate exchange routes it (`QueueArguments.reject_exchange`). Where there is neither,
it goes off its queue, and stays in history.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from broker_shim.broker.flow.dead_letters import DeadLetters
from broker_shim.broker.flow.served_queues import ServedQueues
from broker_shim.broker.flow.settlement import Settlement
from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.broker.queues.selective_cursor import Consumer
from broker_shim.broker.storage.loop import wall_us
from broker_shim.completion import OnComplete
from broker_shim.errors import StoreError
from broker_shim.store.interface import Entry
from sparkstore.core.annotations import REJECTED, Death
from sparkstore.operations.bulk import Dequeue, Enqueue, buried, rerouted


class Rejection:
    """A rejected message on its way off its queue.

    Attributes:
        target: The dead-letter queue; None if there is none for it.
        exchange: The alternate exchange that it goes to instead; None if it goes to none.
    """

    def __init__(
        self,
        served: ServedQueues,
        settlement: Settlement,
        dead_letters: DeadLetters,
        queue: QueueDispatch,
        message_id: int,
        holder: str,
        reason: Mapping[str, str],
    ) -> None:
        """Say who rejected it, and what was told of why: condition, description."""
        self._served, self._queue, self._message_id = served, queue, message_id
        self._calls, self._settlement, self._dead_letters = served.calls, settlement, dead_letters
        self._holder, self._told = holder, reason
        self._steps: Sequence[Enqueue | Dequeue] = ()
        self._priority = 0
        self.target = queue.arguments.dead_letter_queue_of(queue.name, rejected=True)
        self.exchange = queue.arguments.reject_exchange(queue.name)

    def steps(self) -> list[tuple[int, Enqueue | Dequeue]]:
        """Make the store's steps of the rejection, by what is true now.

        Raises:
            StoreError: Where the message goes depends on its header, which cannot be read now.
        """
        calls, name = self._calls, self._queue.name
        entry = calls.entry(name, self._message_id)
        if entry is not None:
            reason = (self._told.get("condition"), self._told.get("description"))
            death = Death(name, REJECTED, entry.delivery_count + 1, wall_us(), *reason)
            self._priority = entry.priority
            self._steps = (
                self._rerouted(death, self.exchange, entry)
                if self.exchange is not None
                else self._buried(death, entry)
            )
        elif not self._steps:  # it went with its queue: the store says so
            self._steps = [Dequeue(name, {"outcome": REJECTED}, self._holder)]
        return [(self._message_id, step) for step in self._steps]

    def _buried(self, death: Death, entry: Entry) -> Sequence[Enqueue | Dequeue]:
        target = self.target
        dead_letter = None if target is None else self._calls.entry(target, self._message_id)
        is_there = dead_letter is not None
        return buried(death, target, entry, is_on_target=is_there, holder=self._holder)

    def _rerouted(self, death: Death, exchange: str, entry: Entry) -> Sequence[Enqueue | Dequeue]:
        header = self._calls.header(self._message_id)
        targets = self._served.alternates(exchange, header, self._message_id, self._queue.name)
        return rerouted(death, exchange, targets, entry, self._holder)

    def make_target(self, on_done: OnComplete) -> None:
        """Have the dead-letter queue, if there is to be one."""
        self._dead_letters.make_queue(self.target, on_done)

    def is_done(self) -> None:
        """Put the message, which is durable there now, on its target's queue."""
        for step in self._steps:
            if isinstance(step, Dequeue):
                self._dead_letters.note(self._message_id, step)
            else:
                self._served.arrived(step.queue, (self._message_id,), self._priority)

    def _leave(self, on_done: OnComplete) -> None:
        """Have the store reject the message, once."""

        def made(error: StoreError | None) -> None:
            if error is not None:
                on_done(error)
                return
            try:
                steps = self.steps()
            except StoreError as reason:
                on_done(reason)
                return
            self._calls.together(steps, on_done)

        self.make_target(made)

    def run(self, consumer: Consumer, on_done: OnComplete) -> None:
        """Reject the message, as often as it takes; `on_done(None)` when that is durable.

        What the store refuses is available again, but not for the consumer that rejected it.
        """
        message_id, queue = self._message_id, self._queue

        def done(error: StoreError | None) -> None:
            if self._served.serves(queue):
                entry = self._calls.entry(queue.name, message_id)
                if error is not None and entry is not None and entry.acquired_by == self._holder:
                    queue.refuse(message_id, consumer)
                    give_back = self._settlement.give_back
                    give_back((message_id,), queue.name, self._holder, failed=True)
                else:
                    queue.removed((message_id,))
            if error is None:
                self.is_done()
            on_done(error)

        what = ("rejection of message %d on %r", message_id, queue.name)
        self._settlement.insist(self._leave, done, what)
