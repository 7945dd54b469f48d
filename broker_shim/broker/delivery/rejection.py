"""Rejected messages: how they leave their queue.

They go to the queue's dead letters in one transaction of the store, with why and whence in the
annotations of their entries there. Where the queue says nothing of dead letters, they go likewise
where the queue's alternate exchange routes them (`QueueArguments.reject_exchange`). Where there is
neither, they go off their queue, and stay in history.

Why one message keeps no other: if the store refuses a transaction, each half of its messages is
rejected again, in a transaction of its own, down to the message that is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from broker_shim.broker.flow.dead_letters import DeadLetters
from broker_shim.broker.flow.served_queues import ServedQueues
from broker_shim.broker.flow.settlement import OnRemoved, Settlement
from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.broker.queues.selective_cursor import Consumer
from broker_shim.broker.storage.loop import wall_us
from broker_shim.completion import OnComplete
from broker_shim.errors import InvalidRequest, StoreError
from sparkstore.core.annotations import REJECTED, Death
from sparkstore.core.state_machine.call_values import DequeueCall, EnqueueCall
from sparkstore.operations.bulk import BulkStep, buried, rerouted
from sparkstore.operations.entry_runs import EntryRun, runs_of


class Rejection:
    """Rejected messages of one queue on their way off it.

    Attributes:
        target: The dead-letter queue; None if there is none for them.
        exchange: The alternate exchange that they go to instead; None if they go to none.
    """

    def __init__(
        self,
        served: ServedQueues,
        settlement: Settlement,
        dead_letters: DeadLetters,
        queue: QueueDispatch,
        message_ids: Sequence[int],
        holder: str,
        reason: Mapping[str, str],
    ) -> None:
        """Say who rejected them, and what was told of why: condition, description."""
        self._served, self._queue, self._message_ids = served, queue, message_ids
        self._calls, self._settlement, self._dead_letters = served.calls, settlement, dead_letters
        self._holder, self._reason = holder, reason
        self._steps: list[BulkStep] = []
        self.target = queue.arguments.dead_letter_queue_of(queue.name, rejected=True)
        self.exchange = queue.arguments.reject_exchange(queue.name)

    def steps(self) -> list[BulkStep]:
        """Make the store's steps of the rejection, by what is true now.

        Raises:
            StoreError: Where a message goes depends on its header, which cannot be read now; or it
                is to go somewhere, and has no entry here: nothing takes it off its queue then.
        """
        name, now_us = self._queue.name, wall_us()  # one: then their annotations are alike
        runs = [*runs_of(self._calls.entries(name), self._message_ids)]
        if runs or not self._steps:
            self._steps = [step for run in runs for step in self._steps_of(run, now_us)]
            on_queue = {message_id for run in runs for message_id in run.message_ids}
            gone = [i for i in self._message_ids if i not in on_queue]
            if gone and (self.target is not None or self.exchange is not None):
                message = f"message {gone[0]} has no entry on {name!r} here: it stays where it is"
                raise InvalidRequest(message)  # the log tells it: see `Settlement.insist`
            if gone:  # with their queue: the store says so
                self._steps.append(DequeueCall(gone, name, self._holder, {"outcome": REJECTED}))
        return self._steps

    def _steps_of(self, run: EntryRun, now_us: int) -> Iterator[BulkStep]:
        reason = (self._reason.get("condition"), self._reason.get("description"))
        death = Death(self._queue.name, REJECTED, run.delivery_count + 1, now_us, *reason)
        if self.exchange is not None:
            for targets, part in run.parts(self._routes(self.exchange, run)):
                yield from rerouted(death, self.exchange, dict(targets), part, self._holder)
            return
        dead = {} if self.target is None else self._calls.entries(self.target)
        for is_there, part in run.parts([message_id in dead for message_id in run.message_ids]):
            yield from buried(death, self.target, part, is_on_target=is_there, holder=self._holder)

    def _routes(self, exchange: str, run: EntryRun) -> list[tuple[tuple[str, bool], ...]]:
        """The queues that each message goes to, with whether it has it already."""
        name, alternates = self._queue.name, self._served.alternates
        headers = ((i, self._calls.header(i)) for i in run.message_ids)
        return [(*alternates(exchange, header, i, name).items(),) for i, header in headers]

    def make_target(self, on_done: OnComplete) -> None:
        """Have the dead-letter queue, if there is to be one."""
        self._dead_letters.make_queue(self.target, on_done)

    def is_done(self) -> None:
        """Put the messages, which are durable there now, on their target's queue."""
        for step in self._steps:
            if isinstance(step, EnqueueCall):
                self._served.brought(step)
            elif isinstance(step, DequeueCall):
                self._dead_letters.note(step)

    def _leave(self, on_done: OnComplete) -> None:
        """Have the store reject the messages, once."""

        def made(error: StoreError | None) -> None:
            if error is not None:
                on_done(error)
                return
            try:
                steps = self.steps()
            except StoreError as reason:
                on_done(reason)
                return
            self._calls.transact(steps, on_done)

        self.make_target(made)

    def run(self, consumer: Consumer, on_done: OnRemoved) -> None:
        """Reject the messages, as often as it takes.

        What the store refuses is available again, but not for the consumer that rejected it.

        Args:
            consumer: Who rejected them.
            on_done: Called some times, until it was told of each: with messages, and what came of
                them: None once that is durable.
        """
        message_ids, queue = self._message_ids, self._queue

        def done(error: StoreError | None) -> None:
            if error is not None and len(message_ids) > 1:
                middle = len(message_ids) // 2
                for half in (message_ids[:middle], message_ids[middle:]):
                    self._of(half).run(consumer, on_done)
                return
            if self._served.serves(queue):
                entry = self._calls.entry(queue.name, message_ids[0])
                if error is not None and entry is not None and entry.acquired_by == self._holder:
                    queue.refuse(message_ids[0], consumer)
                    give_back = self._settlement.give_back
                    give_back(message_ids, queue.name, self._holder, failed=True)
                else:
                    queue.removed(message_ids)
            if error is None:
                self.is_done()
            on_done(message_ids, [error] * len(message_ids))

        what = ("rejection on %r of %d messages", queue.name, len(message_ids))
        self._settlement.insist(self._leave, done, what)

    def _of(self, message_ids: Sequence[int]) -> Rejection:
        parts = self._served, self._settlement, self._dead_letters, self._queue
        return Rejection(*parts, message_ids, self._holder, self._reason)
