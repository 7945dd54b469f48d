"""What a client decided about a delivery in a transaction, and what becomes of it at the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from broker_shim.amqp_1_0.composites import Accepted, Modified, Rejected, Released
from broker_shim.broker.dead_letters import Rejection
from broker_shim.broker.storage.store_puts import Operation
from broker_shim.completion import OnComplete
from broker_shim.errors import StoreError
from broker_shim.listener_1_0.outcomes import kept_of, rejection
from broker_shim.listener_1_0.sending.outgoing_message import Taken
from broker_shim.protocol_1_0.links.deliveries import Delivery
from broker_shim.store.interface import MessageStore, TransactionContext

if TYPE_CHECKING:
    from broker_shim.broker.virtual_host import Broker
    from broker_shim.listener_1_0.sending.transactional_outcomes import Retiring

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
        rejection: What becomes of the message, if it is rejected.
    """

    link: Retiring
    delivery: Delivery
    taken: Taken
    outcome: Any
    is_settled: bool
    rejection: Rejection | None = None

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

    def operations(self, broker: Broker) -> list[Operation]:
        """The calls of the store that do it, decided on what is true now.

        A dead-letter queue that is not there is created by an earlier call of the store.
        """
        message_id, queue, holder = self.taken.message_id, self.link.queue, self.link.holder
        outcome, failed = self.outcome, self.failed
        if isinstance(outcome, Rejected):
            self.rejection = Rejection(broker, queue, message_id, holder, rejection(outcome))
            self.rejection.make_target(_nothing)  # if that is refused, so is what needs it
            return [broker.calls.operation(*each) for each in self.rejection.steps()]
        kept = None
        if isinstance(outcome, Modified):
            kept = kept_of(broker, queue.name, message_id, outcome)

        def remove(store: MessageStore, note: OnComplete, transaction: TransactionContext) -> None:
            store.dequeue(message_id, queue.name, holder, note, transaction)

        def release(store: MessageStore, note: OnComplete, transaction: TransactionContext) -> None:
            place = (message_id, queue.name, holder, note, transaction)
            store.release(*place, delivery_failed=failed, annotations=kept)

        return [remove if self.removes else release]


def _nothing(_error: StoreError | None) -> None:
    """Whoever needs it is told."""
