"""A connection of the HTTP port: h11 between a transport and whoever answers requests.

Decision: our own, and no server's. What uvicorn has for this ends a keep-alive by the first byte of
a head that never comes, keeps an answer that nobody reads for ever, logs a line for each bad
request, and stands on asyncio's TLS, which leaves 74 KB of cycles for each connection. Each was to
be mended in a subclass of its insides; here each is a line, beside the parser.

A connection is closed when a peer has taken longer than its `Patience`. While the broker works it
has all the time that it needs. Of an answer no more than `_PIECE_BYTES` is encoded
at a time: the rest waits where it was made.

A head that has both Content-Length and Transfer-Encoding is refused, and ends the connection: what
stands between may take one request for two (RFC 9112 6.1).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple, cast

import h11

from broker_shim.security.guard import Remote
from broker_shim.security.tls import certificate_name
from broker_shim.serve.http.port.exchange import TEXT, HttpExchange, Response
from broker_shim.serve.http.port.places import Place, Places
from broker_shim.sockets.transport_end import let_go

_log = logging.getLogger(__name__)

_PIECE_BYTES = 1 << 18
PROBES = frozenset({"/healthz", "/readyz", "/primary", "/standby"})
"""Paths that are answered however many requests there are."""
_BOTH_LENGTHS = {b"content-length", b"transfer-encoding"}
_BUSY = b"too many requests are being answered: try again in a moment\n"

_TO_OLDER_COMMANDS = (
    b'{"error": "InvalidRequest", "message": "this broker is of a newer release, and takes orders'
    b' over HTTP: use the sparkstore that serves it"}\n'
)
"""Commands of older releases begin with an object of JSON, and read one."""

Application = Callable[[HttpExchange], Awaitable[Response]]
"""Answers a request, whatever comes of it."""


class Patience(NamedTuple):
    """How long a peer may take, in seconds.

    Attributes:
        head_s: For a whole head, from the connection or from the end of the answer before it.
        body_s: For a whole body, from its head.
        read_s: To read all of an answer, or of a part that it is written in.
    """

    head_s: float = 10.0
    body_s: float = 30.0
    read_s: float = 30.0


class PortResources(NamedTuple):
    """The resources that all connections of a port share.

    Attributes:
        application: Answers each request.
        places: Counts connections and requests.
        buffer: Where bytes are read to; free for others when `buffer_updated` returns.
        tasks: The requests that are being answered.
        patience: How long each peer may take.
        most_head_bytes: The longest head of a request.
    """

    application: Application
    places: Places
    buffer: memoryview
    tasks: set[asyncio.Task[None]]
    patience: Patience
    most_head_bytes: int


class HttpConnection(asyncio.BufferedProtocol):
    """Answers the requests of one peer, one after the other."""

    def __init__(self, shared: PortResources, place: Place, remote: Remote) -> None:
        """Prepare for a transport.

        Args:
            shared: What all connections share.
            place: The place of the connection; it is given back when the transport is gone.
            remote: The peer, before any TLS.
        """
        self._shared, self._place, self._remote = shared, place, remote
        self._http = h11.Connection(h11.SERVER, shared.most_head_bytes)
        self._transport: asyncio.Transport | None = None
        self._exchange: HttpExchange | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._room: asyncio.Future[None] | None = None
        self._is_over = self._is_reading_paused = False

    # ------------------------------------------------------------------ what the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first head, after TLS if there is any."""
        self._transport = cast("asyncio.Transport", transport)
        if self._is_over:  # it gave way meanwhile
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(0)
        tls = transport.get_extra_info("ssl_object")
        if tls is not None:
            named = certificate_name(tls.getpeercert())
            self._remote = self._remote._replace(tls="TLS", certificate_name=named)
        self._wait(self._shared.patience.head_s)

    def get_buffer(self, _size_hint: int) -> memoryview:
        """Return the buffer to read to; the bytes are copied before anybody else reads."""
        return self._shared.buffer

    def buffer_updated(self, byte_count: int) -> None:
        """Take the bytes that came; those after the last request of a peer are ignored."""
        if self._is_over or self._http.their_state is h11.MUST_CLOSE:
            return
        received = bytes(self._shared.buffer[:byte_count])
        if self._http.their_state is h11.IDLE and received.startswith(b"{"):
            self._end_with(_TO_OLDER_COMMANDS)
            return
        self._http.receive_data(received)
        self._advance()

    def eof_received(self) -> None:
        """Note that the peer sends no more: the transport below closes, once it wrote all."""

    def pause_writing(self) -> None:
        """Note that the peer has not read all that was written."""
        self._room = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """Note that the peer has read all that was written."""
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        self._room = None

    def connection_lost(self, _reason: Exception | None) -> None:
        """End what is under way, as the socket is gone: no cycle is left."""
        self._is_over = True
        self._stop_timer()
        self._place.leave()
        self.resume_writing()
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.let_go()
        transport, self._transport = self._transport, None
        if transport is not None:
            let_go(transport)

    def abort(self) -> None:
        """Hang up at once."""
        self._is_over = True
        if self._transport is not None:
            self._transport.abort()

    def close_idle(self) -> None:
        """Hang up unless a request is being answered."""
        if self._exchange is None:
            self.abort()

    # -------------------------------------------------------------------- what an exchange calls

    def read_on(self) -> None:
        """Read more of the body, after saying so to a peer that waits to hear it."""
        if self._http.they_are_waiting_for_100_continue:
            self._put(h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue"))
        self._pause_reading(is_paused=False)

    async def write(self, head: h11.Response | None, body: bytes, *, is_last: bool) -> None:
        """Write a part of the answer, and return when the peer has read all of it."""
        events: list[h11.Event] = [] if head is None else [head]
        left, is_waiting = memoryview(body), False
        while not (self._is_over or self._transport is None or self._transport.is_closing()):
            piece, left = left[:_PIECE_BYTES], left[_PIECE_BYTES:]
            events += [h11.Data(data=piece)] if piece else []  # type: ignore[arg-type]
            events += [h11.EndOfMessage()] if is_last and not left else []
            self._put(*events)
            events = []
            if self._room is not None:
                if not is_waiting:
                    is_waiting = True
                    self._wait(self._shared.patience.read_s)
                    self._place.holds(len(body))
                await self._room
            if not left:
                break
        if is_waiting and not self._is_over:
            self._place.holds(0)
            self._wait_for_body()

    # ------------------------------------------------------------------------------------ inside

    def _advance(self) -> None:
        """Act on what has come, as far as it goes."""
        while not self._is_over:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError as reason:
                reason.__traceback__ = None  # h11's own frame has it, which is a cycle
                self._refuse(reason.error_status_hint, f"{reason}\n".encode())
                return
            if event is h11.NEED_DATA:
                return
            if event is h11.PAUSED:  # the next request waits until this one is answered
                self._pause_reading(is_paused=True)
                return
            if isinstance(event, h11.Request):
                self._begin(event)
            elif isinstance(event, h11.Data):
                self._take(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                self._end_body()

    def _begin(self, request: h11.Request) -> None:
        names = {name for name, _ in request.headers}
        if names >= _BOTH_LENGTHS:
            self._refuse(400, b"a request has Content-Length or Transfer-Encoding, not both\n")
            return
        exchange = self._exchange = HttpExchange(self, request, self._remote)
        application, is_counted = self._shared.application, exchange.path not in PROBES
        if is_counted and not self._shared.places.begin(self._place):
            application, is_counted = _busy, False
        self._place.is_asking = is_counted
        self._wait_for_body()
        run = self._run(application, exchange, is_counted=is_counted)
        task = asyncio.get_running_loop().create_task(run)
        self._shared.tasks.add(task)
        task.add_done_callback(self._shared.tasks.discard)

    def _take(self, piece: bytes) -> None:
        """Take a piece of a body; what was answered already needs none."""
        exchange = self._exchange
        if exchange is not None and not exchange.is_answered:
            exchange.feed(piece)
            self._place.holds(exchange.body_bytes)
            self._pause_reading(is_paused=exchange.is_full)

    def _end_body(self) -> None:
        if self._exchange is None:  # it was answered before its body was whole
            self._go_on()
            return
        self._exchange.end_body()
        if self._room is None:
            self._wait_for_body()

    def _wait_for_body(self) -> None:
        """Wait for the rest of the body; work for the peer if that is whole."""
        exchange = self._exchange
        if exchange is not None and not exchange.is_whole:
            self._wait(self._shared.patience.body_s)
            return
        self._stop_timer()
        if self._place.is_asking:  # a probe gives way while it is answered
            self._place.works()

    async def _run(
        self, application: Application, exchange: HttpExchange, *, is_counted: bool
    ) -> None:
        try:
            await exchange.answer(await application(exchange))
        except Exception:  # noqa: BLE001  # whoever asked is hung up on, and the next one is served
            _log.exception("a request over HTTP failed")
        finally:
            if is_counted:
                self._shared.places.end(self._place)
            self._ended(exchange)

    def _ended(self, exchange: HttpExchange) -> None:
        """Go on with the next request once this one is answered, and its body whole."""
        exchange.let_go()
        if self._exchange is not exchange:  # the connection was lost
            return
        self._exchange = None
        self._place.is_asking = False
        self._place.holds(0)
        if not exchange.is_answered:
            self.abort()
        elif exchange.is_whole:
            self._go_on()
        else:  # its time runs on, and what comes of the body is thrown away
            self._place.waits()
            self._pause_reading(is_paused=False)

    def _go_on(self) -> None:
        """Wait for the next head, unless this was the last one."""
        if self._is_over or self._transport is None:
            return
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            self._is_over = True
            self._transport.close()
            return
        self._http.start_next_cycle()
        self._wait(self._shared.patience.head_s)
        self._pause_reading(is_paused=False)
        asyncio.get_running_loop().call_soon(self._advance)

    def _refuse(self, status: int, why: bytes) -> None:
        """Answer what is no request in one line, and hang up."""
        if self._http.our_state not in {h11.IDLE, h11.SEND_RESPONSE} or self._exchange:
            self.abort()
            return
        headers = [("Content-Type", TEXT), ("Connection", "close")]
        headers.append(("Content-Length", str(len(why))))
        answer = h11.Response(status_code=status, headers=headers, reason=b"Refused")
        events = (answer, h11.Data(data=why), h11.EndOfMessage())
        self._end_with(b"".join(self._http.send(event) or b"" for event in events))

    def _end_with(self, last: bytes) -> None:
        """Write these last bytes, and hang up."""
        self._is_over = True
        if self._transport is not None:
            self._transport.write(last)
            self._transport.close()

    def _put(self, *events: h11.Event) -> None:
        if not self._is_over and self._transport is not None:
            self._transport.write(b"".join(self._http.send(event) or b"" for event in events))

    def _pause_reading(self, *, is_paused: bool) -> None:
        if self._is_reading_paused is not is_paused and self._transport is not None:
            self._is_reading_paused = is_paused
            if is_paused:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _wait(self, patience_s: float) -> None:
        """Wait for the peer for a while; meanwhile it may have to give way."""
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(patience_s, self.abort)
        self._place.waits()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


async def _busy(_exchange: HttpExchange) -> Response:
    """Answer that there are too many requests."""
    return Response(_BUSY, 503, TEXT, {"Retry-After": "1"})
