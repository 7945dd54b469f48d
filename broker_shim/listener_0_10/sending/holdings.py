"""What one consumer of a session holds of its queue, and how that ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker_shim.broker.dead_letters import Rejection
from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.broker.queues.selective_cursor import Consumer
from broker_shim.broker.virtual_host import Broker
from broker_shim.completion import OnComplete
from broker_shim.errors import StoreError


class ConsumerHoldings:
    """See above: each of its methods ends it for some messages. On the loop's thread only.

    Attributes:
        holder: What the store knows the consumer by.
    """

    def __init__(self, broker: Broker, queue: QueueDispatch, holder: str) -> None:
        self._broker, self._queue, self.holder = broker, queue, holder

    def accept(
        self, message_ids: Sequence[int], on_done: Callable[[Sequence[StoreError | None]], None]
    ) -> None:
        """They are the client's: off their queue, durably; `on_done` is told of some at a time."""

        def done(ids: Sequence[int], outcomes: Sequence[StoreError | None]) -> None:
            self._broker.metrics.accepted += sum(each is None for each in outcomes)
            self.forget(ids)
            on_done(outcomes)

        self._broker.settlement.remove(message_ids, self._queue.name, self.holder, done)

    def reject(self, message_id: int, text: str, consumer: Consumer, on_done: OnComplete) -> None:
        """Nobody is to have it of this queue: it goes to the dead letters, or leaves the store."""

        def done(error: StoreError | None) -> None:
            self._broker.metrics.rejected += error is None
            on_done(error)

        told = {"description": text} if text else {}
        Rejection(self._broker, self._queue, message_id, self.holder, told).run(consumer, done)

    def give_back(
        self,
        message_id: int,
        *,
        failed: bool,
        on_done: OnComplete | None = None,
        delay_s: float = 0.0,
    ) -> None:
        """It is available again."""
        give_back, queue = self._broker.settlement.give_back, self._queue.name
        give_back(message_id, queue, self.holder, failed=failed, on_done=on_done, delay_s=delay_s)

    def forget(self, message_ids: Sequence[int]) -> None:
        """Their content need not stay in memory."""
        self._broker.calls.messages.forget(message_ids)
