"""The channels of one connection: which session each frame is for, and how many there may be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from broker_shim.amqp_1_0.composites import Begin, Composite, End, Error, Transfer
from broker_shim.amqp_1_0.definitions import AmqpError
from broker_shim.amqp_1_0.definitions import ConnectionError as Condition
from broker_shim.protocol_1_0.budget import Budget
from broker_shim.protocol_1_0.codec.errors import ProtocolViolation, Scope
from broker_shim.protocol_1_0.codec.frames import FrameView
from broker_shim.protocol_1_0.codec.transfers import WholeDeliveries
from broker_shim.protocol_1_0.events import Event, SessionBegun, SessionEnded, SessionFailed
from broker_shim.protocol_1_0.output import Output
from broker_shim.protocol_1_0.peer_settings import Settings
from broker_shim.protocol_1_0.serial import FreeNumbers
from broker_shim.protocol_1_0.session import Session


class Channels:
    """The sessions of a connection by the peer's channel; it tells of each that begins or ends.

    Attributes:
        max_channel: The largest number that the peer takes from us.
        budget: What of begins and attaches is remembered, and may be done in this turn.
    """

    def __init__(self, output: Output, tell: Callable[[Event], None], settings: Settings) -> None:
        self.max_channel = 0
        self.budget = Budget(settings.max_state_bytes)
        self._output = output
        self._tell = tell
        self._settings = settings
        self._numbers = FreeNumbers()
        self._sessions: dict[int, Session] = {}
        self._unfinished: Session | None = None
        self._failed: list[tuple[Session, Error]] = []

    @property
    def sessions(self) -> list[Session]:
        """The sessions that the peer has begun and not ended, in its order."""
        return list(self._sessions.values())

    def flush(self) -> None:
        """Write the dispositions that wait."""
        for session in self._sessions.values():
            session.flush()

    def lost(self) -> None:
        """Let nothing follow, as the connection is over; output may still be written."""
        for session in self._sessions.values():
            session.lost()
        self._output.is_closed = True

    def receive(self, frame: FrameView, performative: Composite, payload: bytes) -> None:
        """Take a frame of a session.

        Raises:
            ProtocolViolation: What it breaks ends the connection; what ends a session was done.
        """
        if isinstance(performative, Begin):
            self._check_channel(frame.channel)
            self._begin(frame, performative)
            return
        session = self._session(frame.channel, performative.NAME)
        with self._containing(session):
            if isinstance(performative, End):
                del self._sessions[frame.channel]
                session.received_end()
                self._tell(SessionEnded(session, performative.error))
            else:
                session.receive(performative, payload)
            self._unfinished = session if session.is_unfinished else None

    def receive_deliveries(self, came: WholeDeliveries) -> None:
        """Take frames of a session that bring a whole delivery each, as one by one.

        Raises:
            ProtocolViolation: What they break ends the connection; what ends a session was done.
        """
        session = self._session(came.channel, Transfer.NAME)
        with self._containing(session):
            session.receive_deliveries(came)

    def _session(self, channel: int, frame_name: str) -> Session:
        """Return the session on a channel.

        Raises:
            ProtocolViolation: There is none.
        """
        session = self._sessions.get(channel)
        if session is None:
            self._check_channel(channel)
            text = f"{frame_name} on channel {channel}, which is not begun"
            raise ProtocolViolation(AmqpError.ILLEGAL_STATE, text)
        return session

    def _check_channel(self, channel: int) -> None:
        if channel >= self._settings.max_sessions:
            text = f"channel {channel}: {self._settings.max_sessions - 1} is most"
            raise ProtocolViolation(Condition.FRAMING_ERROR, text)

    @contextmanager
    def _containing(self, session: Session) -> Iterator[None]:
        """End the session if it is broken in this block."""
        try:
            yield
        except ProtocolViolation as violation:
            if violation.scope is Scope.CONNECTION:
                raise
            if self._output.is_opened:
                self._fail(session, violation.error)
            else:
                session.discard()
                self._failed.append((session, violation.error))

    def opened(self) -> None:
        """Tell the peer why sessions failed before our open was written."""
        failed, self._failed = self._failed, []
        for session, error in failed:
            if session in self._sessions.values():
                self._fail(session, error)

    def _fail(self, session: Session, error: Error) -> None:
        session.end(error)
        self._tell(SessionFailed(session, error))

    def go_on(self) -> None:
        """Do more of what the last frame asks for, if that was too much for one turn."""
        if self._unfinished is not None:
            self._unfinished.go_on()
            if not self._unfinished.is_unfinished:
                self._unfinished = None

    def _begin(self, frame: FrameView, begin: Begin) -> None:
        channel = frame.channel
        if channel in self._sessions:
            text = f"begin on channel {channel}, which is begun already"
            raise ProtocolViolation(AmqpError.ILLEGAL_STATE, text)
        if begin.remote_channel is not None:
            raise ProtocolViolation(AmqpError.INVALID_FIELD, "begin answers none of ours")
        session = self._sessions[channel] = Session(
            begin,
            remote_channel=channel,
            channels=self._numbers,
            budget=self.budget,
            output=self._output,
            tell=self._tell,
            settings=self._settings,
        )
        if session.channel > self.max_channel:
            raise ProtocolViolation(AmqpError.NOT_ALLOWED, "more sessions than your channel-max")
        self._tell(SessionBegun(session))
