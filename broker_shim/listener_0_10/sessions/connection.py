"""One AMQP 0-10 connection: header, SASL, tune, open; its sessions; heartbeats; its end.

    header ↔ header    start, start-ok [secure, secure-ok]…    tune, tune-ok    open, open-ok
    sessions on channels 0 to channel-max                       close, close-ok

What a peer does wrong ends its session, or its connection, and nothing else.

Of a peer that has not opened next to nothing is taken (`NEWCOMERS_LIMITS`). Nobody knows who it is,
and it needs little: a few controls on channel 0. What was kept for each of its channels would be
kept for strangers.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Any

from broker_shim.amqp_0_10.controls import (
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionHeartbeat,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionSecure,
    ConnectionSecureOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    Control,
)
from broker_shim.amqp_0_10.definitions import MIN_MAX_FRAME_SIZE, ConnectionCloseCode
from broker_shim.broker.settings import BrokerSettings
from broker_shim.broker.virtual_host import Broker
from broker_shim.framing.assembly import Assembly, frames_of
from broker_shim.framing.errors import RemoteCommandError, RemoteFramingError
from broker_shim.framing.frames import MOST_FRAME_BYTES, PROTOCOL_HEADER, Frame, FrameReader
from broker_shim.framing.order import FramingLimits
from broker_shim.handlers.connection_incoming import ConnectionIncoming
from broker_shim.handlers.handler import AssemblyHandler
from broker_shim.handlers.handler_chain import Delayed, HandlerContext, InsertionPoints
from broker_shim.listener_0_10.connection_output import ConnectionOutput
from broker_shim.listener_0_10.login import SaslExchange
from broker_shim.listener_0_10.refusals import short_text
from broker_shim.listener_0_10.sessions.session import Amqp010Session
from broker_shim.listener_0_10.sessions.vacant_channel import VacantChannel
from broker_shim.sockets.access import Access
from broker_shim.sockets.login import Login
from broker_shim.sockets.served_connection import ClientFacts, LinkFacts, next_number, product_of
from broker_shim.sockets.turns import Turn

if TYPE_CHECKING:
    from broker_shim.listener_0_10.sessions.session_host import SessionHost

_LEAST_S, _MOST_S = 0.05, 120.0


class ConnectionClock:
    """The heartbeats of one connection, in seconds of a clock that only rises.

    Attributes:
        heartbeat_s: What was agreed; 0: no heartbeats.
        heard_s: When bytes came last.
        said_s: When bytes went last.
    """

    def __init__(self, handshake_timeout_s: float, now_s: float) -> None:
        self._opens_until_s = now_s + handshake_timeout_s
        self.heartbeat_s = 0
        self.heard_s = self.said_s = now_s

    def is_late(self, now_s: float, *, is_open: bool) -> bool:
        """True if the peer did not open in time, or was silent for two heartbeats."""
        if not is_open:
            return now_s >= self._opens_until_s
        return bool(self.heartbeat_s) and now_s - self.heard_s >= 2 * self.heartbeat_s

    def is_beat_due(self, now_s: float) -> bool:
        """True if the peer has not heard of us for half a heartbeat."""
        return bool(self.heartbeat_s) and now_s - self.said_s >= self.heartbeat_s / 2

    def next_s(self, now_s: float, *, is_open: bool) -> float:
        """Find when to look again, at the latest."""
        if not is_open:
            return max(now_s + _LEAST_S, self._opens_until_s)
        if not self.heartbeat_s:
            return now_s + _MOST_S
        due_s = min(self.said_s + self.heartbeat_s / 2, self.heard_s + 2 * self.heartbeat_s)
        return max(now_s + _LEAST_S, due_s)


NEWCOMERS_LIMITS = FramingLimits(
    max_method_bytes=MIN_MAX_FRAME_SIZE,
    max_header_bytes=MIN_MAX_FRAME_SIZE,
    max_assembly_bytes=MIN_MAX_FRAME_SIZE,
    only_controls=True,
)
"""Of a peer that has not opened: as large as a frame may be until another size is agreed."""


def limits_of(settings: BrokerSettings) -> FramingLimits:
    """Find the limits for a peer that has opened."""
    return FramingLimits(
        max_method_bytes=settings.max_header_bytes,
        max_header_bytes=settings.max_header_bytes,
        max_assembly_bytes=settings.max_message_bytes + settings.max_header_bytes,
    )


class DelayedHandlers:
    """The handlers of a connection that hold frames back. On the loop's thread only."""

    def __init__(self) -> None:
        self._delayed: dict[Delayed, None] = {}

    def __bool__(self) -> bool:
        """True while one holds frames back."""
        return bool(self._delayed)

    def add(self, delayed: Delayed) -> None:
        """Add a handler that holds frames back. See `HandlerContext.delay`."""
        self._delayed[delayed] = None

    def wait_s(self) -> float:
        """The seconds until the first of them wants to go on."""
        due = [at_s for handler in self._delayed if (at_s := handler.due_at_s()) is not None]
        return max(0.0, min(due, default=0.0) - time.monotonic())

    def go_on(self) -> None:
        """Have handlers pass the frames on whose time has come."""
        for handler in list(self._delayed):
            handler.go_on()
            if handler.due_at_s() is None:
                del self._delayed[handler]

    def forget(self) -> None:
        """Forget all handlers, so that none goes on."""
        self._delayed.clear()


