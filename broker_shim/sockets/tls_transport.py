"""TLS between a socket's transport and a peer: the peer sees the bytes inside, and nothing else.

    socket ─► asyncio's transport ─► `TlsTransport` ─► `PeerProtocol`

Decision: our own, of `ssl.SSLObject` and two memory buffers. That of asyncio keeps a buffer of
256 KiB for each connection, and leaves cycles behind when a connection is over, each with the
buffer and OpenSSL's state of it. Strangers who only shake hands filled the memory faster than
Python's collector comes round. Here nothing points back once the socket is gone.

What is written is encrypted at once, so what waits is with the transport below, which counts it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol, cast

from broker_shim.sockets.transport_end import let_go


class InnerProtocol(Protocol):
    """The protocol that is served over TLS: the part of `asyncio.BufferedProtocol` used here."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, as the handshake is over."""

    def buffer_updated(self, byte_count: int) -> None:
        """Take bytes that are in the buffer."""

    def eof_received(self) -> None:
        """Note that the other end sends no more."""

    def pause_writing(self) -> None:
        """Hold back output, as much waits to be written."""

    def resume_writing(self) -> None:
        """Go on with output, as most of it was written."""

    def connection_lost(self, reason: Exception | None) -> None:
        """End, as the socket is gone."""


