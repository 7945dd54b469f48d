"""What a client decided about a delivery in a transaction, and what becomes of it at the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from broker_shim.completion import OnComplete
from broker_shim.embedded.queue import QueueDispatch
from broker_shim.embedded.store_calls import Operation
from broker_shim.embedded.taking import Taken
from broker_shim.store.interface import MessageStore, TransactionContext


class Retiring(Protocol):
    """The link that a delivery was sent on.

    Attributes:
        queue: Where its messages are.
        holder: What the store knows it by.
    """

    queue: QueueDispatch
    holder: str

    def retired(self, retirement: Retirement) -> None:
        """It is committed: confirm the outcome, unless the client has settled."""

    def taken_back(self, retirement: Retirement, on_done: OnComplete) -> None:
        """It is rolled back: the client decides again, or nobody does and it is given back."""


@dataclass(slots=True, eq=False)
class Retirement:
    """One delivery within one transaction; until that ends nobody else decides about it.

    Attributes:
        link: That it was sent on; it may have ended meanwhile.
        delivery: Of the protocol.
        taken: Its message.
        state: The outcome that the client chose.
        removes: The outcome takes the message off its queue.
        detail: What history keeps of such an outcome; None for accepted.
        failed: An outcome that gives it back raises its delivery count.
        is_settled: The client has forgotten the delivery.
    """

    link: Retiring
    delivery: Any
    taken: Taken
    state: Any
    removes: bool
    detail: Mapping[str, Any] | None = None
    failed: bool = False
    is_settled: bool = False

    def operation(self) -> Operation:
        """The call of the store that does it."""
        message_id, queue, holder = self.taken.message_id, self.link.queue.name, self.link.holder

        def remove(store: MessageStore, note: OnComplete, transaction: TransactionContext) -> None:
            store.dequeue(message_id, queue, holder, note, transaction, self.detail)

        def release(store: MessageStore, note: OnComplete, transaction: TransactionContext) -> None:
            failed = self.failed
            store.release(message_id, queue, holder, note, transaction, delivery_failed=failed)

        return remove if self.removes else release
