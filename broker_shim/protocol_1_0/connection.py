"""Run one connection: bytes in, events out; commands in, bytes out."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from broker_shim.amqp_1_0.composites import (
    COMPOSITES,
    PROVIDERS,
    Attach,
    Begin,
    Close,
    Composite,
    Detach,
    End,
    Error,
    Open,
    Transfer,
)
from broker_shim.amqp_1_0.definitions import MIN_MAX_FRAME_SIZE, AmqpError
from broker_shim.amqp_1_0.definitions import ConnectionError as Condition
from broker_shim.protocol_1_0.budget import UNLIMITED
from broker_shim.protocol_1_0.channels import Channels
from broker_shim.protocol_1_0.codec.composites import read_performative
from broker_shim.protocol_1_0.codec.errors import InvalidCommand, ProtocolViolation, Scope
from broker_shim.protocol_1_0.codec.frames import AMQP_FRAME, EMPTY_FRAME, FrameDecoder, FrameView
from broker_shim.protocol_1_0.codec.sizes import decoded_bytes
from broker_shim.protocol_1_0.events import (
    AuthenticationFailed,
    ConnectionClosed,
    ConnectionFailed,
    ConnectionOpened,
    Event,
    Lost,
)
from broker_shim.protocol_1_0.greeting import Greeting
from broker_shim.protocol_1_0.output import Output
from broker_shim.protocol_1_0.peer_settings import Settings
from broker_shim.protocol_1_0.sasl.exchange import Mechanisms
from broker_shim.protocol_1_0.session import Session
from broker_shim.protocol_1_0.transitions import (
    CONNECTION,
    ConnectionState,
    ConnectionStep,
    after_received,
    after_sent,
)

LEAST_INTERVAL_S = 0.05
"""Between two beats: a peer that wants more would keep us busy with nothing."""


class Due(Enum):
    """The actions that a heartbeat can call for."""

    NOTHING = "nothing"
    BEAT = "send an empty frame"
    SILENT = "the peer was silent for too long"


class Heartbeat:
    """Heartbeat of one connection, in both directions."""

    def __init__(self, *, idle_timeout_s: float, now_s: float) -> None:
        self._idle_timeout_s = idle_timeout_s
        self._interval_s: float | None = None
        self._received_at_s = self._sent_at_s = now_s

    def peer_wants(self, idle_timeout_ms: int | None) -> None:
        """Send at half of the peer's idle timeout, but not all the time."""
        if idle_timeout_ms:
            self._interval_s = max(LEAST_INTERVAL_S, idle_timeout_ms / 2_000)

    def received(self, now_s: float) -> None:
        """Note that bytes came from the peer."""
        self._received_at_s = now_s

    def sent(self, now_s: float) -> None:
        """Note that bytes went to the peer."""
        self._sent_at_s = now_s

    def due(self, now_s: float) -> Due:
        """Return the action that is due now."""
        if now_s - self._received_at_s >= self._idle_timeout_s:
            return Due.SILENT
        if self._interval_s is not None and now_s - self._sent_at_s >= self._interval_s:
            return Due.BEAT
        return Due.NOTHING

    def next_at_s(self) -> float:
        """Return when to look again, at the latest."""
        silent_at_s = self._received_at_s + self._idle_timeout_s
        if self._interval_s is None:
            return silent_at_s
        return min(silent_at_s, self._sent_at_s + self._interval_s)


