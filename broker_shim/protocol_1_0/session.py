"""A session: its handles and links, and what each frame of its channel means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from broker_shim.amqp_1_0.composites import (
    Accepted,
    Attach,
    Begin,
    Composite,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    TransactionalState,
    Transfer,
)
from broker_shim.amqp_1_0.definitions import (
    AmqpError,
    Role,
    SessionError,
)
from broker_shim.amqp_1_0.definitions import ConnectionError as ConnectionCondition
from broker_shim.protocol_1_0.budget import Budget
from broker_shim.protocol_1_0.codec.errors import ProtocolViolation, Scope
from broker_shim.protocol_1_0.codec.sizes import decoded_bytes, kept_state
from broker_shim.protocol_1_0.codec.transfers import WholeDeliveries
from broker_shim.protocol_1_0.links import unsettled_maps
from broker_shim.protocol_1_0.links.events import (
    DispositionMissed,
    DispositionReceived,
    FlowReceived,
    LinkAttached,
    LinkDetached,
    LinkEvent,
    LinkFailed,
)
from broker_shim.protocol_1_0.links.port import OUTGOING_WINDOW, SessionPort
from broker_shim.protocol_1_0.links.receiver import ReceiverLink
from broker_shim.protocol_1_0.links.sender import SenderLink
from broker_shim.protocol_1_0.output import Output
from broker_shim.protocol_1_0.peer_settings import Settings
from broker_shim.protocol_1_0.serial import FreeNumbers
from broker_shim.protocol_1_0.transitions import (
    ENDPOINT,
    EndpointState,
    EndpointStep,
    after_received,
    after_sent,
)


class Session:
    """Our end of a session that the peer began.

    Attributes:
        remote: The peer's begin.
        remote_channel: The peer's number for it.
        channel: The number by which our frames name it.
    """

    def __init__(
        self,
        remote: Begin,
        *,
        remote_channel: int,
        channels: FreeNumbers,
        budget: Budget,
        output: Output,
        tell: Callable[[LinkEvent], None],
        settings: Settings,
    ) -> None:
        self.remote = remote
        self.remote_channel = remote_channel
        self.channel = channels.take()
        self._channels = channels
        self._budget = budget
        remote.properties = None  # nobody reads them
        byte_count = decoded_bytes(remote)
        budget.take(byte_count)
        self._state_bytes = {_BEGIN: byte_count}
        self._output = output
        self._settings = settings
        self._tell = tell
        self._port = SessionPort(self.channel, remote, output, tell, settings)
        self._state = EndpointState.BEGUN
        self._links: dict[int, ReceiverLink | SenderLink] = {}
        self._freed: set[int] = set()
        self._rest: Disposition | None = None
        self._failed: dict[ReceiverLink | SenderLink, Error] = {}
        self._is_discarding = False

    @property
    def links(self) -> list[ReceiverLink | SenderLink]:
        """The links that the peer has attached and not detached, in its order."""
        return list(self._links.values())

    @property
    def is_gone(self) -> bool:
        """True once either side ended it, or the connection is over."""
        return not self._port.is_open

    @property
    def is_over(self) -> bool:
        """True once both sides ended it."""
        return self._state is EndpointState.ENDED

    def begin(self, **fields: Any) -> None:
        """Answer the peer's begin; `fields` are more of `Begin`.

        Raises:
            InvalidCommand: It is answered already, or gone; a field does not fit.
        """
        state = after_sent(ENDPOINT, self._state, EndpointStep.ANSWER_SENT)
        self._answer(fields)
        self._state = state
        failed, self._failed = self._failed, {}
        for link, error in failed.items():
            if not link.is_gone:
                self._fail(link, error)

    def discard(self) -> None:
        """Read past all until it is ended: the peer broke it before that can be told."""
        self._is_discarding = True

    def end(self, error: Error | None = None) -> None:
        """End the session, its links with it; or answer the peer's end.

        Raises:
            InvalidCommand: It is ended already.
        """
        if self._state is EndpointState.BEGUN:
            self.begin()
        state = after_sent(ENDPOINT, self._state, EndpointStep.END_SENT)
        if not self._port.is_answered:  # the peer began and ended before we answered
            self._answer({})
        self._port.emit(End(error))
        self._state = state
        self._port.close()
        self._channels.give_back(self.channel)

    def flush(self) -> None:
        """Write the dispositions that wait, and tell of more window if the peer may run short.

        Not as the transfers come: the window then bounds what one `receive_data` can bring, and
        a caller that does not write does not get more.
        """
        if self._port.is_open and self._port.is_answered:
            self._port.flush()
            self._port.open_window()

    def lost(self) -> None:
        """Send nothing any more: the connection is over."""
        self._port.close()

    def receive(self, performative: Composite, payload: bytes) -> None:
        """Take a frame of the peer's on this session's channel, but for its begin and its end.

        Raises:
            ProtocolViolation: What it breaks ends the session or the connection; what ends a link
                was done.
        """
        if self._is_discarding or self._state is EndpointState.END_SENT:
            return  # sent before the peer saw our end (2.5.5, DISCARDING)
        if isinstance(performative, Attach):
            self._check(performative)
            performative.properties = None  # nobody reads them
            byte_count = decoded_bytes(performative)
            self._budget.take(byte_count)
            self._state_bytes[performative.handle] = byte_count
        _RECEIVE[type(performative)](self, performative, payload)

    def receive_deliveries(self, came: WholeDeliveries) -> None:
        """Take deliveries of one link, each of which came whole in one frame.

        What nothing is wrong with is taken together; the rest as the frames that they came in.

        Raises:
            ProtocolViolation: What they break ends the session or the connection.
        """
        if self._is_discarding or self._state is EndpointState.END_SENT:
            return
        while came.tags:
            link, count = self._links.get(came.handle), 0
            if isinstance(link, ReceiverLink) and not (link.is_gone or link in self._failed):
                count = link.received_deliveries(came)
            if not count:
                tag, settled, count = came.tags[0], came.is_settled, 1
                payload = came.encoded[came.starts[0] : came.ends[0]]
                its = Transfer(came.handle, came.first_id, tag, 0, settled, state=came.state)
                self._transfer(its, payload)
            came = came.after(count)

    def received_end(self) -> None:
        """Take the peer's end; the session is over if we had ended it before.

        Raises:
            ProtocolViolation: It had ended it before.
        """
        step = EndpointStep.END_RECEIVED
        self._state = after_received(ENDPOINT, self._state, step, Scope.CONNECTION)
        self._port.close()
        for byte_count in self._state_bytes.values():
            self._budget.give_back(byte_count)

    @property
    def is_unfinished(self) -> bool:
        """True while part of a disposition is still to be told, by `go_on`, before all else."""
        return self._rest is not None

    def go_on(self) -> None:
        """Tell more of a disposition over a range for which there was not enough work left."""
        if self._rest is not None:
            self._disposition(self._rest, b"")

    def _answer(self, fields: dict[str, Any]) -> None:
        self._port.emit(
            Begin(
                remote_channel=self.remote_channel,
                next_outgoing_id=self._port.outgoing.next_id,
                incoming_window=self._port.incoming.left,
                outgoing_window=OUTGOING_WINDOW,
                handle_max=self._settings.max_links - 1,
                **fields,
            )
        )
        self._port.is_answered = True

    def _check(self, attach: Attach) -> None:
        """Check that an attach breaks no rule that would end the session."""
        if attach.handle >= self._settings.max_links:
            text = f"handle {attach.handle}: {self._settings.max_links - 1} is most"
            raise ProtocolViolation(ConnectionCondition.FRAMING_ERROR, text)
        if attach.handle in self._links:
            text = f"handle {attach.handle} is attached already"
            raise ProtocolViolation(SessionError.HANDLE_IN_USE, text, Scope.SESSION)
        if len(attach.name.encode()) + _ANSWER_BYTES > self._output.max_frame_bytes:
            text = "the name of a link does not fit the frames that you take"
            raise ProtocolViolation(AmqpError.FRAME_SIZE_TOO_SMALL, text, Scope.SESSION)

    def _attach(self, attach: Attach, _payload: bytes) -> None:
        kind = SenderLink if Role(attach.role) is Role.RECEIVER else ReceiverLink
        link = self._links[attach.handle] = kind(self._port, attach)
        self._freed.discard(attach.handle)
        if link.handle > self.remote.handle_max:
            text = f"no handle up to {self.remote.handle_max} is free to answer with"
            raise ProtocolViolation(AmqpError.NOT_ALLOWED, text, Scope.SESSION)
        wrong = _wrong_with(attach)
        if wrong is None:
            self._tell(LinkAttached(link))
        else:
            self._fail(link, Error(AmqpError.INVALID_FIELD, wrong))

    def _flow(self, flow: Flow, _payload: bytes) -> None:
        self._port.incoming.note_next_id(flow.next_outgoing_id)
        self._port.outgoing.note_window(flow.next_incoming_id, flow.incoming_window)
        if flow.handle is not None:
            link = self._link(flow.handle)
            if not (link.is_gone or link in self._failed):
                link.received_flow(flow)
                self._tell(FlowReceived(link))
        elif _says_of_link(flow):
            text = "a flow without a handle that tells of a link"
            raise ProtocolViolation(AmqpError.INVALID_FIELD, text, Scope.SESSION)
        elif flow.echo and self._port.is_answered:
            self._port.flow()
        self._port.pump()

    def _transfer(self, transfer: Transfer, payload: bytes) -> None:
        self._port.incoming.take()
        link = self._link(transfer.handle)
        if link in self._failed:
            return
        if link.is_gone:
            if link.is_errant():
                text = "transfers on a link that was detached"
                raise ProtocolViolation(SessionError.ERRANT_LINK, text, Scope.SESSION)
        elif isinstance(link, SenderLink):
            self._fail(link, Error(AmqpError.NOT_ALLOWED, "a transfer from a receiver"))
        else:
            try:
                link.received_transfer(transfer, payload)
            except ProtocolViolation as violation:
                if violation.scope is not Scope.LINK:
                    raise
                self._fail(link, violation.error)

    def _disposition(self, disposition: Disposition, _payload: bytes) -> None:
        """Take as much of a disposition's range as there is work left; `go_on` takes the rest."""
        disposition.state = kept_state(disposition.state)
        first = disposition.first
        last = first if disposition.last is None else disposition.last
        ours = Role(disposition.role) is Role.RECEIVER
        share = _ACCEPTED_A_PIECE if ours and isinstance(disposition.state, Accepted) else 1
        changed, delivery_count, rest = self._port.disposed(
            first,
            last,
            disposition.state,
            ours=ours,
            settled=disposition.settled,
            most=max(1, self._budget.work_left) * share,
        )
        self._budget.work_left -= -(-delivery_count // share)
        is_within = isinstance(disposition.state, TransactionalState)
        if is_within and self._port.has_left(first, last):
            self._tell(DispositionMissed(disposition.state))
        self._rest = None if rest is None else replace(disposition, first=rest, last=last)
        if changed:
            runs, lengths = tuple(changed), tuple(map(len, changed))
            state, is_settled = disposition.state, disposition.settled
            self._tell(DispositionReceived(runs, state, is_settled, lengths))

    def _detach(self, detach: Detach, _payload: bytes) -> None:
        if detach.handle in self._freed:
            return  # fe2o3-amqp 0.18 answers a refused attach with two: nothing is to be ended
        link = self._link(detach.handle)
        del self._links[detach.handle]
        self._freed.add(detach.handle)
        self._budget.give_back(self._state_bytes.pop(detach.handle))
        link.received_detach()
        self._tell(LinkDetached(link, detach.closed, detach.error))

    def _link(self, handle: int) -> ReceiverLink | SenderLink:
        link = self._links.get(handle)
        if link is None:
            text = f"handle {handle} is not attached"
            raise ProtocolViolation(SessionError.UNATTACHED_HANDLE, text, Scope.SESSION)
        return link

    def _fail(self, link: ReceiverLink | SenderLink, error: Error) -> None:
        if not self._port.is_answered:
            self._failed[link] = error  # told after our begin; until then the link is read past
            return
        link.fail(error)
        self._tell(LinkFailed(link, error))


_BEGIN = -1
"""Stands for the begin among the handles whose bytes are remembered."""

_ACCEPTED_A_PIECE = 8
"""Deliveries whose acceptance is a piece of work, as most are decided as one; of other outcomes,
and of what the peer sent, it is one."""

_ANSWER_BYTES = 128
"""What an attach without termini takes beside its name, at most."""


def _says_of_link(flow: Flow) -> bool:
    """Tell whether a flow has a field that must not be set without a handle (2.7.4)."""
    fields = (flow.delivery_count, flow.link_credit, flow.available, flow.properties)
    return flow.drain or any(field is not None for field in fields)


def _wrong_with(attach: Attach) -> str | None:
    """Return the reason why a link cannot be attached at all; None if it can."""
    if attach.source is None and attach.target is None:
        return "an attach needs a source or a target"
    if Role(attach.role) is Role.SENDER and attach.initial_delivery_count is None:
        return "an attach of a sender needs an initial-delivery-count"
    return unsettled_maps.wrong_with(attach.unsettled or {})


_RECEIVE: dict[type[Composite], Callable[[Session, Any, bytes], None]] = {
    Attach: Session._attach,  # noqa: SLF001  # a table of its own methods
    Flow: Session._flow,  # noqa: SLF001
    Transfer: Session._transfer,  # noqa: SLF001
    Disposition: Session._disposition,  # noqa: SLF001
    Detach: Session._detach,  # noqa: SLF001
}
