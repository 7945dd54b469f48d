"""How a link on which we receive answers, if it may be resumed: what was stored is stored once.

That is a link of tier 2; of a lower one all of this is true as long as the broker lives. There it
is done only for a link that lives longer than its session, that is resumed, or whose mode is
second. For others it is enough to note what was stored when nobody was there to be told.

A delivery's enqueue and the note that it is accepted are one transaction of the store, so after a
crash a delivery that was stored is known as stored. A sender that attaches again names what it has
not settled: what we know of it as accepted it settles without sending it, the rest it sends.

When is the note forgotten?
- As soon as the sender has provably read our answer (`links.termini.proof`): dispositions that
  wait are written before each flow, so the stream has them in that order.
- When the sender settles, on a link of rcv-settle-mode second: we say accepted, unsettled; it
  settles; then we forget. One that has read the answer and does not settle (fe2o3-amqp 0.18 never
  does) is settled by us: it knows the outcome, and waiting for it would fill our memory.
- When it attaches again and does not name the tag, or uses the tag again: it has settled it.

A note is forgotten at once, and by the first frame of a new delivery of its tag at the latest. Else
a sender whose connection is lost within that one, or before it was refused, would be told that it
is stored. One case cannot be told apart from the delivery before of that tag, if its answer is not
proved read: a delivery none of whose frames arrived, or whose first frame a crash took back. So a
sender should not use a tag again as soon as it is free (AMQP 2.6.12: unique among all that either
end could take for unsettled).
"""

from __future__ import annotations

from collections.abc import Sequence

from broker_shim.broker.storage.store_puts import Along
from broker_shim.completion import OnComplete, nobody
from broker_shim.durability import TerminusDurability
from broker_shim.errors import StoreError
from broker_shim.links import LinkEndpoint
from broker_shim.links.termini.proof import Answers
from broker_shim.links.termini.terminus import DeliveryState
from broker_shim.listener_1_0.connections.links import Links
from broker_shim.listener_1_0.outcomes import ACCEPTED
from broker_shim.protocol_1_0.links.link import Delivery, TransferPiece
from broker_shim.protocol_1_0.links.receiver import ReceiverLink
from broker_shim.protocol_1_0.links.resumption import is_outcome
from broker_shim.store.interface import TransactionContext

STORED = {"outcome": "accepted"}
"""What is known of a delivery that is on its queues."""


class ReceivedDeliveries:
    """The deliveries that one link got and remembers. On the loop's thread only."""

    def __init__(self, links: Links, endpoint: LinkEndpoint, link: ReceiverLink) -> None:
        self._links, self._endpoint, self._link = links, endpoint, link
        self._answers = Answers()

    def holds(self, tag: bytes) -> bool:
        """Whether a delivery was stored, and is remembered."""
        return self._endpoint.terminus.unsettled.get(tag) is not None

    def is_known(self, piece: TransferPiece) -> bool:
        """Whether a delivery was stored before, to be read past; a new one begins here."""
        delivery = piece.delivery
        if delivery.is_resumed and delivery.is_settled and is_outcome(delivery.remote_state):
            self.settled(delivery.tag)  # its sender knows how it ended, and tells by the transfer
            return True
        if not (delivery.is_resumed and self.holds(delivery.tag)):
            if not delivery.is_resumed:
                self.started(delivery.tag)
            return False
        if piece.is_last and delivery.is_settled:
            self.settled(delivery.tag)
        return True

    def started(self, tag: bytes) -> None:
        """Note a delivery that has begun: its tag stands for no other any more."""
        self._answers.forget(tag)
        self._answers.started()
        proved = self._answers.proved()
        self._link.settle(proved, ACCEPTED)
        self._forget([tag, *proved])

    def granted(self, credit: int) -> None:
        """Write what was answered, before the flow that is written next."""
        self._link.port.flush()
        self._answers.granted(credit)

    @property
    def is_durable(self) -> bool:
        """Whether what is noted is to survive the broker."""
        return self._endpoint.terminus.durability is TerminusDurability.UNSETTLED_STATE

    def remember(self, tag: bytes, state: DeliveryState | None) -> None:
        """Remember this of a delivery as long as the terminus lives and the broker does."""
        self._links.registry.remembered(self._endpoint, tag, state)

    def awaited(self, on_done: OnComplete) -> OnComplete:
        """Remember a state of a delivery, and have the next attach wait for that."""
        return self._links.tracked(self._endpoint.terminus, on_done)

    def noting(self, tag: bytes, on_done: OnComplete) -> tuple[Along, OnComplete]:
        """Have a delivery noted as accepted, in the transaction that enqueues it.

        Memory says so only when that is committed, and before the next attach can ask: a message
        whose enqueue was refused must be sent again.

        Args:
            tag: Of the delivery.
            on_done: To be called when all of it is durable, or refused.

        Returns:
            What is to be done in the transaction, and what to call at its end instead.
        """
        registry, is_noted = self._links.registry, False

        def note(transaction: TransactionContext) -> None:
            nonlocal is_noted  # not if the message is on no queue
            is_noted = registry.remember(self._endpoint, tag, STORED, nobody, transaction)

        def done(error: StoreError | None) -> None:
            if error is None and (is_noted or not self.is_durable):
                registry.remembered(self._endpoint, tag, STORED)
            on_done(error)

        return note, self._links.tracked(self._endpoint.terminus, done)

    def accept(self, delivery: Delivery) -> None:
        """Tell the sender that its delivery is stored, and await that it has read so."""
        delivery.answer(ACCEPTED)
        self._answers.answered(delivery.tag)

    def settled(self, *tags: bytes) -> None:
        """Forget deliveries that their sender has forgotten."""
        for tag in tags:
            self._answers.forget(tag)
        self._forget(tags)

    def _forget(self, tags: Sequence[bytes]) -> None:
        self._links.registry.settle(self._endpoint, tags)
