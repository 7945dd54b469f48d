"""The messages that one consumer holds of its queue, and how that ends, for all protocols."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from broker_shim.broker.delivery.delivery_locks import ConsumerLocks
from broker_shim.broker.delivery.rejection import Rejection
from broker_shim.broker.flow.dead_letters import DeadLetters
from broker_shim.broker.flow.served_queues import ServedQueues
from broker_shim.broker.flow.settlement import OnRemoved, Settlement
from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.broker.queues.selective_cursor import Consumer
from broker_shim.errors import StoreError
from broker_shim.store.interface import Annotations
from sparkstore.operations.bulk import RUN_IDS


class ConsumerHoldings:
    """The messages that a consumer holds; most methods end that. On the loop's thread only.

    It knows its consumer by name, and by what takes a message back: the consumer has this, and each
    that ends without `locks.close` would be a cycle, which only Python's collector finds.

    Attributes:
        served: The queues of the virtual host.
        queue: The one that the messages are on.
        holder: The name by which the store knows the consumer.
        settlement: Makes durable what the consumer decides.
        locks: How long the consumer has each of them.
    """

    def __init__(
        self,
        served: ServedQueues,
        settlement: Settlement,
        dead_letters: DeadLetters,
        queue: QueueDispatch,
        holder: str,
        locks: ConsumerLocks,
    ) -> None:
        self.served, self.queue, self.holder, self.locks = served, queue, holder, locks
        self.settlement, self._dead_letters = settlement, dead_letters
        self._metrics = served.metrics

    def accept(self, message_ids: Sequence[int], on_done: OnRemoved) -> None:
        """Take accepted messages off their queue; `on_done` is told of some at a time."""
        self.locks.end(message_ids)

        def done(ids: Sequence[int], outcomes: Sequence[StoreError | None]) -> None:
            self._metrics.accepted += [*outcomes].count(None)
            on_done(ids, outcomes)

        self.settlement.remove(message_ids, self.queue.name, self.holder, done)

    def reject(
        self,
        consumer: Consumer,
        reason: Mapping[str, str],
        message_ids: Sequence[int],
        on_done: OnRemoved,
    ) -> None:
        """Reject messages: they go to the dead letters, or leave the store.

        Args:
            consumer: The consumer that holds them.
            reason: What its client said of why: condition, description.
            message_ids: The messages, of which a turn of the loop takes `RUN_IDS`.
            on_done: Told of some at a time: that it is durable, or refused.
        """
        some, rest = message_ids[:RUN_IDS], message_ids[RUN_IDS:]
        self.locks.end(some)

        def done(ids: Sequence[int], outcomes: Sequence[StoreError | None]) -> None:
            self._metrics.rejected += [*outcomes].count(None)
            on_done(ids, outcomes)

        self.rejection(some, reason).run(consumer, done)
        if rest:
            self.served.later(0.0, partial(self.reject, consumer, reason, rest, on_done))

    def rejection(self, message_ids: Sequence[int], reason: Mapping[str, str]) -> Rejection:
        """Make the rejection of messages, with what their client said of why."""
        parts = self.served, self.settlement, self._dead_letters
        return Rejection(*parts, self.queue, message_ids, self.holder, reason)

    def give_back(
        self,
        message_ids: Sequence[int],
        on_done: OnRemoved | None = None,
        *,
        failed: bool,
        annotations: Annotations | None = None,
    ) -> None:
        """Make messages available again. See `Settlement.give_back`."""
        self.locks.end(message_ids)
        self.settlement.give_back(
            message_ids,
            self.queue.name,
            self.holder,
            failed=failed,
            on_done=on_done,
            annotations=annotations,
        )

    def released(self, message_ids: Sequence[int], *, failed: bool) -> None:
        """Let messages wait again that a transaction has given back."""
        self._metrics.released += len(message_ids)
        self.settlement.released(message_ids, self.queue, failed=failed)
