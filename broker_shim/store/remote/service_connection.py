"""The connection of a remote store: one thread reads, fires completions, and connects again.

Whoever calls sends, without waiting: what the socket does not take at once the reading thread
sends as soon as it does. So a call never waits for the service, but for a read.

Why nothing is acknowledged that is not durable, and nothing is done twice: `PendingRequests` keeps
each request until the service has said that it is decided. After a lost connection all that are
left are sent again with their numbers, and the service decides each number once.

Why completions are not fired by a thread of their own: whoever waits for a call would wait for one
more thread to wake up. That costs as much as the service needs to decide.

What a completion may do, then: whatever it may do in a store of this process. It may call the
store. A read that it makes is answered, because the reading thread goes on reading inside that call
(`RemoteConnection.collect`). Completions that come meanwhile wait until this one is over.

The service decides what one read brought under one holding of its lock, and answers it by one
frame. So what a turn of a member's loop asks for is written together, at the turn's end.

Why nothing waits for a turn's end that does not come. A request with none before it goes at once:
a lone caller waits no longer than without turns. Any other goes when one before it is answered, at
the latest, as that has all sent that is still to be. So does a read, and the end of the store.
Frames go in their order, whoever sends them.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from broker_shim.completion import OnComplete
from broker_shim.errors import Closed, Fenced, InvalidRequest, NotNow, StoreError, Unavailable
from broker_shim.store import protocol as wire
from broker_shim.store.protocol import SeenRoot
from broker_shim.store.remote.greeting import (
    FIRST_BACKOFF_S,
    LAST_BACKOFF_S,
    AddressList,
    Greeted,
    MemberIdentity,
    greet,
    greet_patiently,
)
from broker_shim.store.remote.peer_socket import Sending
from broker_shim.store.remote.pending_requests import (
    Answer,
    Completed,
    OnAnswer,
    PendingReads,
    PendingRequests,
    Waiting,
    answer_of,
    framed,
)
from broker_shim.store.remote.service_listener import PUSHED, ServiceListener
from broker_shim.store.remote.turns import RemoteCompletions, SendingTurns

_log = logging.getLogger(__name__)

_READ_BYTES = 1 << 18
_MAX_WAITING_BYTES = 256 << 20
_TURN_OVER_S = 10.0
"""How long a machine may take to end its service after the other one took its root over."""
_END_S = 2.0
"""How long the end of the reading thread is waited for."""


class RemoteConnection:
    """A connection that sends for any thread, and connects again when it is lost.

    Attributes:
        requests: Those without an answer; only under `guard`.
        turns: Has what a loop asks in a turn sent at the turn's end.
        service_run: Which run of the service it is, or was, connected to.
        root_id: Identity of the root that it serves.
        close_s: How long `close` waits for answers.
    """

    def __init__(
        self,
        addresses: AddressList,
        greeting: MemberIdentity,
        retry_s: float,
        close_s: float | None = None,
        seen: SeenRoot | None = None,
    ) -> None:
        """Connect; raises Unavailable without an answer in `retry_s` s, or why it sent us away.

        `close` waits for `close_s`, or as long as a request does.
        """
        greeted = greet_patiently(addresses, greeting, retry_s, seen)
        self._addresses, self._greeting, self._retry_s = addresses, greeting, retry_s
        self.close_s = retry_s if close_s is None else close_s
        self.requests = PendingRequests()
        self.guard = threading.RLock()
        self._frame = wire.frame_packer()
        self._reads = PendingReads()
        self._sending: Sending | None = None
        self._decoder = wire.Decoder(1 << 24)
        self._failure: StoreError | None = None
        self._given_up: StoreError | None = None
        self._listener: ServiceListener | None = None
        self._is_closing = self._is_over = False
        self._lost_s = self._backoff_s = 0.0
        self.service_run = self._told_run = greeted[2].instance
        self._seen = _seen_by(greeted[2])
        self.root_id = greeted[2].root_id
        self._has_ended, self._is_idle = threading.Event(), threading.Condition(self.guard)
        self._completions = RemoteCompletions()
        self.turns = SendingTurns(self._pump, self.guard)
        self._wake = os.eventfd(0, os.EFD_CLOEXEC)
        self._adopt(greeted)
        self._thread = threading.Thread(target=self._run, name="remote store", daemon=True)
        self._thread.start()

    def ask(
        self,
        kind: int,
        body: Sequence[Any],
        on_complete: OnComplete,
        refusal: StoreError | None = None,
        keep_for: int = 0,
        on_unwritable: Callable[[], None] | None = None,
        outcomes: list[StoreError | None] | None = None,
    ) -> None:
        """Send a request; what cannot be sent is refused here, in its turn.

        Args:
            kind: Type of the frame.
            body: Of the frame, without the number.
            on_complete: Called on the reading thread, under no lock.
            refusal: What it fails with; then nothing is asked of the service.
            keep_for: The message whose content this is a piece of.
            on_unwritable: Called, instead of refusing it, if a record of it cannot be written: as
                in a store of this process the commit will be refused.
            outcomes: If it is many requests: gets what came of each, before `on_complete`.

        Raises:
            Closed: The store is closed.
        """
        with self.guard:
            self.check_open()
            if self._failure is not None:
                self.complete(on_complete, refusal or self._failure)
                return
            request = self.requests.next_request
            if refusal is None and self.requests.waiting_bytes > _MAX_WAITING_BYTES:
                refusal = Unavailable("too much waits for the store service: retry later")
            if refusal is not None:
                kind, body = wire.DO, ((),)
            asked = (request, *body)
            kind, frame, unwritable = framed(self._frame, kind, asked, on_unwritable)
            refusal = refusal or unwritable
            if keep_for and refusal is None:
                self.requests.keep(keep_for, request, frame)
            outcomes, is_first = None if kind == wire.DO else outcomes, not self.requests
            waiting = (request, frame, on_complete, refusal, time.monotonic(), outcomes)
            self.requests.add(Waiting(*waiting))
            self.turns.pump(is_urgent=is_first)

    def read(self, kind: int, *body: Any) -> list[tuple[Any, ...]]:
        """Send a read and wait for its answers; raises as `collect`."""
        answers: SimpleQueue[Answer] = SimpleQueue()
        self.start_read(answers.put, kind, *body)
        return self.collect(answers)

    def collect(self, answers: SimpleQueue[Answer]) -> list[tuple[Any, ...]]:
        """Wait for all answers of a read. Not by a listener, nor by who is told of an answer.

        A completion may: it is called on the reading thread, which reads on here.

        Raises:
            StoreError: What the service answered; Unavailable if it was gone for too long.
        """
        rows: list[tuple[Any, ...]] = []
        is_reading, is_last = threading.current_thread() is self._thread, False
        while not is_last:
            while is_reading and answers.empty():
                self._step()
            is_last, answer, error = answers.get()
            if error is not None:
                raise error
            rows.append(answer)
        return rows

    def start_read(self, on_answer: OnAnswer, kind: int, *body: Any) -> None:
        """Send a read; `on_answer` gets each answer, on the reading thread, once all are there."""
        with self.guard:
            self.check_open()
            if self._failure is not None:
                on_answer((True, (), self._failure))
                return
            read = self._reads.add(on_answer)
            frame = self._frame(kind, (read, *body))
            self.requests.add_read(read, frame, is_order=kind == wire.ORDER)
            self._pump()

    def complete(self, on_complete: OnComplete, error: StoreError | None) -> None:
        """Fire a completion that is no request's, after those that are due."""
        self._completions.put(on_complete, error)
        self._wake_reader()

    def listen(self, listener: ServiceListener) -> None:
        """Tell a listener what comes from now on; first that there is a connection, if there is."""
        with self.guard:
            self._listener = listener
            if self._sending is not None:
                self._tell_connected()

    def say(self, kind: int, *body: Any) -> None:
        """Say what has no answer; nothing is said while there is no connection."""
        with self.guard:
            if self._sending is not None and not self._is_closing:
                self.requests.add_word(self._frame(kind, body))
                self.turns.pump(is_urgent=False)

    def connect_again(self) -> None:
        """Give the connection up, as if it were lost: the reading thread makes the next one."""
        with self.guard, suppress(OSError):
            if self._sending is not None:
                self._sending.peer.shutdown(socket.SHUT_RDWR)

    def give_up(self) -> None:
        """Fail all that has no answer, now: nobody waits for the service any longer.

        Any thread may call it, also while others wait for an answer, or for `close`.
        """
        with self.guard:
            if self._is_over or self._failure is not None or not (self.requests or self._reads):
                return
            text = f"the store service at {self._addresses} did not answer in time: of"
            text = f"{text} {len(self.requests)} requests it is not known whether they were done"
            self._failure = Unavailable(text)
            self._given_up = self._failure if self.requests else None
            # Here, as the reading thread may be about to connect, which takes its time.
            self._settle(self.requests.give_up(float("inf"), self._failure))
            self._fail_reads(self._failure)
            self._wake_reader()

    def close(self) -> None:
        """Wait until everything asked has its answer, or it is late, then hang up.

        Raises:
            Unavailable: It was late, or `give_up` was called, and requests had no answer.
        """
        with self.guard:
            if self._is_closing:
                return
            self._is_closing = True
            self._pump()
            if not self._is_idle.wait_for(lambda: not self.requests, self.close_s):
                self.give_up()
            self._failure = self._failure or Closed("the store is closed: open a new one")
            self._has_ended.set()
            if self._sending is not None:
                with suppress(OSError):
                    self._sending.peer.shutdown(socket.SHUT_RDWR)
            self._is_over = True
            self._wake_reader()
        self._thread.join(_END_S)
        if not self._thread.is_alive():  # else it connects, which has a limit, and then ends
            os.close(self._wake)
        if self._given_up is not None:
            raise self._given_up

    @property
    def trouble(self) -> StoreError | None:
        """The reason why nothing is decided now; None if the service is connected.

        Read without the guard, by whoever shows it: it may be a moment old.
        """
        if self._failure is not None or self._sending is not None:
            return self._failure
        away_s = time.monotonic() - self._lost_s
        return Unavailable(
            f"the store service at {self._addresses} is away since {away_s:.0f} s: start it again"
        )

    def check_open(self) -> None:
        """Check that the store is open. Raises Closed after `close`."""
        if self._is_closing:
            raise Closed("the store is closed: open a new one")

    def _adopt(self, greeted: Greeted) -> None:
        """Take a new connection into use, and send again all that has no answer."""
        peer, decoder, welcome, frames = greeted
        with self.guard:
            self.service_run = welcome.instance
            self._seen = _seen_by(welcome)
            # What WELCOME says is decided completes first; `_pump` sends the rest again.
            self._settle(self.requests.welcome(welcome))
            self._reads.begin_anew()
            self._sending, self._decoder = Sending(peer, self._wake), decoder
            self._pump()
            self._tell_connected()
        self._take_all(frames)

    def _tell_connected(self) -> None:
        if self._listener is not None:
            is_new_run, self._told_run = self.service_run != self._told_run, self.service_run
            self._listener.connected(is_new_run=is_new_run)

    def _run(self) -> None:
        while self._failure is None:
            self._step()
            self._completions.fire()
        while not self._is_over:
            self._step()
            self._completions.fire()
            self._wait_for_wake()
        self._step()  # what was asked before it was over
        self._completions.fire()

    def _step(self) -> None:
        """Do what is next: wait for what the service says, look for it, or tell that it is over."""
        if self._failure is not None:
            self._fail_all(self._failure)
        elif self._sending is None:
            self._connect_again()
        else:
            self._serve(self._sending)

    def _fail_all(self, failure: StoreError) -> None:
        with self.guard:
            self._settle(self.requests.give_up(float("inf"), failure))
            self._fail_reads(failure)
            self._hang_up()

    def _serve(self, sending: Sending) -> None:
        """Wait for the socket or a wake-up; send what waits, and read what came."""
        is_woken, is_readable = sending.wait()
        if is_woken:
            self._wait_for_wake()
        with self.guard:
            sending.pump(self.requests)
        if is_readable:
            self._receive(sending.peer)

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
        self._take_all(frames)

    def _take_all(self, frames: Iterable[wire.Frame]) -> None:
        """Act on frames in their order: what one completes is told before what the next says.

        One read may bring that a rejection is done, and that its message, which came round, is
        granted anew: told the other way round, the end of the first would end the second.
        """
        for frame in frames:
            self._take(frame)
            self._completions.fire()

    def _take(self, frame: wire.Frame) -> None:
        kind, body = frame
        fenced = wire.fenced_by(frame)
        if fenced is not None and self._passes(fenced, time.monotonic()):
            self._lose(str(fenced))  # what it did not do is asked of the machine that took over
            self._addresses.go_on()
        elif kind == wire.DONE:
            with self.guard:
                through, refusals, position = body
                self._settle(self.requests.done(through, refusals))
                self._seen = self._seen._replace(position=position)
                self._pump()
        elif kind in PUSHED:
            if self._listener is not None:
                self._listener.hear(kind, body)
        elif kind in {wire.ANSWER, wire.FAILED}:
            self._answered(body[0], answer_of(frame))
        elif kind == wire.GOODBYE:
            error = wire.error_of(*body)
            if not self._passes(error, time.monotonic()):
                self._fail(error)
            self._lose(str(error))

    def _answered(self, read: int, answer: Answer) -> None:
        with self.guard:
            answered = self._reads.answered(read, answer)
            if answer[0]:
                self.requests.end_read(read)
                self._pump()
        if answered is not None:
            on_answer, answers = answered
            for piece in answers:
                on_answer(piece)

    def _settle(self, completed: Completed) -> None:
        for one in completed:
            self._completions.put(*one)
        if not self.requests:
            self._is_idle.notify_all()

    def _pump(self) -> None:
        """Under the guard, by callers: if the socket takes no more, the reading thread goes on."""
        sending = self._sending
        if sending is not None and not sending.is_blocked:
            is_all = sending.pump(self.requests)
            if not is_all:
                self._wake_reader()

    def _lose(self, reason: str) -> None:
        with self.guard:
            if self._sending is not None and not self._is_closing:
                _log.warning("lost the store service at %s: %s", self._addresses.current, reason)
            self._hang_up()

    def _hang_up(self) -> None:
        if self._sending is not None:
            self._sending.peer.close()
            self._sending = None
            self._lost_s, self._backoff_s = time.monotonic(), 0.0

    def _connect_again(self) -> None:
        """Try once, and later each time."""
        self._has_ended.wait(self._backoff_s)
        try:
            self._adopt(greet(self._addresses.current, self._greeting, self._seen))
        except StoreError as error:
            if not self._passes(error, self._lost_s):
                self._fail(error)
                return
            self._addresses.go_on()
            self._give_up(error, self._lost_s)
            self._backoff_s = min(max(2 * self._backoff_s, FIRST_BACKOFF_S), LAST_BACKOFF_S)
        else:
            _log.info("connected to the store service at %s again", self._addresses.current)

    def _passes(self, error: StoreError, lost_s: float) -> bool:
        """Tell whether to try again after an error, here or at the other machine of a pair.

        A machine whose root the other one took over says `Fenced` until its service has ended. The
        one that serves says so, too, to a member that has seen more than it has: that stays.
        """
        is_recent = time.monotonic() - lost_s < _TURN_OVER_S
        is_taken_over = isinstance(error, Fenced) and self._addresses.is_pair and is_recent
        return isinstance(error, NotNow) or is_taken_over

    def _give_up(self, reason: StoreError, lost_s: float) -> None:
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
        for read, on_answer in self._reads.end_all().items():
            self.requests.end_read(read)
            on_answer((True, (), error))

    def _wake_reader(self) -> None:
        os.eventfd_write(self._wake, 1)

    def _wait_for_wake(self) -> None:
        os.eventfd_read(self._wake)


def _seen_by(welcome: wire.Welcome) -> SeenRoot:
    """Tell the root that a service serves, by its welcome."""
    return SeenRoot(welcome.root_id, welcome.generation, welcome.instance, welcome.position)