class ServerConnection:
    """The server's end of one connection.

    The caller's loop: read the socket → `receive_data` → act on `events` → write `data_to_send`;
    now and then `tick`; hang up once `is_over` and everything is written. Times are seconds of one
    clock that only rises. `receive_data`, `events`, `data_to_send` and `tick` raise nothing.

    Two things are the caller's. While `pending_bytes` is large it should not read on: a peer that
    asks and never reads would have us gather answers. And what an event is about may have ended
    since, by what came in the same bytes: look at `is_gone` before a command.
    """

    def __init__(self, settings: Settings, mechanisms: Mechanisms, *, now_s: float) -> None:
        self._settings = settings
        self._events: list[Event] = []
        self._tell = self._events.append
        self._output, self.received_bytes = Output(), 0  # those that came ever
        self._decoder = FrameDecoder(settings.max_frame_bytes)
        self._greeting = Greeting(
            self._decoder,
            self._output,
            self._tell,
            mechanisms,
            requires_sasl=settings.requires_sasl,
        )
        self._heartbeat = Heartbeat(idle_timeout_s=settings.idle_timeout_s, now_s=now_s)
        self._greet_until_s = now_s + settings.handshake_timeout_s
        self._state = ConnectionState.HEADERS_EXCHANGED
        self._channels = Channels(self._output, self._tell, settings)
        self._budget = self._channels.budget
        self.remote: Open | None = None

    @property
    def is_over(self) -> bool:
        """True once nothing is read any more: write what waits, then hang up."""
        return self._state is ConnectionState.END or self._greeting.is_refused

    @property
    def has_more(self) -> bool:
        """True if input may not have been handled yet, as the peer's turn was over."""
        return self._budget.work_left <= 0 and not self.is_over

    @property
    def given_up(self) -> AuthenticationFailed | None:
        """Return the failed login of a peer that hung up after it began to log in; None if none."""
        return self._greeting.given_up

    @property
    def is_opened(self) -> bool:
        """True once our open was written."""
        return self._output.is_opened

    @property
    def is_closed(self) -> bool:
        """True once nothing more can be said: close was written, or the connection is over."""
        return self._output.is_closed or self._greeting.is_refused

    @property
    def sessions(self) -> list[Session]:
        """The sessions that the peer has begun and not ended."""
        return self._channels.sessions

    @property
    def pending_bytes(self) -> int:
        """Count the bytes that `data_to_send` would give, without the dispositions that wait."""
        return self._output.byte_count

    @property
    def session_count(self) -> int:
        """The number of sessions that are open."""
        return len(self._channels.sessions)

    @property
    def handed_bytes(self) -> int:
        """Count the bytes that `data_to_send` ever gave."""
        return self._output.made_bytes - self._output.byte_count

    def receive_data(self, received: bytes, *, now_s: float, most_work: int = UNLIMITED) -> None:
        """Take bytes from the peer, as they came; none means that it sends no more.

        After `most_work` the rest of them waits for `go_on`: see `has_more`.
        """
        if self.is_over:
            return
        if not received:
            self._end()
            self._tell(Lost())
            return
        self._heartbeat.received(now_s)
        self.received_bytes += len(received)
        self._decoder.feed(received)
        self.go_on(most_work)

    def go_on(self, most_work: int) -> None:
        """Take more of what came before."""
        if self.is_over:
            return
        self._budget.work_left = most_work
        try:
            self._advance()
        except ProtocolViolation as violation:
            self._fail(violation.error)

    def events(self) -> list[Event]:
        """Hand out what happened since the last call, oldest first."""
        events = self._events.copy()
        self._events.clear()
        return events

    def data_to_send(self, *, now_s: float) -> list[bytes | memoryview]:
        """Hand out the bytes to write, in order; views are of what the caller handed over."""
        self._channels.flush()
        chunks = self._output.take()
        if chunks:
            self._heartbeat.sent(now_s)
        return chunks

    def tick(self, *, now_s: float) -> float:
        """Do what is due by the clock; return when to call again, at the latest."""
        if self.is_over:
            return now_s + self._settings.idle_timeout_s
        if self.remote is None and now_s >= self._greet_until_s:
            text = f"no open within {self._settings.handshake_timeout_s:g} s"
            self._fail(Error(AmqpError.RESOURCE_LIMIT_EXCEEDED, text))
        due = self._heartbeat.due(now_s)
        if due is Due.SILENT:
            text = f"nothing heard for {self._settings.idle_timeout_s:g} s"
            self._fail(Error(AmqpError.RESOURCE_LIMIT_EXCEEDED, text))
        elif due is Due.BEAT:
            if self._state is ConnectionState.OPENED:
                self._output.write(EMPTY_FRAME)
            self._heartbeat.sent(now_s)  # also if there is nothing to say any more
        if self.remote is None:
            return min(self._greet_until_s, self._heartbeat.next_at_s())
        return self._heartbeat.next_at_s()

    def open(self, **fields: Any) -> None:
        """Answer the peer's open; `fields` are more of `Open`.

        Raises:
            InvalidCommand: The peer has not opened, or was answered; a field does not fit.
        """
        state = after_sent(CONNECTION, self._state, ConnectionStep.OPEN_SENT)
        self._say_open(fields)
        self._state = state
        self._channels.opened()

    def close(self, error: Error | None = None) -> None:
        """Close the connection, sessions and links with it; or answer the peer's close.

        Raises:
            InvalidCommand: It is closed already, or there is nothing to close yet: hang up.
        """
        if not self._greeting.is_done:
            raise InvalidCommand("nothing to close before the protocol headers: hang up")
        state = after_sent(CONNECTION, self._state, ConnectionStep.CLOSE_SENT)
        self._say_close(error)
        self._state = state

    def _advance(self) -> None:
        """Take all headers and frames that are whole.

        Raises:
            ProtocolViolation: What ends the connection.
        """
        while not self._greeting.is_done:
            if not self._greeting.advance():
                return
        decoder, budget, channels = self._decoder, self._budget, self._channels
        channels.go_on()
        while budget.work_left > 0 and self._state is not ConnectionState.END:
            if self._state is ConnectionState.OPENED:
                deliveries = decoder.next_deliveries(budget.work_left)
                if deliveries is not None:
                    budget.work_left -= len(deliveries.tags)  # half of what one alone takes
                    channels.receive_deliveries(deliveries)
                    continue
            frame = decoder.next_frame()
            if frame is None:
                return
            self._receive(frame)

    def _receive(self, frame: FrameView) -> None:
        if frame.kind != AMQP_FRAME:
            raise ProtocolViolation(Condition.FRAMING_ERROR, f"a frame of type {frame.kind}")
        if frame.start == frame.end:
            self._budget.work_left -= 1
            return  # a heartbeat
        performative, at = read_performative(frame.encoded, frame.start, frame.end)
        kind = type(performative)
        self._budget.work_left -= _WORK.get(kind, 1) + (at - frame.start) // _WORK_BYTES
        if kind not in _FRAMES:
            text = f"{performative.NAME} is no frame"
            raise ProtocolViolation(AmqpError.NOT_ALLOWED, text)
        if kind is Open and frame.channel:
            text = f"open on channel {frame.channel}: it goes on channel 0"
            raise ProtocolViolation(Condition.FRAMING_ERROR, text)
        payload = frame.encoded[at : frame.end] if kind is Transfer else b""
        receive = _RECEIVE.get(kind)
        if receive is None and self._state is ConnectionState.OPENED:
            self._channels.receive(frame, performative, payload)  # as the table says: the short way
            return
        self._state = after_received(CONNECTION, self._state, _step_of(kind), Scope.CONNECTION)
        if receive is not None:
            receive(self, performative)
        elif self._state is not ConnectionState.CLOSE_SENT:
            self._channels.receive(frame, performative, payload)

    def _received_open(self, remote: Open) -> None:
        self._budget.take(decoded_bytes(remote))
        if remote.max_frame_size < MIN_MAX_FRAME_SIZE:
            text = f"max-frame-size {remote.max_frame_size}: {MIN_MAX_FRAME_SIZE} is least"
            raise ProtocolViolation(Condition.FRAMING_ERROR, text)
        self._output.max_frame_bytes = min(remote.max_frame_size, self._settings.max_frame_bytes)
        self._heartbeat.peer_wants(remote.idle_time_out)
        self._channels.max_channel = remote.channel_max
        self.remote = remote
        if self._state is ConnectionState.OPEN_RECEIVED:
            self._tell(ConnectionOpened(remote))

    def _received_close(self, close: Close) -> None:
        self._tell(ConnectionClosed(close.error))

    def _fail(self, error: Error) -> None:
        """Tell the peer that it broke the protocol, as far as it can be told, and be over."""
        can_tell = self._greeting.is_done and self._state not in {
            ConnectionState.CLOSE_SENT,
            ConnectionState.END,
        }
        if can_tell:
            self._say_close(error)
        self._end()
        self._tell(ConnectionFailed(error))

    def _end(self) -> None:
        self._state = ConnectionState.END
        self._channels.lost()

    def _say_open(self, fields: dict[str, Any]) -> None:
        settings = self._settings
        self._output.frame(
            Open(
                settings.container_id,
                max_frame_size=settings.max_frame_bytes,
                channel_max=settings.max_sessions - 1,
                idle_time_out=max(1, int(settings.idle_timeout_s * 500)),
                **fields,
            )
        )
        self._output.is_opened = True

    def _say_close(self, error: Error | None) -> None:
        if not self._output.is_opened:
            self._say_open({})
        self._channels.flush()
        self._output.frame(Close(error))
        self._channels.lost()


_FRAMES = frozenset(kind for kind in COMPOSITES.values() if kind.NAME in PROVIDERS["frame"])

_WORK: dict[type[Composite], int] = {Transfer: 2, Begin: 5, Attach: 10, Detach: 5, End: 5}
"""Of a frame and what it leads to; else 1."""
_WORK_BYTES = 64
"""A piece of work is to read so many bytes of a performative, where each may be an item."""

_STEPS: dict[type[Composite], ConnectionStep] = {
    Open: ConnectionStep.OPEN_RECEIVED,
    Close: ConnectionStep.CLOSE_RECEIVED,
}


def _step_of(kind: type[Composite]) -> ConnectionStep:
    return _STEPS.get(kind, ConnectionStep.SESSION_FRAME_RECEIVED)


_RECEIVE: dict[type[Composite], Callable[[ServerConnection, Any], None]] = {
    Open: ServerConnection._received_open,  # noqa: SLF001  # a table of its own methods
    Close: ServerConnection._received_close,  # noqa: SLF001
}
