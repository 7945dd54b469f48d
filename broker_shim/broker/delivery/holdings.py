"""The messages that one consumer holds of its queue, and how that ends, for all protocols."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from broker_shim.broker.delivery.delivery_locks import ConsumerLocks
from broker_shim.broker.delivery.rejection import Rejection
from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.broker.queues.selective_cursor import Consumer
from broker_shim.broker.settlement import OnRemoved
from broker_shim.broker.virtual_host import Broker
from broker_shim.completion import OnComplete
from broker_shim.errors import StoreError
from broker_shim.store.interface import Annotations


class ConsumerHoldings:
    """The messages that a consumer holds; most methods end that. On the loop's thread only.

    It knows its consumer by name, and by what takes a message back: the consumer has this, and each
    that ends without `locks.close` would be a cycle, which only Python's collector finds.

    Attributes:
        locks: How long the consumer has each of them.
    """

    def __init__(
        self, broker: Broker, queue: QueueDispatch, holder: str, take_back: Callable[[int], None]
    ) -> None:
        self._broker, self._queue, self._holder = broker, queue, holder
        self.locks = ConsumerLocks(broker.lock_timer, queue, take_back)
        self._calls, self._metrics = broker.calls, broker.metrics
        self._settlement = broker.settlement

    def accept(self, message_ids: Sequence[int], on_done: OnRemoved) -> None:
        """Take accepted messages off their queue; `on_done` is told of some at a time."""
        self.locks.end(message_ids)

        def done(ids: Sequence[int], outcomes: Sequence[StoreError | None]) -> None:
            self._metrics.accepted += [*outcomes].count(None)
            self.forget(ids)
            on_done(ids, outcomes)

        self._settlement.remove(message_ids, self._queue.name, self._holder, done)

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

        rejection = Rejection(self._broker, self._queue, message_id, self._holder, reason)
        rejection.run(consumer, done)

    def give_back(
        self,
        message_id: int,
        *,
        failed: bool,
        on_done: OnComplete | None = None,
        annotations: Annotations | None = None,
    ) -> None:
        """Make a message available again. See `Settlement.give_back`."""
        self.locks.end((message_id,))
        self._settlement.give_back(
            message_id,
            self._queue.name,
            self._holder,
            failed=failed,
            on_done=on_done,
            annotations=annotations,
        )

    def forget(self, message_ids: Sequence[int]) -> None:
        """Let the content of messages go from memory."""
        self._calls.messages.forget(message_ids)
