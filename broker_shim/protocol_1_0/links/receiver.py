"""A link on which we receive: it gives the peer credit and takes deliveries in pieces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from broker_shim.amqp_1_0.composites import Attach, Flow, Target, Transfer
from broker_shim.amqp_1_0.definitions import (
    AmqpError,
    LinkError,
    ReceiverSettleMode,
    SenderSettleMode,
    TerminusDurability,
)
from broker_shim.protocol_1_0.codec.errors import ProtocolViolation, Scope
from broker_shim.protocol_1_0.codec.sizes import kept_state
from broker_shim.protocol_1_0.codec.transfers import WholeDeliveries
from broker_shim.protocol_1_0.links.credit import ReceiverCredit
from broker_shim.protocol_1_0.links.link import (
    DeliveriesReceived,
    Delivery,
    DeliveryAborted,
    Link,
    TransferPiece,
)
from broker_shim.protocol_1_0.links.port import SessionPort
from broker_shim.protocol_1_0.links.resumption import is_outcome
from broker_shim.protocol_1_0.links.runs import Run
from broker_shim.protocol_1_0.links.unsettled_maps import MAX_TAG_BYTES
from broker_shim.protocol_1_0.serial import distance
from broker_shim.protocol_1_0.transitions import EndpointState, EndpointStep


class ReceiverLink(Link):
    """Our end of a link on which the peer sends.

    Nothing of a delivery is kept here but its number and tag: its bytes leave as events. What is
    unsettled is bounded by the credit that the caller gives.

    A resumed delivery (2.6.13) takes no credit: the peer may send it before it got any, and what
    `earlier` names bounds them. Whether senders count them the specification does not say, and
    fe2o3-amqp does not, and goes on counting from its earlier attachment, too. So after the
    attach of a link that may be resumed, and after each resumed delivery, the peer is asked for
    its own count (echo), which is the one that holds (2.6.7).

    """

    is_receiver = True
    port: SessionPort

    def __init__(self, port: SessionPort, remote: Attach) -> None:
        super().__init__(port, remote)
        self._credit = ReceiverCredit(remote.initial_delivery_count or 0)
        self._current: Run | None = None
        self._current_is_settled = False
        self._is_passed_over = False
        self._is_asked = False
        self._max_message_bytes = 0
        self._wants_count = bool(remote.unsettled) or _may_be_resumed(remote.target)

    @property
    def credit(self) -> int:
        """Return how many deliveries the peer may still start."""
        return self._credit.left

    @property
    def is_draining(self) -> bool:
        """True while a drain that we asked for is not answered."""
        return self._credit.is_draining

    def attach(self, *, max_message_size: int | None = None, **fields: Any) -> None:
        """Answer the peer's attach; a message of more than `max_message_size` bytes ends the link.

        The other arguments are those of `Link.attach`.
        """
        super().attach(max_message_size=max_message_size, **fields)
        self._max_message_bytes = max_message_size or 0

    def flow(self, credit: int, *, drain: bool = False, echo: bool = False) -> None:
        """Let the peer start `credit` deliveries from now on, whatever it had.

        To stop a peer, let its credit run out or drain it. A sender on proton 0.40 that gets less
        than it had, while a delivery of its is on its way, sends on without credit and is detached.

        Args:
            credit: How many deliveries the peer may start, below 2³².
            drain: Have it use them at once or give them up.
            echo: Ask it to tell how it stands.

        Raises:
            InvalidCommand: The link is not attached; the credit does not fit.
        """
        self._after(EndpointStep.USED)
        self.port.flow(
            handle=self.handle,
            delivery_count=self._credit.delivery_count,
            link_credit=credit,
            drain=drain,
            echo=echo or self._wants_count,
        )
        self._is_asked |= echo or self._wants_count
        self._wants_count = False
        self._credit.give(credit, drain=drain)

    def dispose(self, deliveries: Sequence[Delivery], state: Any) -> None:
        """Tell one state of many deliveries of this link, each as `Delivery.answer` does."""
        for is_second in (False, True):
            some = [
                delivery.place for delivery in deliveries if delivery.run.is_second is is_second
            ]
            self.port.dispose(self, some, state, settled=not is_second)

    def settle(self, tags: Iterable[bytes], state: Any) -> None:
        """Settle deliveries with a state that the peer is told, as far as they are unsettled."""
        for tag in tags:
            if tag in self._tags:
                run = next(run for run in self.runs if tag in run.tags)
                place = run.number + run.tags.index(tag), 1
                self.port.dispose(self, [place], state, settled=True)

    def received_flow(self, flow: Flow) -> None:
        """Take a flow by which the peer tells how it stands, and answer it if the peer asks."""
        self._credit.note_peer(flow.delivery_count, flow.link_credit)
        self._is_asked = False
        if (flow.echo or self._wants_count) and not self.is_gone and self._is_answered:
            self.flow(self._credit.left, drain=self._credit.is_draining)

    def received_transfer(self, transfer: Transfer, payload: bytes) -> None:
        """Take a frame of a delivery.

        Raises:
            ProtocolViolation: A rule is broken; the scope says whether link or session ends.
        """
        if self._state is EndpointState.BEGUN:  # else it is active: what is gone is read past
            text = "a transfer before the attach was answered, so without credit"
            raise _violation(LinkError.TRANSFER_LIMIT_EXCEEDED, text)
        delivery = self._current
        if delivery is None:
            delivery = self._begin(transfer)
            if delivery is not None:
                delivery.is_second = self._is_second(transfer)
        else:
            self._check_continued(delivery, transfer)
        if delivery is not None:
            self._take(delivery, transfer, payload)

    def received_deliveries(self, came: WholeDeliveries) -> int:
        """Take deliveries that came whole, as far as no rule of `received_transfer` is broken.

        Returns:
            How many were taken; the next, if there is one, is for `received_transfer`.
        """
        if not self._takes_together(came):
            return 0
        most = min(len(came.tags), self.port.incoming.left, self._credit.most)
        count = self._fitting(came, most)
        if count:
            run = Run(self, came.tags[:count], is_settled=came.is_settled)
            run.is_second = self.rcv_settle_mode != ReceiverSettleMode.FIRST
            self.port.incoming.take_many(count)
            self.port.begin_incoming(run, came.first_id)
            self._credit.take(count)
            if not run.is_settled:
                self.remember(run)
            run.remote_state = kept_state(came.state)
            places = came.starts[:count], came.ends[:count]
            delivery = Delivery(run, 0, count, run.remote_state)
            self.port.tell(DeliveriesReceived(delivery, came.encoded, *places))
        return count

    def _fitting(self, came: WholeDeliveries, most: int) -> int:
        """Count the first deliveries of which none breaks a rule by its own tag or size."""
        known, most_bytes = self._tags, self._max_message_bytes or _ANY_SIZE
        new = set[bytes]()
        for at, (tag, start, end) in enumerate(zip(came.tags, came.starts, came.ends, strict=True)):
            is_twice = tag in known or tag in new
            if at == most or is_twice or len(tag) > MAX_TAG_BYTES or end - start > most_bytes:
                return at
            if not came.is_settled:
                new.add(tag)
        return most

    def _takes_together(self, came: WholeDeliveries) -> bool:
        """Return True if no rule is broken that holds for all of them, as it does for the first."""
        mode, last = self.snd_settle_mode, self.port.last_incoming_id
        if self._state is not EndpointState.ACTIVE or self._current is not None:
            return False
        if self._is_passed_over or self.is_incomplete or self.earlier:
            return False
        is_settled = mode == SenderSettleMode.SETTLED
        if mode is not SenderSettleMode.MIXED and came.is_settled is not is_settled:
            return False
        return last is None or distance(last, came.first_id) > 0

    def _take(self, delivery: Run, transfer: Transfer, payload: bytes) -> None:
        if transfer.state is not None:
            delivery.remote_state = kept_state(transfer.state)
        if transfer.aborted:
            self._abort(delivery)
            return
        self._current_is_settled |= transfer.settled is True
        if is_outcome(delivery.state):
            payload = b""  # of a resumed delivery that was taken before: its sender need not know
        delivery.byte_count += len(payload)
        if delivery.byte_count > self._max_message_bytes > 0:
            text = f"a message of more than {self._max_message_bytes} bytes"
            raise _violation(LinkError.MESSAGE_SIZE_EXCEEDED, text)
        if not transfer.more:
            self._complete(delivery)
        piece = Delivery(delivery, remote_state=delivery.remote_state)
        self.port.tell(TransferPiece(piece, payload, not transfer.more))

    def _begin(self, transfer: Transfer) -> Run | None:
        """Return the delivery of a first frame; None if the frame is to be read past."""
        if self._is_passed_over:
            self._is_passed_over = transfer.more and not transfer.aborted
            return None
        tag, delivery_id = transfer.delivery_tag, transfer.delivery_id
        if tag is None or delivery_id is None or len(tag) > MAX_TAG_BYTES:
            text = "a delivery without an id, or without a tag of at most 32 bytes"
            raise _violation(AmqpError.INVALID_FIELD, text)
        if tag in self._tags:
            raise _violation(AmqpError.INVALID_FIELD, f"the tag {tag!r} twice")
        if (
            transfer.rcv_settle_mode == ReceiverSettleMode.SECOND
            and self.rcv_settle_mode == ReceiverSettleMode.FIRST
            and not transfer.settled  # of one that is sent settled the mode is ignored (2.7.5)
        ):
            raise _violation(AmqpError.INVALID_FIELD, "rcv-settle-mode second on a link of first")
        if transfer.resume:
            return self._resume(tag, delivery_id, transfer)
        if self.is_incomplete:
            text = "after an attach with an incomplete unsettled map only resumed deliveries may go"
            raise _violation(AmqpError.ILLEGAL_STATE, text)
        if not self._credit.take():
            raise _violation(LinkError.TRANSFER_LIMIT_EXCEEDED, "a transfer without credit")
        self.earlier.pop(tag, None)  # the sender has settled that one, or its tag would be taken
        return self._started(Run(self, [tag]), transfer, delivery_id)

    def _is_second(self, transfer: Transfer) -> bool:
        """Return True for mode second: a link of first has none such (2.7.5)."""
        if self.rcv_settle_mode == ReceiverSettleMode.FIRST:
            return False
        return transfer.rcv_settle_mode != ReceiverSettleMode.FIRST

    def _resume(self, tag: bytes, delivery_id: int, transfer: Transfer) -> Run | None:
        """Return a delivery that is resumed; what is not unsettled here is read past (2.7.5)."""
        if tag not in self.earlier:
            self._is_passed_over = transfer.more and not transfer.aborted
            self.port.pass_over(delivery_id)
            return None
        delivery = Run(self, [tag], state=self.earlier.pop(tag))
        delivery.is_resumed = True
        return self._started(delivery, transfer, delivery_id)

    def _started(self, delivery: Run, transfer: Transfer, delivery_id: int) -> Run:
        delivery.message_format = transfer.message_format or 0
        self.port.begin_incoming(delivery, delivery_id)
        self.remember(delivery)
        self._current, self._current_is_settled = delivery, False
        return delivery

    def _check_continued(self, delivery: Run, transfer: Transfer) -> None:
        if transfer.delivery_id not in {None, delivery.delivery_id}:
            text = f"delivery-id {transfer.delivery_id} within delivery {delivery.delivery_id}"
            raise _violation(AmqpError.INVALID_FIELD, text)
        if transfer.delivery_tag not in {None, delivery.tag}:
            raise _violation(AmqpError.INVALID_FIELD, "another tag within a delivery")
        if transfer.message_format not in {None, delivery.message_format}:
            raise _violation(AmqpError.INVALID_FIELD, "another message-format within a delivery")

    def _complete(self, delivery: Run) -> None:
        mode, is_settled = self.snd_settle_mode, self._current_is_settled
        if delivery.is_resumed:  # may be settled with any mode: that is what it is resumed for
            self._ask_for_count()
        elif mode is not SenderSettleMode.MIXED and is_settled != (
            mode == SenderSettleMode.SETTLED
        ):
            text = f"settled {is_settled} on a link of snd-settle-mode {mode.name.lower()}"
            raise _violation(AmqpError.INVALID_FIELD, text)
        self._current = None
        if is_settled:
            self.port.forget(delivery)

    def _ask_for_count(self) -> None:
        """Ask for the count once more, after the answer on its way, which may be of before."""
        self._wants_count = True
        if self._is_answered and not self._is_asked:
            self.flow(self._credit.left, drain=self._credit.is_draining)

    def _abort(self, delivery: Run) -> None:
        """Forget a delivery: one that is aborted is settled by that (2.7.5)."""
        self._current = None
        if delivery.is_resumed:
            self._ask_for_count()
        self.port.forget(delivery)
        self.port.tell(DeliveryAborted(Delivery(delivery)))


_ANY_SIZE = 1 << 62


def _may_be_resumed(target: Any) -> bool:
    return isinstance(target, Target) and target.durable != TerminusDurability.NONE


def _violation(condition: str, text: str) -> ProtocolViolation:
    return ProtocolViolation(condition, text, Scope.LINK)
