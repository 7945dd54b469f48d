"""Answers to one peer: never a wait for whoever fires completions, never unbounded.

A frame goes straight into the socket if nothing waits before it. Else it waits here, and a thread
of its own, started with the first wait, writes it as the peer reads. DONE that waits at the end
swallows the next DONE, so a slow peer costs one of them. A peer that reads nothing for
`WRITE_TIMEOUT_S`, or lets `MAX_BUFFERED_BYTES` wait, is cut off; nobody else notices.
"""

from __future__ import annotations

import select
import socket
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from broker_shim.errors import Ended, StoreError, Unavailable
from broker_shim.store import protocol as wire
from broker_shim.store.protocol import Refusal

MAX_BUFFERED_BYTES = 16 << 20
ROOM_BYTES = 4 << 20
"""Answers of reads wait while more than this waits: `say_slowly`."""
WRITE_TIMEOUT_S = 30.0
_REFUSAL_BYTES = 100
_SEND_BYTES = 1 << 18


class Outbox:
    """The frames that wait for one peer to read.

    Any thread may call it; the socket is closed by who made it.
    """

    def __init__(self, peer: socket.socket, write_timeout_s: float = WRITE_TIMEOUT_S) -> None:
        self._peer, self._write_timeout_s = peer, write_timeout_s
        self._frame = wire.frame_packer()
        self._guard = threading.Condition()
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._through = self._position = 0
        self._refusals: list[Refusal] = []
        self._writer: threading.Thread | None = None
        self._is_ending = self._is_lost = False

    @property
    def has_room(self) -> bool:
        """True unless so much waits that answers of reads would wait, too."""
        return self._waiting_bytes < ROOM_BYTES

    def done(self, through: int, refusals: Sequence[Refusal], position: int) -> None:
        """Say that requests are decided and durable. Never blocks."""
        with self._guard:
            if self._is_ending or self._is_lost:
                return
            self._position = position  # it only rises, as the log's thread tells in order
            if self._waiting or self._through:
                self._through = max(self._through, through)
                self._refusals += refusals
                self._waiting_bytes += len(refusals) * _REFUSAL_BYTES
                self._check_bound()
            else:
                self._put(self._frame(wire.DONE, (through, refusals, position)))

    def say(self, kind: int, body: Sequence[object]) -> None:
        """Say something. Never blocks."""
        with self._guard:
            if not self._is_ending:
                self._say(kind, body)
                self._check_bound()

    def say_slowly(self, kind: int, body: Sequence[object]) -> bool:
        """Say something large as soon as there is room; False if the peer is gone."""
        with self._guard:
            self._guard.wait_for(
                lambda: self._waiting_bytes < ROOM_BYTES or self._is_ending or self._is_lost
            )
            if self._is_ending or self._is_lost:
                return False
            self._say(kind, body)
            return True

    def goodbye(self, error: StoreError) -> None:
        """Say the last frame, after which the reader finds the end. Never blocks.

        That the store has ended is no answer to what was asked of it. The member keeps its requests
        and brings them to the service that comes next, which knows which of them are done.
        """
        if isinstance(error, Ended):
            error = Unavailable(f"the service ends, connect to the next one: {error}")
        with self._guard:
            if self._is_ending:
                return
            message = str(error).encode("utf-8", "backslashreplace").decode()
            self._say(wire.GOODBYE, (type(error).__name__, message))
            self._is_ending = True
            self._guard.notify_all()
        with suppress(OSError):
            self._peer.shutdown(socket.SHUT_RD)

    def drain(self, timeout_s: float) -> None:
        """Wait until all was said, the peer is gone, or the time is up."""
        with self._guard:
            self._is_ending = True
            self._guard.notify_all()
            self._guard.wait_for(
                lambda: self._is_lost or not (self._waiting or self._through), timeout_s
            )
            self._lose()
        if self._writer is not None:
            self._writer.join()

    def _say(self, kind: int, body: Sequence[object]) -> None:
        self._settle_done()
        self._put(self._frame(kind, body))

    def _settle_done(self) -> None:
        if self._through:
            frame = self._frame(wire.DONE, (self._through, self._refusals, self._position))
            self._waiting_bytes -= len(self._refusals) * _REFUSAL_BYTES
            self._through, self._refusals = 0, []
            self._waiting.append(frame)
            self._waiting_bytes += len(frame)

    def _put(self, frame: bytes) -> None:
        if self._is_lost:
            return
        sent = 0
        if not self._waiting:
            try:
                sent = self._peer.send(frame, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            except BlockingIOError:
                sent = 0
            except OSError:
                self._lose()
                return
            if sent == len(frame):
                return
        self._waiting.append(frame[sent:])
        self._waiting_bytes += len(frame) - sent
        if self._writer is None:
            self._writer = threading.Thread(target=self._write, name="answers", daemon=True)
            self._writer.start()
        self._guard.notify_all()

    def _check_bound(self) -> None:
        if self._waiting_bytes > MAX_BUFFERED_BYTES:
            self._lose()

    def _lose(self) -> None:
        """Give the peer up, under the guard: nothing more can be said."""
        self._is_lost = True
        self._waiting.clear()
        self._waiting_bytes = self._through = 0
        self._refusals = []
        self._guard.notify_all()
        with suppress(OSError):
            self._peer.shutdown(socket.SHUT_RD)

    def _write(self) -> None:
        poll = select.poll()
        poll.register(self._peer, select.POLLOUT)
        while (chunk := self._next()) is not None:
            if not poll.poll(self._write_timeout_s * 1000):
                with self._guard:
                    self._lose()
                return
            try:
                sent = self._peer.send(chunk, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            except BlockingIOError:
                sent = 0
            except OSError:
                with self._guard:
                    self._lose()
                return
            self._sent(sent)

    def _next(self) -> bytes | memoryview | None:
        with self._guard:
            while not self._waiting:
                self._settle_done()
                if self._waiting:
                    break
                if self._is_lost or self._is_ending:
                    return None
                self._guard.wait()
            return memoryview(self._waiting[0])[:_SEND_BYTES]

    def _sent(self, sent: int) -> None:
        with self._guard:
            if not self._waiting:
                return  # cut off meanwhile
            first = self._waiting[0]
            self._waiting_bytes -= sent
            if sent == len(first):
                self._waiting.popleft()
            else:
                self._waiting[0] = first[sent:]
            self._guard.notify_all()
