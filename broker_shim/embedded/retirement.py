"""What a client decided about a delivery in a transaction, and what becomes of it at the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from broker_shim.amqp_1_0.composites import Accepted, Modified, Rejected, Released
from broker_shim.completion import OnComplete
from broker_shim.embedded.outcomes import rejection
from broker_shim.embedded.store_calls import Operation
from broker_shim.embedded.taking import Taken
from broker_shim.protocol_1_0.deliveries import Delivery
from broker_shim.store.interface import MessageStore, TransactionContext

if TYPE_CHECKING:
    from broker_shim.embedded.retiring import Retiring

OUTCOMES = (Accepted, Rejected, Released, Modified)


@dataclass(slots=True, eq=False)
class Retirement:
    """One delivery within one transaction; until that ends nobody else decides about it.

    Attributes:
        link: That it was sent on; it may have ended meanwhile.
        delivery: Of the protocol.
        taken: Its message.
        outcome: What the client chose, one of `OUTCOMES`.
        is_settled: The client has forgotten the delivery.
    """

    link: Retiring
    delivery: Delivery
    taken: Taken
    outcome: Any
    is_settled: bool

    @property
    def removes(self) -> bool:
        """True if the outcome takes the message off its queue; else it is available again."""
        return isinstance(self.outcome, Accepted | Rejected)

    @property
    def failed(self) -> bool:
        """True if an outcome that gives the message back raises its delivery count."""
        return isinstance(self.outcome, Modified) and self.outcome.delivery_failed is True

    @property
    def is_undeliverable(self) -> bool:
        """True if the link must not get the message again."""
        return isinstance(self.outcome, Modified) and self.outcome.undeliverable_here is True

    def operation(self) -> Operation:
        """The call of the store that does it."""
        message_id, queue, holder = self.taken.message_id, self.link.queue.name, self.link.holder
        outcome, failed = self.outcome, self.failed
        detail: Mapping[str, Any] | None = None
        if isinstance(outcome, Rejected):
            detail = rejection(outcome)

        def remove(store: MessageStore, note: OnComplete, transaction: TransactionContext) -> None:
            store.dequeue(message_id, queue, holder, note, transaction, detail)

        def release(store: MessageStore, note: OnComplete, transaction: TransactionContext) -> None:
            store.release(message_id, queue, holder, note, transaction, delivery_failed=failed)

        return remove if self.removes else release
