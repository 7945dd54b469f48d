"""Messages that may not stay on their queue: how a rejected one leaves it, and what is told of all.

A message dies expired, delivered too often (`bulk`) or rejected (here). It goes to its queue's dead
letters in one transaction of the store, with why and whence in the annotations of its entry there.
Where the queue says nothing of dead letters, a rejected message goes likewise where the queue's
alternate exchange routes it (`QueueArguments.reject_exchange`). Where there is neither, it goes off
its queue, and stays in history.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from broker_shim.broker.exchanges.alternates import RoutingHost, alternate_queues
from broker_shim.broker.metrics import Metrics
from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.broker.queues.selective_cursor import Consumer
from broker_shim.broker.settlement import Settlement
from broker_shim.completion import OnComplete
from broker_shim.errors import StoreError
from broker_shim.store.interface import Entry, Queue
from sparkstore.core.annotations import Death
from sparkstore.core.queue_arguments import EXPIRED, OVER_DELIVERED, REJECTED
from sparkstore.operations.bulk import Dequeue, Enqueue, buried, rerouted

_log = logging.getLogger(__name__)

_QUIET_S = 60.0
"""Of one queue and one reason there is a line so often at most."""
_MAX_LINES = 1_000
"""Queues and reasons that are remembered for that."""
_SAYS = {EXPIRED: "expired", OVER_DELIVERED: "was delivered too often", REJECTED: "was rejected"}


class DeadLetterLog:
    """The count of messages that died, with a line in the log: one, then how many since."""

    def __init__(
        self,
        metrics: Metrics,
        queues: Mapping[str, QueueDispatch],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._metrics, self._queues, self._clock = metrics, queues, clock
        self._said: dict[tuple[str, str], tuple[float, int]] = {}

    def note(self, message_id: int, take: Dequeue) -> None:
        """A message died, durably; its last step tells how."""
        outcome = take.outcome
        reason = outcome.get("reason", outcome["outcome"])
        name = f"died_{reason.replace('-', '_')}"
        setattr(self._metrics, name, getattr(self._metrics, name) + 1)
        self._metrics.dead_lettered += 1
        if take.queue in self._queues:
            self._queues[take.queue].dead_lettered += 1
        key, now_s = (take.queue, reason), self._clock()
        said_s, unsaid = self._said.get(key, (now_s - _QUIET_S, 0))
        if now_s - said_s < _QUIET_S:
            self._said[key] = said_s, unsaid + 1
            return
        if len(self._said) >= _MAX_LINES:
            self._said.clear()
        self._said[key] = now_s, 0
        told = ": ".join(outcome[each] for each in ("condition", "description") if each in outcome)
        where = f"to {outcome['to']!r}" if "to" in outcome else "off the store, history has it"
        _log.info(
            "queue %r: message %d %s%s: it goes %s%s",
            take.queue,
            message_id,
            _SAYS[reason],
            f" ({told[:200]!a})" if told else "",
            where,
            f"; {unsaid} more since the last line" if unsaid else "",
        )


class BurialHost(RoutingHost, Protocol):
    """The virtual host, as far as rejected messages go.

    Attributes:
        dead_letter_log: Told of each message that died.
        settlement: Repeats what the store has not taken.
    """

    dead_letter_log: DeadLetterLog
    settlement: Settlement


class Rejection:
    """A rejected message on its way off its queue.

    Attributes:
        target: The dead-letter queue; None if there is none for it.
        exchange: The alternate exchange that it goes to instead; None if it goes to none.
    """

    def __init__(
        self,
        host: BurialHost,
        queue: QueueDispatch,
        message_id: int,
        holder: str,
        told: Mapping[str, str],
    ) -> None:
        """Say who rejected it, and what was told of why: condition, description."""
        self._host, self._queue, self._message_id = host, queue, message_id
        self._holder, self._told = holder, told
        self._steps: Sequence[Enqueue | Dequeue] = ()
        self._priority = 0
        self.target = queue.arguments.dead_letter_queue_of(queue.name, rejected=True)
        self.exchange = queue.arguments.reject_exchange(queue.name)

    def steps(self) -> list[tuple[int, Enqueue | Dequeue]]:
        """Make the store's steps of the rejection, by what is true now.

        Raises:
            StoreError: Where the message goes depends on its header, which cannot be read now.
        """
        calls, name = self._host.calls, self._queue.name
        entry = calls.entry(name, self._message_id)
        if entry is not None:
            told = (self._told.get("condition"), self._told.get("description"))
            at = time.time_ns() // 1000
            death = Death(name, REJECTED, entry.delivery_count + 1, at, *told)
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
        there = None if target is None else self._host.calls.entry(target, self._message_id)
        is_there = there is not None
        return buried(death, target, entry, is_on_target=is_there, holder=self._holder)

    def _rerouted(self, death: Death, exchange: str, entry: Entry) -> Sequence[Enqueue | Dequeue]:
        header = self._host.calls.header(self._message_id)
        targets = alternate_queues(self._host, exchange, header, self._message_id, self._queue.name)
        return rerouted(death, exchange, targets, entry, self._holder)

    def make_target(self, on_done: OnComplete) -> None:
        """Have the dead-letter queue, if there is to be one."""
        if self.target is None or self.target in self._host.queues:
            on_done(None)
        else:
            self._host.create_queue(Queue(self.target), on_done)

    def is_done(self) -> None:
        """Put the message, which is durable there now, on its target's queue."""
        for step in self._steps:
            if isinstance(step, Dequeue):
                self._host.dead_letter_log.note(self._message_id, step)
            else:
                self._host.arrived(step.queue, self._message_id, self._priority)

    def _leave(self, on_done: OnComplete) -> None:
        """Have the store do it, once."""

        def made(error: StoreError | None) -> None:
            if error is not None:
                on_done(error)
                return
            try:
                steps = self.steps()
            except StoreError as reason:
                on_done(reason)
                return
            self._host.calls.together(steps, on_done)

        self.make_target(made)

    def run(self, consumer: Consumer, on_done: OnComplete) -> None:
        """Do it, repeated as all that consumers decide is; `on_done(None)` when it is durable.

        What the store refuses is available again, but not for the consumer that rejected it.
        """
        message_id, queue = self._message_id, self._queue

        def done(error: StoreError | None) -> None:
            if self._host.queues.get(queue.name) is queue:
                entry = self._host.calls.entry(queue.name, message_id)
                if error is not None and entry is not None and entry.acquired_by == self._holder:
                    queue.refuse(message_id, consumer)
                    give_back = self._host.settlement.give_back
                    give_back(message_id, queue.name, self._holder, failed=True)
                else:
                    queue.removed((message_id,))
            if error is None:
                self.is_done()
            on_done(error)

        what = ("rejection of message %d on %r", message_id, queue.name)
        self._host.settlement.insist(self._leave, done, what)