class TlsTransport(asyncio.Transport, asyncio.BufferedProtocol):
    """The protocol of the transport below, and the transport of what is served over TLS.

    Its peer is told nothing before the handshake is over, and nothing if it fails.
    """

    def __init__(
        self,
        inner: InnerProtocol,
        context: ssl.SSLContext,
        buffer: memoryview,
        handshake_timeout_s: float,
        on_over: Callable[[str | None], None],
    ) -> None:
        """Prepare the server's side of a TLS session.

        Args:
            inner: What is served over TLS; it finds what it reads in the `buffer`.
            context: The TLS context of the server.
            buffer: Where bytes are read to, encrypted and plain; free for others after each call.
            handshake_timeout_s: How long the handshake may take.
            on_over: Called once, when it is over; with the reason if the handshake failed.
        """
        super().__init__()
        self._inner: InnerProtocol | None = inner
        self._buffer, self._on_over = buffer, on_over
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._timeout_s = handshake_timeout_s
        self._timer: asyncio.TimerHandle | None = None
        self._below: asyncio.Transport | None = None
        self._is_shaken = self._is_paused = self._is_closing = self._has_ended = False
        self._has_said_end = False

    # ------------------------------------------------------------ what the transport below calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake on the connected socket."""
        self._below = cast("asyncio.Transport", transport)
        if self._is_closing:  # there was no place for it any more
            self._below.abort()
            return
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._timeout_s, self._late)

    def get_buffer(self, _size_hint: int) -> memoryview:
        """Return the buffer to read to; the bytes are taken out before anybody else reads."""
        return self._buffer

    def buffer_updated(self, byte_count: int) -> None:
        """Decrypt the bytes that came."""
        if self._has_said_end:
            return
        self._incoming.write(self._buffer[:byte_count])
        if not self._is_shaken:
            self._shake_hands()
        if self._is_shaken:
            self._read()

    def eof_received(self) -> None:
        """Take what came before the other end hung up; then the transport below closes."""
        if not self._is_shaken:
            self._fail(_HUNG_UP)
            return
        self._is_paused = False  # nothing comes after this: what there is goes on now
        self._read()
        self._end_reading()

    def pause_writing(self) -> None:
        """Hold back the protocol's output, as much waits to be written."""
        if self._inner is not None and self._is_shaken:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Go on with the protocol's output, as most of it was written."""
        if self._inner is not None and self._is_shaken:
            self._inner.resume_writing()

    def connection_lost(self, reason: Exception | None) -> None:
        """Let go of everything, as the socket is gone: no cycle is left."""
        self._stop_timer()
        inner, self._inner = self._inner, None
        below, self._below = self._below, None
        was_closing, self._is_closing = self._is_closing, True
        if self._is_shaken and inner is not None:
            inner.connection_lost(reason)
        self._tell(None if self._is_shaken or was_closing else _HUNG_UP)
        if below is not None:
            let_go(below)

    # ------------------------------------------------------------------ what the peer asks for

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return facts about the transport; `ssl_object` says what was agreed."""
        if name == "ssl_object":
            return self._tls
        return default if self._below is None else self._below.get_extra_info(name, default)

    def is_closing(self) -> bool:
        """True once nothing more can be written."""
        return self._is_closing or self._below is None or self._below.is_closing()

    def is_reading(self) -> bool:
        """True unless reading is paused."""
        return not self._is_paused and not self.is_closing()

    def pause_reading(self) -> None:
        """Read nothing more; bytes that are not decrypted yet wait here."""
        if not self._is_paused and self._below is not None and not self.is_closing():
            self._is_paused = True
            self._below.pause_reading()

    def resume_reading(self) -> None:
        """Read on, waiting bytes first; on the next turn, so that nobody calls himself."""
        if self._is_paused and not self.is_closing():
            self._is_paused = False
            asyncio.get_running_loop().call_soon(self._go_on_reading)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Say how many bytes may wait below before the writer is paused, and go on."""
        if self._below is not None:
            self._below.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """Return how many bytes wait to be written."""
        return 0 if self._below is None else self._below.get_write_buffer_size()

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """Encrypt and write; what fails ends the connection."""
        if not data or self.is_closing():
            return
        try:
            self._tls.write(data)
        except ssl.SSLError:  # a renegotiation, which our contexts do not allow
            self.abort()
            return
        self._flush()

    def close(self) -> None:
        """Say that this is all, write what waits, and hang up."""
        if self._below is None or self.is_closing():
            return
        self._say_end()
        self._is_closing = True
        self._below.close()

    def write_eof(self) -> None:
        """Write what waits, and say that this is all; what the peer still sends is dropped."""
        if self._below is not None and not self.is_closing():
            self._say_end()
            self._has_said_end = True
            self._below.write_eof()

    def abort(self) -> None:
        """Hang up at once."""
        self._is_closing = True
        if self._below is not None:
            self._below.abort()

    # ---------------------------------------------------------------------------------- inside

    def _late(self) -> None:
        self._timer = None
        self._fail(f"no handshake of TLS within {self._timeout_s:g} s")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
        except ssl.SSLError as reason:  # an alert tells the other end
            self._flush()
            self._fail(str(reason))
        else:
            self._stop_timer()
            self._flush()
            self._is_shaken = True
            assert self._inner is not None
            self._inner.connection_made(self)

    def _fail(self, reason: str) -> None:
        """Give up the handshake: report the reason, and hang up when the alert is written."""
        self._stop_timer()
        self._inner = None
        self._is_closing = True
        if self._below is not None:
            self._below.close()
        self._tell(reason)

    def _tell(self, reason: str | None) -> None:
        """Report the end of the transport, once."""
        on_over, self._on_over = self._on_over, _nothing
        on_over(reason)

    def _go_on_reading(self) -> None:
        if self._is_paused or self.is_closing():
            return
        self._read()
        if self._below is not None and not self._is_paused and not self.is_closing():
            self._below.resume_reading()

    def _read(self) -> None:
        """Hand on what is decrypted, until the peer has enough or there is no more."""
        while self._inner is not None and not (self._is_paused or self.is_closing()):
            try:
                byte_count = self._tls.read(len(self._buffer), self._buffer)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLError:  # bytes that are no TLS, or an alert
                self._flush()
                self.abort()
                return
            if not byte_count:  # it said that this was all
                self._end_reading()
                self.close()
                return
            self._inner.buffer_updated(int(byte_count))
        self._flush()  # keys may have been renewed

    def _end_reading(self) -> None:
        if not self._has_ended and self._inner is not None:
            self._has_ended = True
            self._inner.eof_received()

    def _say_end(self) -> None:
        with suppress(ssl.SSLError):  # the other end has not said it, or hears nothing any more
            self._tls.unwrap()
        self._flush()

    def _flush(self) -> None:
        if self._outgoing.pending:
            encrypted = self._outgoing.read()
            if self._below is not None and not self._below.is_closing():
                self._below.write(encrypted)


def _nothing(_reason: str | None) -> None:
    """Ignore an end that was reported already."""


_HUNG_UP = "the other end hung up in the handshake"
