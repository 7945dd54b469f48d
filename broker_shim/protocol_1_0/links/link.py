"""Run one end of a link, whichever way it goes, and tell of the deliveries that come on it.

A delivery belongs to its link, and a link keeps its unsettled deliveries, as runs. `port` has what
their session does for them; what makes a link a sender's or a receiver's is in `sender` and
`receiver`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from broker_shim.amqp_1_0.composites import Attach, Detach, Error
from broker_shim.amqp_1_0.definitions import (
    ReceiverSettleMode,
    Role,
    SenderSettleMode,
)
from broker_shim.protocol_1_0.codec.errors import InvalidCommand, Scope
from broker_shim.protocol_1_0.links.runs import Run
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


class Delivery(NamedTuple):
    """A delivery that came on one link, or some of a run that came together, as it came.

    What is cut off the run later changes nothing of it.

    Attributes:
        run: The run that it is of.
        start: Its place among those that the run had when it came.
        length: How many there are.
        remote_state: What their sender told with the transfer.
    """

    run: Run
    start: int = 0
    length: int = 1
    remote_state: Any = None

    @property
    def link(self) -> ReceiverLink:
        """Our end of the link that it is made on."""
        return cast("ReceiverLink", self.run.link)

    @property
    def tag(self) -> bytes:
        """The name of the first on the link."""
        return self.run.tag_at(self.start)

    @property
    def place(self) -> tuple[int, int]:
        """The number of the first on the session, and how many there are."""
        return self.run.number + self.start, self.length

    @property
    def is_settled(self) -> bool:
        """True once the first is forgotten here; of a link that is gone, if it was by then."""
        number = self.run.number + self.start
        if self.link.is_gone:
            return self.run.is_settled_at(number)
        return not self.link.port.is_unsettled(number)

    @property
    def is_resumed(self) -> bool:
        """True if its sender resumed it from an earlier attachment."""
        return self.run.is_resumed

    def part(self, start: int, length: int) -> Delivery:
        """Return some of the deliveries."""
        return self._replace(start=self.start + start, length=length)

    def joined(self, other: Delivery) -> Delivery | None:
        """Return both as one, if the other follows this in the same run."""
        if other.run is not self.run or other.start != self.start + self.length:
            return None
        return self._replace(length=self.length + other.length)

    def dispose(self, state: Any, *, settled: bool = True) -> None:
        """Tell the peer a state of the delivery, and settle it or not, with the next output.

        Nothing is sent of a delivery that is settled already or whose link has ended.

        Raises:
            InvalidCommand: The state cannot be encoded.
        """
        self.link.port.dispose(self.link, (self.place,), state, settled=settled)

    def answer(self, state: Any) -> None:
        """Tell what came of it, and settle it unless its mode is second.

        In rcv-settle-mode second the sender settles first, and we when we hear of that.
        """
        self.dispose(state, settled=not self.run.is_second)


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


class DeliveriesReceived(NamedTuple):
    """An event: deliveries of one link came whole, one after the other, in one read.

    Attributes:
        delivery: All of them, which are new.
        encoded: The bytes of the read; who keeps a payload copies it out.
        starts: Where the payload of each begins.
        ends: Where it ends.
    """

    delivery: Delivery
    encoded: bytes
    starts: Sequence[int]
    ends: Sequence[int]

    def after(self, count: int) -> DeliveriesReceived:
        """Return what is left without the first deliveries."""
        left = self.delivery.part(count, self.delivery.length - count)
        return DeliveriesReceived(left, self.encoded, self.starts[count:], self.ends[count:])

    def piece(self, index: int) -> TransferPiece:
        """Return one of the deliveries as the only piece of it."""
        payload = self.encoded[self.starts[index] : self.ends[index]]
        return TransferPiece(self.delivery.part(index, 1), payload, is_last=True)


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
        snd_settle_mode: The mode that was asked, which is granted.
        rcv_settle_mode: The mode that was asked, which is granted.
        runs: What is unsettled, and what the peer settled while its owner held something with it,
            until that is `acted_on`; kept after a detach, for whoever resumes the link.
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
        self.runs: dict[Any, None] = {}
        self._tags: set[bytes] = set()
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
    def unsettled(self) -> dict[bytes, Any]:
        """The run of each delivery that is not settled, by its tag."""
        return {tag: run for run in self.runs if not run.is_settled for tag in run.tags}

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
        unsettled: Mapping[bytes, Any] | None = None,
        **fields: Any,
    ) -> None:
        """Answer the peer's attach with what is granted.

        Args:
            source: A `Source`, or None.
            target: A `Target` or a `Coordinator`, or None.
            unsettled: What we hold of earlier attachments: tag → our state. As much of it is told
                as fits the peer's frames; the rest makes the link `is_incomplete`.
            fields: More fields of `Attach`: max_message_size, offered_capabilities ...

        Raises:
            InvalidCommand: It is answered already, or gone; a field does not fit.
        """
        state = self._after(EndpointStep.ANSWER_SENT)
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
        self.runs.clear()

    def remember(self, run: Run) -> None:
        """Note deliveries that have begun, and are not settled."""
        self.runs[run] = None
        self._tags.update(run.tags)

    def settled(self, run: Run) -> None:
        """Forget deliveries that were settled here."""
        self.settled_by_peer(run)
        self.runs.pop(run, None)

    def settled_by_peer(self, run: Run) -> None:
        """Forget deliveries that the peer settled, but for what is held with them.

        Their owner hears of it later, or never if the link ends before: then it finds them here.
        """
        run.is_settled = True
        self._tags.difference_update(run.tags)
        if run.held is None:
            self.runs.pop(run, None)

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
        self.port.forget_link(self)

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
