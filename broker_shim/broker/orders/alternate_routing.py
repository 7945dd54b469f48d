"""The way of a deleted queue's messages to where its alternate exchange routes them.

The queue is out of use by then, and its messages go some at a time. Each part goes off the queue
and onto others in one transaction of the store. Why nothing is lost that has a way out: the store
destroys the queue after the last part is durable. Killed before that, it has the queue, with what
had not gone yet, and nobody was told that it is deleted. A message that is routed to no queue goes
with its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain

from broker_shim.broker.flow.served_queues import ServedQueues
from broker_shim.broker.flow.settlement import Settlement
from broker_shim.broker.orders.administration import QueueDecider
from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.broker.storage.loop import wall_us
from broker_shim.completion import OnComplete
from broker_shim.errors import StoreError
from broker_shim.store.interface import MessageHeader
from sparkstore.core.annotations import QUEUE_DELETED, Death
from sparkstore.core.state_machine.call_values import EnqueueCall
from sparkstore.operations.bulk import TURN_IDS, BulkStep, rerouted
from sparkstore.operations.entry_runs import EntryRun, runs_of

_log = logging.getLogger(__name__)


def alternate_routing_of(
    served: ServedQueues,
    settlement: Settlement,
    decider: QueueDecider | None,
    queue: QueueDispatch,
) -> Callable[[OnComplete], None] | None:
    """Make the call that moves a queue's messages before it is destroyed; None: nothing does.

    Where another broker decides, that one knows the messages: it destroys the queue, too.
    """
    alternate = queue.arguments.alternate_exchange
    if alternate is not None and decider is not None:
        call, what = partial(decider.destroy, queue.name), ("destroy of queue %r", queue.name)
        return lambda on_done: settlement.insist(call, on_done, what)
    if alternate is None:
        return None
    return AlternateRouting(served, settlement, queue.name, alternate).run


class AlternateRouting:
    """The messages of one queue on their way off it. On the loop's thread only."""

    def __init__(
        self, served: ServedQueues, settlement: Settlement, queue: str, exchange: str
    ) -> None:
        self._served, self._settlement = served, settlement
        self._queue, self._exchange = queue, exchange
        self._parts: Iterator[Sequence[int]] = iter(())
        self._on_done: OnComplete

    def run(self, on_done: OnComplete) -> None:
        """Move all that has a way out; `on_done` when that is durable, and always without error."""
        self._on_done = on_done
        parts = self._served.calls.entry_ids(self._queue)
        firsts = ((part, at) for part in parts for at in range(0, len(part), TURN_IDS))
        self._parts = (part[at : at + TURN_IDS] for part, at in firsts)
        self._go_on()

    def _go_on(self) -> None:
        part = next(self._parts, None)
        if part is None:
            self._on_done(None)
        else:
            self._read(part)

    def _read(self, part: Sequence[int]) -> None:
        headers_read: list[MessageHeader | None] = []

        def call(done: OnComplete) -> None:
            def read(error: StoreError | None, headers: Sequence[MessageHeader | None]) -> None:
                headers_read[:] = headers
                done(error)

            self._served.calls.read_headers(part, read)

        def done(error: StoreError | None) -> None:
            if error is not None:
                self._leave(part, error)
            else:
                self._move(part, headers_read)

        self._settlement.insist(call, done, ("headers of deleted queue %r", self._queue))

    def _move(self, part: Sequence[int], headers: Sequence[MessageHeader | None]) -> None:
        steps = list[BulkStep]()
        routes = dict(zip(part, map(self._routes, part, headers), strict=True))
        for run in runs_of(self._served.calls.entries(self._queue), part):
            for targets, some in run.parts([routes[i] for i in run.message_ids]):
                if targets:
                    steps += self._steps(some, dict(targets))
        if steps:
            self._store(steps, part)
        else:
            self._go_on()

    def _store(self, steps: Sequence[BulkStep], message_ids: Sequence[int]) -> None:
        """Have the store do them, all or none."""

        def moved(error: StoreError | None) -> None:
            if error is not None:
                self._leave(message_ids, error)
                return
            for step in steps:
                if isinstance(step, EnqueueCall):
                    self._served.metrics.moved += len(step.message.message_ids)
                    self._served.brought(step)
            self._go_on()

        def call(done: OnComplete) -> None:
            self._served.calls.transact(steps, done)

        self._settlement.insist(call, moved, ("messages of deleted queue %r", self._queue))

    def _routes(
        self, message_id: int, header: MessageHeader | None
    ) -> tuple[tuple[str, bool], ...]:
        """The queues that a message goes to, with whether it has it already."""
        alternates = self._served.alternates
        routed = header and alternates(self._exchange, header, message_id, self._queue)
        return tuple((routed or {}).items())

    def _steps(self, run: EntryRun, targets: Mapping[str, bool]) -> list[BulkStep]:
        """Make the steps that put messages onto other queues, and take them off this one.

        It does not matter who held them: that consumer has been ended.
        """
        death = Death(self._queue, QUEUE_DELETED, run.delivery_count, wall_us())
        return rerouted(death, self._exchange, targets, run, run.acquired_by)

    def _leave(self, message_ids: Sequence[int], error: StoreError) -> None:
        """Go on with each half after a refusal; a message that is refused alone stays."""
        middle = len(message_ids) // 2
        if middle:
            self._parts = chain((message_ids[:middle], message_ids[middle:]), self._parts)
        else:
            _log.warning("message %d goes with queue %r: %s", message_ids[0], self._queue, error)
        self._go_on()
