"""The messages that one consumer holds of its queue, and how that ends, for all protocols."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from broker_shim.broker.delivery.delivery_locks import ConsumerLocks
from broker_shim.broker.delivery.rejection import Rejection
from broker_shim.broker.flow.dead_letters import DeadLetters
from broker_shim.broker.flow.served_queues import ServedQueues
from broker_shim.broker.flow.settlement import OnRemoved, Settlement
from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.broker.queues.selective_cursor import Consumer
from broker_shim.completion import OnComplete
from broker_shim.errors import StoreError
from broker_shim.store.interface import Annotations


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
        self, consumer: Consumer, message_id: int, reason: Mapping[str, str], on_done: OnComplete
    ) -> None:
        """Reject a message: it goes to the dead letters, or leaves the store.

        Args:
            consumer: The consumer that holds it.
            message_id: The id of the message.
            reason: What its client said of why: condition, description.
            on_done: Called when that is durable, or refused.
        """
        self.locks.end((message_id,))

        def done(error: StoreError | None) -> None:
            self._metrics.rejected += error is None
            on_done(error)

        self.rejection(message_id, reason).run(consumer, done)

    def rejection(self, message_id: int, reason: Mapping[str, str]) -> Rejection:
        """Make the rejection of a message, with what its client said of why."""
        parts = self.served, self.settlement, self._dead_letters
        return Rejection(*parts, self.queue, message_id, self.holder, reason)

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
        for message_id in message_ids:
            self.settlement.released(message_id, self.queue, failed=failed)