class Phase(Enum):
    """The phase of a connection: what it waits for."""

    HEADER = "the protocol header"
    START_OK = "start-ok"
    SECURE_OK = "secure-ok"
    TUNE_OK = "tune-ok"
    OPEN = "open"
    OPENED = "anything"
    CLOSING = "close-ok"
    OVER = "nothing"


_log = logging.getLogger(__name__)

_HEARTBEAT_S = 120
_FULL_WAIT_S = 0.005
_FAILED = "the broker failed: see its log"


class Amqp010Connection:
    """The protocol's state with one peer.

    Attributes:
        broker: The virtual host, with its queues.
        host: What all connections share.
        points: What stands before the standard handlers.
        access: How the peer got in.
        login: Who it is.
        number: Tells it apart from all others.
        began_at_us: When it came, UTC µs.
        context: What add-on handlers know of it.
        max_frame_bytes: Of a frame that goes out, as agreed.
        write: Has some bytes written.
        wait_for_room: Has `has_room` of somebody called when less waits to be written.
        waiting_bytes: Of messages on their way to the store: nothing more is read while there are
            too many.
    """

    def __init__(
        self,
        broker: Broker,
        host: SessionHost,
        points: InsertionPoints,
        has_output: Callable[[], None],
        access: Access,
    ) -> None:
        self.broker, self.host, self.points, self.access = broker, host, points, access
        self.login, self._unfinished = Login(access, broker.later, has_output), broker.unfinished
        self.number, self.turn = next_number(), Turn()
        self.began_at_us, self.container_id = time.time_ns() // 1000, ""
        self._has_output = has_output
        self._output = ConnectionOutput(broker.settings.buffered_bytes, has_output)
        self.write, self.wait_for_room = self._output.write, self._output.wait_for_room
        self.max_frame_bytes, self.waiting_bytes = MOST_FRAME_BYTES, 0
        self._phase, self._header = Phase.HEADER, b""
        self._settings = settings = broker.settings
        self._channel_max = min(settings.max_sessions, 65_535) - 1
        self._reader, self._delayed = FrameReader(MIN_MAX_FRAME_SIZE), DelayedHandlers()
        self._frames: deque[Frame] = deque()
        self.context = HandlerContext(str(access.remote), time.monotonic, self._delayed.add)
        self._standard = ConnectionIncoming(self, NEWCOMERS_LIMITS)
        self._incoming = points.before_connection(self._standard, self.context)
        self._is_bare = not (points.connection_incoming or points.session_incoming)
        self._sessions: dict[int, Amqp010Session] = {}
        self._in_turn: dict[Amqp010Session, None] = {}
        self._sasl = SaslExchange(access.mechanisms, self.login)
        self._clock = ConnectionClock(settings.handshake_timeout_s, time.monotonic())
        self._is_lost = self._hangs_up = False
        self._product: str | None = None
        self._carried = [0, 0]  # bytes that came, and that went

    @property
    def link_count(self) -> int:
        """Count the subscriptions of its sessions."""
        return sum(session.subscriptions.count for session in self._sessions.values())

    @property
    def link_facts(self) -> Iterator[LinkFacts]:
        """Describe each subscription of its sessions."""
        for session in self._sessions.values():
            yield from session.subscriptions.facts()

    @property
    def client(self) -> ClientFacts:
        """Describe the peer, and how much came and went."""
        heartbeat_s = self._clock.heartbeat_s or None
        sessions, bytes_ = len(self._sessions), self._carried
        return ClientFacts("AMQP 0-10", self._product, sessions, heartbeat_s, *bytes_)

    @property
    def is_open(self) -> bool:
        """True once the peer has opened."""
        return self._phase is Phase.OPENED

    @property
    def is_closed(self) -> bool:
        """True once nothing more can be said to the peer."""
        is_ending = self._phase in {Phase.CLOSING, Phase.OVER}
        return (is_ending and not self.login.is_waiting) or self._hangs_up

    @property
    def is_over(self) -> bool:
        """True once nothing is read any more: write what waits, then hang up."""
        return (self._phase is Phase.OVER and not self.login.is_waiting) or self._hangs_up

    @property
    def has_more(self) -> bool:
        """True if what came was too much for one turn."""
        return bool(self._frames or self._delayed)

    @property
    def wait_s(self) -> float:
        """The seconds that the next turn has to wait."""
        if self._is_full:
            return _FULL_WAIT_S
        return 0.0 if self._frames else self._delayed.wait_s()

    @property
    def _is_full(self) -> bool:
        """True while too much that came is on its way to the store."""
        return self.waiting_bytes > self._settings.session_bytes

    @property
    def room_bytes(self) -> int:
        """The bytes that may still wait to be written; negative if too many do."""
        return self._output.room_bytes

    def receive(self, received: bytes, most_work: int = 1 << 60) -> None:
        """Take bytes from the peer, and do what they ask. See `ServedConnection`."""
        self._clock.heard_s = time.monotonic()
        if not received:
            self._hangs_up = True
            self.lost()
            return
        self._carried[0] += len(received)
        self._contain(lambda: self._read(received))
        self.go_on(most_work)

    def go_on(self, most_work: int) -> None:
        """Do more of what came before, within so much work. See `ServedConnection`."""
        self.turn.begin(most_work)
        self._contain(self._take_turn)
        self._has_output()

    def _read(self, received: bytes) -> None:
        if self._phase is Phase.HEADER:
            self._header += received
            if not PROTOCOL_HEADER.startswith(self._header[: len(PROTOCOL_HEADER)]):
                self.write(PROTOCOL_HEADER)  # what we speak instead
                self._phase = Phase.OVER
                return
            if len(self._header) < len(PROTOCOL_HEADER):
                return
            received = self._header[len(PROTOCOL_HEADER) :]
            self._start()
        if self._phase is not Phase.OVER:
            with suppress(RemoteFramingError):  # `_take_turn` raises it, after all before it
                self._frames.extend(self._reader.feed(received))

    def _take_turn(self) -> None:
        while self._frames and not self._is_full:
            if self._phase is Phase.OVER:
                self._frames.clear()
                return
            if self._is_bare:
                self.turn.spend(self._standard.handle_next(self._frames))
            else:
                self._incoming.handle_frame(self._frames.popleft())
                self.turn.spend(1)
            if not self.turn.goes_on():
                break
        if self._reader.is_broken and not self._frames and self._phase is not Phase.OVER:
            # It raises what is wrong, unless larger frames are taken since the client has opened.
            self._frames.extend(self._reader.feed(b""))
        self._delayed.go_on()
        in_turn, self._in_turn = self._in_turn, {}  # of 65,535 sessions only those that were used
        for session in in_turn:
            if not session.is_over:
                session.publisher.hand_over()
                session.tell()

    def _contain(self, step: Callable[[], None]) -> None:
        """End only this connection for a fault of the peer, or of ours."""
        try:
            step()
        except RemoteFramingError as error:
            self.broker.metrics.protocol_errors += 1
            text = ascii(error.description[:200])
            _log.info("connection %d ended: %s", self.number, text)
            self._end(error.code, error.description, Phase.OVER)
        except Exception:  # noqa: BLE001  # one connection must not end the others
            _log.exception("connection %d: a frame failed", self.number)
            self._end(ConnectionCloseCode.CONNECTION_FORCED, _FAILED, Phase.OVER)

    def _say(self, control: Control) -> None:
        for frame in frames_of(Assembly(0, control), self.max_frame_bytes):
            self.write(frame.encoded)

    def output(self) -> bytes:
        """Take the next bytes to write; none while a login is decided. See `ServedConnection`."""
        if self.login.is_waiting:
            return b""
        encoded = self._output.take()
        if encoded:
            self._carried[1] += len(encoded)
            self._clock.said_s = time.monotonic()
        return encoded

    def unsent(self, byte_count: int) -> None:
        """Note how many written bytes still wait. See `ServedConnection`."""
        self._output.unsent(byte_count)

    def tick(self, now_s: float) -> float:
        """Send a heartbeat if one is due, and end with a peer that is silent.

        See `ServedConnection`.
        """
        is_late = self._clock.is_late(now_s, is_open=self.is_open)
        if is_late and not self.login.is_waiting:
            _log.info("connection %d ended: its peer was silent for too long", self.number)
            self._hangs_up = True
            self.lost()
            self._has_output()
        elif self.is_open and self._clock.is_beat_due(now_s):
            self._say(ConnectionHeartbeat())
        return self._clock.next_s(now_s, is_open=self.is_open)

    def lost(self) -> None:
        """End the sessions of a connection whose peer is gone. See `ServedConnection`."""
        if self._is_lost:
            return
        self._is_lost = True
        self._frames.clear()
        self._delayed.forget()
        for session in list(self._sessions.values()):
            session.lost()
        self._unfinished.hold(self, self, 0)
        self._output.forget_waiters()
        self.login.gone(self._sasl.given_up)

    def let_go(self) -> None:
        """Drop the handlers, which hold the connection. See `ServedConnection`."""
        del self._incoming, self._standard

    def close_forced(self, reason: str) -> None:
        """Close the connection because the broker stops. See `ServedConnection`."""
        if self.is_open:
            self._end(ConnectionCloseCode.CONNECTION_FORCED, reason)
        else:
            self._hangs_up = True
        self._has_output()

    close_unauthorized = close_forced

    def fault(self) -> None:
        """Close the connection because its output cannot be written."""
        if self.is_open:
            self._phase = Phase.OVER
            self._say(ConnectionClose(ConnectionCloseCode.CONNECTION_FORCED, _FAILED))
            self.broker.later(0.0, self.lost)

    def _end(self, code: ConnectionCloseCode, text: str, phase: Phase = Phase.CLOSING) -> None:
        if self._phase not in {Phase.HEADER, Phase.CLOSING, Phase.OVER}:
            self._say(ConnectionClose(code, short_text(text)))
        self._phase = phase
        self.lost()

    def connection_control(self, control: Control) -> None:
        """Do a control of the connection, as far as its phase allows. See `ConnectionControls`."""
        if isinstance(control, ConnectionClose):
            self._say(ConnectionCloseOk())
            # Before the connection counts as lost: its client left in good order.
            for session in list(self._sessions.values()):
                session.part()
            self.lost()
            self._phase = Phase.OVER
            return
        if isinstance(control, ConnectionHeartbeat):
            return
        if self._phase is Phase.CLOSING:
            if isinstance(control, ConnectionCloseOk):
                self._phase = Phase.OVER
            return
        step = _STEPS.get((self._phase, type(control)))
        if step is None:
            text = f"{control.NAME} where {self._phase.value} was expected"
            raise RemoteFramingError(text)
        step(self, control)

    def session_on(self, channel: int) -> AssemblyHandler | None:
        """Find the first handler of the session on a channel. See `ConnectionControls`."""
        last = 0 if self._phase in _BEFORE_OPEN else self._channel_max
        if channel > last:
            raise RemoteFramingError(f"channel {channel}: {last} is the last that may be used")
        if self._phase is not Phase.OPENED:
            return None
        session = self._sessions.get(channel)
        if session is None:
            return VacantChannel(self, channel)
        self._in_turn[session] = None
        return session.first

    def holds(self, byte_count: int) -> None:
        """Count the bytes of methods that have not come whole. See `ConnectionControls`."""
        if not self._is_lost:  # else it would be counted for ever
            self._unfinished.limit(self, self, byte_count)

    def give_up_unfinished(self, reason: str) -> None:
        """End the connection, as too much waits that has not come whole."""
        self._end(ConnectionCloseCode.CONNECTION_FORCED, f"commands {reason}", Phase.OVER)
        self._has_output()

    def session_failed(self, channel: int, error: RemoteCommandError) -> None:
        """Fail the session on a channel that got no good command. See `ConnectionControls`."""
        session = self._sessions.get(channel)
        if session is not None:
            session.fail(error)

    def attach(self, session: Amqp010Session) -> None:
        """Give a session a channel from now on."""
        self._sessions[session.channel] = session

    def detach(self, session: Amqp010Session) -> None:
        """Take a session's channel away."""
        if self._sessions.get(session.channel) is session:
            del self._sessions[session.channel]
            self._standard.drop(session.channel)

    def _start(self) -> None:
        self.write(PROTOCOL_HEADER)
        self._say(ConnectionStart({"product": "sparkstore"}, self._sasl.names, ("en_US",)))
        self._phase = Phase.START_OK

    def _authenticate(self, control: ConnectionStartOk | ConnectionSecureOk) -> None:
        if isinstance(control, ConnectionStartOk):
            client_name = (control.client_properties or {}).get("clientName")
            self._product = product_of(control.client_properties)
            self.container_id = client_name if isinstance(client_name, str) else ""
        answer = self._sasl.step(control)
        if isinstance(answer, bytes):
            self._phase = Phase.SECURE_OK
            self._say(ConnectionSecure(answer))
        elif answer:
            self._phase = Phase.TUNE_OK
            self._say(ConnectionTune(self._channel_max, MOST_FRAME_BYTES, 0, _HEARTBEAT_S))
        else:
            failed = "authentication failed"
            self._end(ConnectionCloseCode.CONNECTION_FORCED, failed, Phase.OVER)

    def _tuned(self, control: ConnectionTuneOk) -> None:
        most = control.max_frame_size or MOST_FRAME_BYTES
        if most < MIN_MAX_FRAME_SIZE:
            least = f"{MIN_MAX_FRAME_SIZE} is the least"
            raise RemoteFramingError(f"tune-ok with frames of {most} bytes: {least}")
        if control.channel_max > self._channel_max:
            text = f"tune-ok with channel {control.channel_max}: {self._channel_max} is the last"
            raise RemoteFramingError(text)
        self.max_frame_bytes = most
        self._clock.heartbeat_s = min(control.heartbeat or 0, _HEARTBEAT_S)
        # Absent or 0 is no limit of the client's own: many clients never say one.
        self._channel_max = control.channel_max or self._channel_max
        self._phase = Phase.OPEN

    def _opened(self, _control: ConnectionOpen) -> None:
        refusal = self.login.opens(self._settings.max_connections_per_user)
        if refusal is not None:
            self._end(ConnectionCloseCode.CONNECTION_FORCED, refusal)
            return
        self._say(ConnectionOpenOk())
        self._phase, self._reader.max_frame_bytes = Phase.OPENED, self.max_frame_bytes
        self._standard.limit(limits_of(self.broker.settings))


_BEFORE_OPEN = {Phase.START_OK, Phase.SECURE_OK, Phase.TUNE_OK, Phase.OPEN}
_STEPS: Mapping[tuple[Phase, type], Callable[[Amqp010Connection, Any], None]] = {
    (Phase.START_OK, ConnectionStartOk): Amqp010Connection._authenticate,  # noqa: SLF001  # a table
    (Phase.SECURE_OK, ConnectionSecureOk): Amqp010Connection._authenticate,  # noqa: SLF001
    (Phase.TUNE_OK, ConnectionTuneOk): Amqp010Connection._tuned,  # noqa: SLF001
    (Phase.OPEN, ConnectionOpen): Amqp010Connection._opened,  # noqa: SLF001
}
