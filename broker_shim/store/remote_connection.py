"""The connection of a remote store: one thread reads and connects again, one fires completions.

Whoever calls sends, without waiting: what the socket does not take at once the reading thread
sends as soon as it does. So a call never waits for the service, but for a read.

Why nothing is acknowledged that is not durable, and nothing is done twice: `Requests` keeps each
request until the service has said that it is decided; after a lost connection all that are left
are sent again with their numbers, and the service decides each number once.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from broker_shim.completion import OnComplete
from broker_shim.errors import Closed, InvalidRequest, StoreError, Unavailable
from broker_shim.service import protocol as wire
from broker_shim.store.remote_greeting import Address, Greeting, greet
from broker_shim.store.remote_requests import Completed, Requests, Waiting
from broker_shim.store.sink import fire

_log = logging.getLogger(__name__)

_READ_BYTES = _SEND_BYTES = 1 << 18
_MAX_WAITING_BYTES = 256 << 20
_FIRST_BACKOFF_S, _LAST_BACKOFF_S = 0.02, 1.0

Answer = tuple[bool, tuple[Any, ...], StoreError | None]
"""Of a read: if it is the last one, what it brings, or the error instead."""


class RemoteConnection:
    """See above. Any thread may call it.

    Attributes:
        requests: Those without an answer; only under `guard`.
    """

    def __init__(self, address: Address, greeting: Greeting, retry_s: float) -> None:
        """Connect.

        Raises:
            Unavailable: The service did not answer in `retry_s` seconds.
            StoreError: It sent us away, and why.
        """
        self._address, self._greeting, self._retry_s = address, greeting, retry_s
        self.requests = Requests()
        self.guard = threading.RLock()
        self._frame = wire.frame_packer()
        self._reads: dict[int, Callable[[Answer], None]] = {}
        self._last_read = 0
        self._peer: socket.socket | None = None
        self._decoder = wire.Decoder(1 << 24)
        self._rest = memoryview(b"")
        self._failure: StoreError | None = None
        self._is_closing = False
        self._has_ended = threading.Event()
        self._is_idle = threading.Condition(self.guard)
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._fired: SimpleQueue[tuple[OnComplete, StoreError | None] | None] = SimpleQueue()
        self._connect_first()
        self._threads = [
            threading.Thread(target=self._run, name="remote store", daemon=True),
            threading.Thread(target=self._fire, name="completions", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def ask(
        self,
        kind: int,
        body: Sequence[Any],
        on_complete: OnComplete,
        refusal: StoreError | None = None,
        keep_for: int = 0,
        on_unwritable: Callable[[], None] | None = None,
    ) -> None:
        """Send a request; what cannot be sent is refused here, in its turn.

        Args:
            kind: Type of the frame.
            body: Of the frame, without the number.
            on_complete: Called on a thread of its own.
            refusal: What it fails with; then nothing is asked of the service.
            keep_for: The message whose content this is a piece of.
            on_unwritable: Called, instead of refusing it, if a record of it cannot be written: as
                in a store of this process the commit will be refused.

        Raises:
            Closed: The store is closed.
        """
        with self.guard:
            self.check_open()
            if self._failure is not None:
                self._fired.put((on_complete, refusal or self._failure))
                return
            request = self.requests.next_request
            if refusal is None and self.requests.waiting_bytes > _MAX_WAITING_BYTES:
                refusal = Unavailable("too much waits for the store service: retry later")
            frame = b""
            if refusal is None:
                try:
                    frame = self._frame(kind, (request, *body))
                except InvalidRequest as too_large:
                    refusal = too_large
                except (OverflowError, ValueError) as reason:
                    refusal = InvalidRequest(f"a record cannot be written: {reason}")
                    if on_unwritable is not None:
                        on_unwritable()
                        refusal, frame = None, self._frame(wire.DO, (request, ()))
            if refusal is not None:
                frame = self._frame(wire.DO, (request, ()))
            elif keep_for:
                self.requests.keep(keep_for, request, frame)
            self.requests.add(Waiting(request, frame, on_complete, refusal, time.monotonic()))
            self._pump()

    def read(self, kind: int, *body: Any) -> list[tuple[Any, ...]]:
        """Send a read and wait for its answers. Not from the reading thread.

        Raises:
            StoreError: What the service answered; Unavailable if it was gone for too long.
        """
        answers: SimpleQueue[Answer] = SimpleQueue()
        self.start_read(answers.put, kind, *body)
        found: list[tuple[Any, ...]] = []
        while True:
            is_last, answer, error = answers.get()
            if error is not None:
                raise error
            found.append(answer)
            if is_last:
                return found

    def start_read(self, on_answer: Callable[[Answer], None], kind: int, *body: Any) -> None:
        """Send a read; `on_answer` is called for each answer, on the reading thread."""
        with self.guard:
            self.check_open()
            if self._failure is not None:
                on_answer((True, (), self._failure))
                return
            self._last_read += 1
            frame = self._frame(kind, (self._last_read, *body))
            self._reads[self._last_read] = on_answer
            self.requests.add_read(self._last_read, frame)
            self._pump()

    def later(self, on_complete: OnComplete, error: StoreError | None) -> None:
        """Fire a completion after those that were given before."""
        self._fired.put((on_complete, error))

    def close(self) -> None:
        """Wait until everything asked has its answer, then hang up."""
        with self.guard:
            if self._is_closing:
                return
            self._is_closing = True
            self._is_idle.wait_for(lambda: not self.requests)
            self._failure = self._failure or Closed("the store is closed: open a new one")
            self._has_ended.set()
            if self._peer is not None:
                with suppress(OSError):
                    self._peer.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._fired.put(None)
        self._threads[1].join()
        os.close(self._wake)

    def check_open(self) -> None:
        """Raises Closed after `close`."""
        if self._is_closing:
            raise Closed("the store is closed: open a new one")

    def _connect_first(self) -> None:
        until, backoff_s = time.monotonic() + self._retry_s, _FIRST_BACKOFF_S
        while True:
            try:
                self._connect()
            except Unavailable:
                if time.monotonic() >= until:
                    os.close(self._wake)
                    raise
                time.sleep(backoff_s)
                backoff_s = min(2 * backoff_s, _LAST_BACKOFF_S)
            except StoreError:
                os.close(self._wake)
                raise
            else:
                return

    def _connect(self) -> None:
        """One try; then all that has no answer is sent again."""
        peer, decoder, welcome, frames = greet(self._address, self._greeting)
        with self.guard:
            self._settle(self.requests.welcome(welcome))
            self._peer, self._decoder, self._rest = peer, decoder, memoryview(b"")
            self._pump()
        for frame in frames:
            self._take(frame)

    def _run(self) -> None:
        while self._failure is None:
            if self._peer is None:
                self._connect_again()
            else:
                self._serve(self._peer)
        with self.guard:
            failure = self._failure
            assert failure is not None
            self._settle(self.requests.give_up(float("inf"), failure))
            self._fail_reads(failure)
            self._hang_up()

    def _serve(self, peer: socket.socket) -> None:
        """Read, and send what waits, until the connection is lost."""
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        while self._peer is peer:
            poll.register(peer, select.POLLIN | (select.POLLOUT if self._rest else 0))
            ready = dict(poll.poll())
            if self._wake in ready:
                with suppress(BlockingIOError):
                    os.eventfd_read(self._wake)
            with self.guard:
                self._pump(is_writable=True)
            if ready.get(peer.fileno(), 0) & ~select.POLLOUT:
                self._receive(peer)

    def _receive(self, peer: socket.socket) -> None:
        try:
            received = peer.recv(_READ_BYTES, socket.MSG_DONTWAIT)
            frames = self._decoder.feed(received)
        except BlockingIOError:
            return
        except (OSError, InvalidRequest) as reason:
            self._lose(str(reason))
            return
        if not received:
            self._lose("the service hung up")
        for frame in frames:
            self._take(frame)

    def _take(self, frame: wire.Frame) -> None:
        kind, body = frame
        if kind == wire.DONE:
            with self.guard:
                self._settle(self.requests.done(*body))
                self._pump()
        elif kind == wire.ANSWER:
            self._answered(body[0], (body[1], body[2:], None))
        elif kind == wire.FAILED:
            self._answered(body[0], (True, (), wire.error_of(*body[1:])))
        elif kind == wire.GOODBYE:
            error = wire.error_of(*body)
            if not isinstance(error, Unavailable):
                self._fail(error)
            self._lose(str(error))

    def _answered(self, read: int, answer: Answer) -> None:
        with self.guard:
            on_answer = self._reads.get(read)
            if answer[0]:
                self._reads.pop(read, None)
                self.requests.end_read(read)
        if on_answer is not None:
            on_answer(answer)

    def _settle(self, completed: Completed) -> None:
        for one in completed:
            self._fired.put(one)
        if not self.requests:
            self._is_idle.notify_all()

    def _pump(self, *, is_writable: bool = False) -> None:
        """Under the guard: send what may be sent, as far as the socket takes it."""
        if self._peer is None or (self._rest and not is_writable):
            return
        while self._rest or (content := self.requests.take(_SEND_BYTES)):
            if not self._rest:
                self._rest = memoryview(content)
            try:
                sent = self._peer.send(self._rest, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            except BlockingIOError:
                if not is_writable:
                    self._notify()
                return
            except OSError:
                self._rest = memoryview(b"")
                return  # the reading thread finds the end, and what was said before it
            self._rest = self._rest[sent:]

    def _lose(self, reason: str) -> None:
        with self.guard:
            if self._peer is not None and not self._is_closing:
                _log.warning("lost the store service at %s: %s", self._address, reason)
            self._hang_up()

    def _hang_up(self) -> None:
        if self._peer is not None:
            self._peer.close()
            self._peer = None
        self._rest = memoryview(b"")

    def _connect_again(self) -> None:
        lost_s, backoff_s = time.monotonic(), _FIRST_BACKOFF_S
        while self._failure is None:
            try:
                self._connect()
            except Unavailable as reason:
                self._give_up(reason, lost_s)
                self._has_ended.wait(backoff_s)
                backoff_s = min(2 * backoff_s, _LAST_BACKOFF_S)
            except StoreError as error:
                self._fail(error)
            else:
                _log.info("connected to the store service at %s again", self._address)
                return

    def _give_up(self, reason: Unavailable, lost_s: float) -> None:
        """Fail what has waited for `retry_s`, counted from the loss at the earliest."""
        before_s = time.monotonic() - self._retry_s
        error = Unavailable(f"no store service for {self._retry_s:.0f} s: {reason}")
        if lost_s <= before_s:
            with self.guard:
                self._settle(self.requests.give_up(before_s, error))
                self._fail_reads(error)

    def _fail(self, error: StoreError) -> None:
        with self.guard:
            if self._failure is None:
                self._failure = error
                _log.critical("the store service sent us away: %s", error)

    def _fail_reads(self, error: StoreError) -> None:
        reads, self._reads = self._reads, {}
        for read, on_answer in reads.items():
            self.requests.end_read(read)
            on_answer((True, (), error))

    def _notify(self) -> None:
        with suppress(OSError):
            os.eventfd_write(self._wake, 1)

    def _fire(self) -> None:
        while (turn := self._fired.get()) is not None:
            fire(*turn)
