"""Run one end of a link, whichever way it goes, and the deliveries made on it.

A delivery belongs to its link, and a link keeps its unsettled deliveries: they are told in one
file. `port` has what their session does for them; what makes a link a sender's or a receiver's
is in `sender` and `receiver`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from broker_shim.amqp_1_0.composites import Attach, Detach, Error
from broker_shim.amqp_1_0.definitions import (
    ReceiverSettleMode,
    Role,
    SenderSettleMode,
)
from broker_shim.protocol_1_0.codec.errors import InvalidCommand, Scope
from broker_shim.protocol_1_0.links.unsettled_maps import fitting
from broker_shim.protocol_1_0.transitions import (
    ENDPOINT,
    EndpointState,
    EndpointStep,
    after_received,
    after_sent,
)

if TYPE_CHECKING:
    from broker_shim.protocol_1_0.links.port import SessionPort
    from broker_shim.protocol_1_0.links.receiver import ReceiverLink


@dataclass(slots=True, eq=False)
class Delivery:
    """A delivery of a message that comes on one link. What we send are `SentRun`s.

    Attributes:
        link: Our end of the link that the delivery is made on.
        tag: The delivery's name on the link.
        message_format: The format that the sender tells; 0 is AMQP's own.
        delivery_id: Its number on the session; None until its first frame was sent.
        byte_count: How many bytes of payload there were so far.
        is_settled: True once it is forgotten here.
        state: What we said of it last.
        remote_state: What the peer said of it last.
        is_resumed: True if its sender resumed it from an earlier attachment.
        is_second: True if its receiver settles it after its sender (rcv-settle-mode second).
    """

    link: ReceiverLink
    tag: bytes
    message_format: int
    delivery_id: int | None = None
    byte_count: int = 0
    is_settled: bool = False
    state: Any = None
    remote_state: Any = None
    is_resumed: bool = False
    is_second: bool = False

    def dispose(self, state: Any, *, settled: bool = True) -> None:
        """Tell the peer a state of the delivery, and settle it or not, with the next output.

        Nothing is sent of a delivery that is settled already or whose link has ended.

        Raises:
            InvalidCommand: The state cannot be encoded.
        """
        self.link.port.dispose(self.link, (self,), state, settled=settled)

    def answer(self, state: Any) -> None:
        """Tell what came of a delivery that we receive, and settle it unless its mode is second.

        In rcv-settle-mode second the sender settles first, and we when we hear of that.
        """
        self.link.port.dispose(self.link, (self,), state, settled=not self.is_second)


@dataclass(slots=True)  # not frozen: one for every message, and that costs 1 µs
class TransferPiece:
    """An event: bytes came of a delivery that we receive.

    Attributes:
        delivery: The delivery that the bytes belong to; it is new with its first piece.
        payload: A copy of our own; it may be empty.
        is_last: True if the delivery is complete with it.
    """

    delivery: Delivery
    payload: bytes
    is_last: bool


@dataclass(slots=True)
class DeliveriesReceived:
    """An event: deliveries of one link came whole, one after the other, in one read.

    Attributes:
        deliveries: They are new, and in the order of their ids.
        encoded: The bytes of the read; who keeps a payload copies it out.
        starts: Where the payload of each begins.
        ends: Where it ends.
    """

    deliveries: list[Delivery]
    encoded: bytes
    starts: list[int]
    ends: list[int]

    def after(self, count: int) -> DeliveriesReceived:
        """Return what is left without the first deliveries."""
        left = self.deliveries[count:], self.encoded, self.starts[count:], self.ends[count:]
        return DeliveriesReceived(*left)

    def piece(self, index: int) -> TransferPiece:
        """Return one of the deliveries as the only piece of it."""
        payload = self.encoded[self.starts[index] : self.ends[index]]
        return TransferPiece(self.deliveries[index], payload, is_last=True)


@dataclass(frozen=True, slots=True)
class DeliveryAborted:
    """An event: the peer gave a delivery up, so its pieces are to be forgotten."""

    delivery: Delivery


class Link:
    """Our end of a link that the peer attached: a `ReceiverLink` or a `SenderLink`.

    A link begins when the peer's attach has come. The caller answers it once (`attach`, `refuse`),
    then both sides may use it until either detaches. All methods belong to the one thread of their
    connection. Commands raise `InvalidCommand` where they cannot be carried out now.

    Attributes:
        port: What the links of the session share that it is attached to.
        remote: The peer's attach.
        handle: The number by which our frames name the link, on its session.
        snd_settle_mode: The mode that we answered.
        rcv_settle_mode: The mode that we answered.
        earlier: Tag → our state of what earlier attachments left unsettled and neither side has
            resumed or settled on this one.
        is_incomplete: True if either attach did not name all that its side holds: nothing but
            resumed deliveries may go until the link was attached again (2.7.3).
        is_closed_here: True once we ended it for good, before the peer did.
    """

    is_receiver: bool

    def __init__(self, port: SessionPort, remote: Attach) -> None:
        self.port = port
        self.remote = remote
        self.handle = port.handles.take()
        self.snd_settle_mode = SenderSettleMode(remote.snd_settle_mode)
        self.rcv_settle_mode = ReceiverSettleMode(remote.rcv_settle_mode)
        self.earlier: dict[bytes, Any] = {}
        self.is_incomplete = remote.incomplete_unsettled
        self._state = EndpointState.BEGUN
        self.is_closed_here = False
        self._is_answered = False
        self._errant_left = 0

    @property
    def name(self) -> str:
        """The name that the peer gave the link; a container uses it once in each direction."""
        return self.remote.name

    @property
    def is_gone(self) -> bool:
        """True once either side detached, or the session ended: nothing more is sent on it."""
        state = self._state  # asked several times for each message
        return not (self.port.is_open and (state is _ACTIVE or state is _BEGUN))

    @property
    def is_answered(self) -> bool:
        """True once the peer's attach was answered."""
        return self._is_answered

    @property
    def is_over(self) -> bool:
        """True once both sides detached."""
        return self._state is EndpointState.ENDED

    def attach(
        self,
        *,
        source: Any = None,
        target: Any = None,
        snd_settle_mode: SenderSettleMode | None = None,
        rcv_settle_mode: ReceiverSettleMode | None = None,
        unsettled: Mapping[bytes, Any] | None = None,
        **fields: Any,
    ) -> None:
        """Answer the peer's attach with what is granted.

        Args:
            source: A `Source`, or None.
            target: A `Target` or a `Coordinator`, or None.
            snd_settle_mode: None grants what was asked.
            rcv_settle_mode: None grants what was asked.
            unsettled: What we hold of earlier attachments: tag → our state. As much of it is told
                as fits the peer's frames; the rest makes the link `is_incomplete`.
            fields: More fields of `Attach`: max_message_size, offered_capabilities ...

        Raises:
            InvalidCommand: It is answered already, or gone; a field does not fit.
        """
        state = self._after(EndpointStep.ANSWER_SENT)
        if snd_settle_mode is not None:
            self.snd_settle_mode = snd_settle_mode
        if rcv_settle_mode is not None:
            self.rcv_settle_mode = rcv_settle_mode
        self._answer(source, target, fields, unsettled or {})
        self._state = state
        self.earlier = dict(unsettled or {})

    def refuse(self, error: Error) -> None:
        """Answer the peer's attach without a terminus, then detach with the reason (2.6.3).

        Raises:
            InvalidCommand: It is answered already, or gone.
        """
        self.attach()
        self.detach(closed=True, error=error)

    def detach(self, *, closed: bool = True, error: Error | None = None) -> None:
        """Leave the session, for good if `closed`; or answer the peer's detach.

        Raises:
            InvalidCommand: It was not attached, or is detached already.
        """
        state = self._after(EndpointStep.END_SENT)
        if not self._is_answered:  # the peer attached and detached before we answered
            self._answer(None, None, {}, {})
        self.is_closed_here = closed and state is EndpointState.END_SENT
        self.port.emit(Detach(self.handle, closed=closed, error=error))
        self._state = state
        self._ended()
        self.port.handles.give_back(self.handle)

    def let_go(self) -> None:
        """Part the link from its deliveries, which know it, when nobody asks for them any more."""

    def fail(self, error: Error) -> None:
        """Detach the link with the reason: the peer broke the protocol on it."""
        if self._state is EndpointState.BEGUN:
            self.refuse(error)
        else:
            self.detach(closed=True, error=error)

    def received_detach(self) -> None:
        """Take the peer's detach; the link is over if we had detached before.

        Raises:
            ProtocolViolation: It had detached before.
        """
        step = EndpointStep.END_RECEIVED
        self._state = after_received(ENDPOINT, self._state, step, Scope.SESSION)
        self._ended()

    def is_errant(self) -> bool:
        """Count a transfer on a link that we detached; return True if it is one too many.

        What the peer sent before it saw our detach is read past. It cannot be more frames than
        the session's window had left when we detached, as news of a wider window come after the
        detach. A frame beyond that is sent against better knowledge (2.6.5, errant-link).
        """
        self._errant_left -= 1
        return self._errant_left < 0

    def _after(self, step: EndpointStep) -> EndpointState:
        """Return the state after a step of ours.

        Raises:
            InvalidCommand: It cannot be taken now.
        """
        if not self.port.is_open:
            raise InvalidCommand("the link's session has ended")
        if not self.port.is_answered:
            raise InvalidCommand("begin the session first")
        if step is _USED and self._state is _ACTIVE:
            return _ACTIVE  # as the table says: the short way
        return after_sent(ENDPOINT, self._state, step)

    def _ended(self) -> None:
        self._errant_left = self.port.incoming.left

    def _answer(
        self, source: Any, target: Any, fields: dict[str, Any], unsettled: Mapping[bytes, Any]
    ) -> None:
        attach = Attach(
            self.remote.name,
            self.handle,
            bool(Role.RECEIVER if self.is_receiver else Role.SENDER),
            self.snd_settle_mode,
            self.rcv_settle_mode,
            source,
            target,
            initial_delivery_count=None if self.is_receiver else 0,
            **fields,
        )
        if unsettled or self.remote.unsettled is not None:  # null says that nothing is resumed
            attach.unsettled = fitting(attach, unsettled, self.port.max_frame_bytes)
            attach.incomplete_unsettled = len(attach.unsettled) < len(unsettled)
            self.is_incomplete |= attach.incomplete_unsettled
        self.port.emit(attach)
        self._is_answered = True


_BEGUN, _ACTIVE, _USED = EndpointState.BEGUN, EndpointState.ACTIVE, EndpointStep.USED
