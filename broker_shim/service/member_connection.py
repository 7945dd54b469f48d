"""One connection of a member: a thread that reads, decides all that came, and reads on.

Answers of requests come from the log's thread, in the order of the log, so those of a connection
rise. Reads that only look are answered by a thread of their own, so that content read from disk
holds no request up. They see every request that came before them, as those were decided first.
"""

from __future__ import annotations

import hmac
import logging
import select
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from broker_shim.errors import Fenced, InvalidRequest, NotNow, StoreError, Unavailable
from broker_shim.service.decisions.arrivals import check_link
from broker_shim.service.decisions.decisions import Decisions
from broker_shim.service.dispatcher import DISPATCHING, Dispatcher, check_frame
from broker_shim.service.grace import MemberTimers
from broker_shim.service.member_reads import ReadWorker
from broker_shim.service.members import Audit, ConnectedMember, MemberEvent, Members
from broker_shim.service.outbox import Outbox
from broker_shim.service.requests import REQUESTS, BatchDecision, refusals_of
from broker_shim.service.seen_root import ServedRoot, reason_to_fence
from broker_shim.service.socket import remote_of
from broker_shim.store import protocol as wire
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.protocol import Decoder, Frame, Hello
from sparkstore.core import fold

_log = logging.getLogger(__name__)

_READ_BYTES = 1 << 18
_ROOM_WAIT_S = 5.0
_ROOM_RETRY_S = 0.02
_LINGER_S = 1.0
_FIRST_OF_BROKERS = 5
"""The version of GRANTED, in which messages are handed out: who speaks 4 does not know it."""


class MemberConnection:
    """The service's end of one member's connection.

    Attributes:
        peer: Its socket, closed at the end of `run`.
        name: For the log: its member, once it said who it is.
        has_greeted: True once it is welcome; before that it gives way to others.
    """

    def __init__(
        self,
        peer: socket.socket,
        store: DeltaMessageStore,
        members: Members,
        opened: ServedRoot,
        token: str | None,
        audit: Audit,
        dispatcher: Dispatcher | None = None,
        timers: MemberTimers | None = None,
    ) -> None:
        """Serve a peer; one on TCP must know `token`.

        Args:
            peer: The connected socket of the member.
            store: Decides its requests.
            members: Everybody who is or was connected.
            opened: The root as this run of the service found it.
            token: The secret of the service; None on a unix socket.
            audit: Told who comes and goes.
            dispatcher: Hands messages out to consumers on members.
            timers: End the grace of a member that is gone.
        """
        self.peer, self._remote = peer, remote_of(peer)
        self.has_greeted = False
        self.name = f"a peer ({self._remote})"
        self._audit = audit
        self._said: str | None = None
        self._version = wire.VERSION
        self._store, self._members, self._token = store, members, token
        self._opened = opened
        self._outbox = Outbox(peer)
        self._reads = ReadWorker(store, self._outbox)
        self._decoder = Decoder()
        self._decoder.max_frame_bytes = wire.MAX_HELLO_BYTES  # until it is welcome
        self._buffer = bytearray(_READ_BYTES)
        self._member: ConnectedMember | None = None
        self._ending: StoreError | None = None
        self._has_ended = threading.Event()
        self._taken = self._answered = 0
        self._dispatcher, self._timers = dispatcher, timers

    def run(self) -> None:
        """Serve until either side ends it."""
        try:
            self._serve()
        except StoreError as error:
            _log.warning("%s is sent away: %s: %s", self.name, type(error).__name__, error)
            self._audit(MemberEvent.REFUSED, peer=self._remote, member=self._said, reason=error)
            self._members.sent_away()
            self._outbox.goodbye(error)
        except ConnectionError as reason:  # its process was killed, say
            _log.info("%s: %s", self.name, reason)
        except Exception:  # noqa: BLE001 - one peer's fault must not end the service
            _log.exception("the connection of %s failed and is ended", self.name)
            self._outbox.goodbye(Unavailable("the service failed on this: see its log"))
        finally:
            self._leave()

    def end(self, error: StoreError) -> None:
        """Say goodbye after the answers of what is decided; from any thread."""
        self._ending = error
        self._has_ended.set()
        with suppress(OSError):
            self.peer.shutdown(socket.SHUT_RD)

    def is_lost(self) -> bool:
        """Tell whether the peer has hung up."""
        poll = select.poll()
        with suppress(OSError, ValueError):
            poll.register(self.peer, select.POLLRDHUP)
            return bool(poll.poll(0))
        return True

    def displace(self, reason: StoreError) -> None:
        """End this connection for a newer one: nothing of it is decided any more.

        Under the store's lock.
        """
        self.end(reason)

    def _serve(self) -> None:
        frames = self._first_frames()
        if not frames:
            return
        hello = wire.hello_of(frames[0])
        self._check_token(hello)
        self._greet(hello)
        self.has_greeted = True
        self._decoder.max_frame_bytes = wire.MAX_FRAME_BYTES
        _log.info("%s is connected", self.name)
        self._audit(MemberEvent.CONNECTED, peer=self._remote, member=hello.member)
        self._take(frames[1:])
        view = memoryview(self._buffer)
        while self._ending is None and (count := self.peer.recv_into(self._buffer)):
            self._take(self._decoder.feed(view[:count]))
        if self._ending is not None:
            self._say_goodbye_in_turn(self._ending)

    def _first_frames(self) -> list[Frame]:
        """Receive up to the end of the first frame; empty if the peer left before."""
        poll, until = select.poll(), time.monotonic() + wire.HELLO_TIMEOUT_S
        poll.register(self.peer, select.POLLIN)
        while True:
            left_ms = (until - time.monotonic()) * 1000
            if left_ms <= 0 or not poll.poll(left_ms):
                message = f"no HELLO came within {wire.HELLO_TIMEOUT_S:.0f} s"
                raise InvalidRequest(message)
            if not (received := self.peer.recv(wire.MAX_HELLO_BYTES)):
                return []
            if frames := self._decoder.feed(received):
                return frames

    def _check_token(self, hello: Hello) -> None:
        if self._token is None:
            return
        token = (hello.token or "").encode()
        if not hmac.compare_digest(token, self._token.encode()):
            raise InvalidRequest("wrong token: give the client the service's token file")

    def _greet(self, hello: Hello) -> None:
        self.name, self._said = f"member {hello.member!r}", hello.member
        self._version = hello.version
        self._check_seen(hello)
        if hello.exclusive and self._dispatcher is not None:
            self._dispatcher.check_exclusive(self)
        with self._store.batch() as batch:
            self._member = self._members.greet(batch, hello, self)
            self._reads.member = hello.member
            if self._timers is not None:
                self._timers.grace.lease(hello.member, hello.lease_s)
                self._timers.grace.came(hello.member)
            state = batch.machine.state
            member = state.members.get(hello.member, fold.MemberState())
            refusals = refusals_of(state, hello.member, 0, member.last_request)
            welcome = (
                hello.version,
                member.last_request,
                self._opened.instance,
                self._opened.root_id,
                refusals,
                wire.MAX_FRAME_BYTES,
                wire.MAX_WAITING_REQUESTS,
                self._opened.generation,
                batch.position,
            )
            # In its turn: what it calls done is durable when it is said.
            batch.finish(partial(self._answer, wire.WELCOME, welcome))

    def _check_seen(self, hello: Hello) -> None:
        """Send away who has seen what the root does not have."""
        if hello.seen is None:
            return
        # A host has its queues in memory, and is told of them once.
        reason = reason_to_fence(hello.seen, self._opened, is_told_anew=hello.host is None)
        if reason is not None:
            raise Fenced(reason)

    def _take(self, frames: Sequence[Frame]) -> None:
        start = 0
        for index, (kind, body) in enumerate(frames):
            if kind not in REQUESTS:
                self._decide(frames[start:index])
                start = index + 1
                if kind == wire.IDS:
                    self._reserve(body)
                elif kind in DISPATCHING:
                    self._dispatch(kind, body)
                else:
                    self._reads.take(kind, body)
                    if kind == wire.LINK and self._dispatcher is not None:
                        with suppress(InvalidRequest):  # its read is answered so, and moves none
                            check_link(body[-1])
                            self._dispatcher.link_moves(self, body[-1])
        self._decide(frames[start:])

    def _decide(self, frames: Sequence[Frame]) -> None:
        """Decide requests; while the log has no room, nothing more is read: the peer waits."""
        if not frames:
            return
        count = sum(map(wire.request_count, frames))
        self._taken += count
        if self._taken - self._answered > wire.MAX_WAITING_REQUESTS:
            message = f"more than {wire.MAX_WAITING_REQUESTS} requests wait for their answers"
            raise InvalidRequest(message)
        until = time.monotonic() + _ROOM_WAIT_S
        while self._ending is None:
            try:
                self._decide_now(frames, count)
            except NotNow:
                if time.monotonic() >= until or self._has_ended.wait(_ROOM_RETRY_S):
                    raise
            else:
                return

    def _decide_now(self, frames: Sequence[Frame], count: int) -> None:
        member = self._member
        assert member is not None
        with self._store.batch() as batch:
            if member.peer is self:
                decided = member.requests.decide(batch, frames)
                if self._timers is not None and decided.holders:
                    self._timers.grace.gone(filter(self._members.is_away, decided.holders))
                if self._timers is not None and any(kind == wire.OPEN for kind, _ in frames):
                    self._timers.transactions.gone([member.name])
                batch.finish(partial(self._decided, decided, count, batch.position))

    def _decided(
        self, decided: BatchDecision, count: int, position: int, error: StoreError | None
    ) -> None:
        """Answer requests that are durable; on the log's thread."""
        self._answered += count
        if error is None:
            self._outbox.done(decided.through, decided.refusals, position)
        else:
            self._outbox.goodbye(error)

    def _reserve(self, body: wire.Body) -> None:
        if len(body) != 2 or type(body[0]) is not int or type(body[1]) is not int:
            raise InvalidRequest("IDS is [read, count]")
        read, count = body
        if not 0 < count <= wire.MAX_IDS:
            message = f"IDS reserves from 1 to {wire.MAX_IDS} message ids, not {count}"
            raise InvalidRequest(message)
        with self._store.batch() as batch:
            first, steps = batch.machine.reserve(count)
            batch.take(steps)
            batch.finish(partial(self._answer, wire.ANSWER, (read, True, first)))

    def _dispatch(self, kind: int, body: wire.Body) -> None:
        check_frame(kind, body)
        if kind in {wire.SUBSCRIBE, wire.WATCH} and self._version < _FIRST_OF_BROKERS:
            message = (
                f"a broker that is a member speaks version {_FIRST_OF_BROKERS} at least of the"
            )
            raise InvalidRequest(f"{message} store protocol, not {self._version}: update it")
        if self._dispatcher is None:
            raise InvalidRequest("this service hands no messages out: ask `acquire` for them")
        self._dispatcher.take(self, kind, body)

    @property
    def member(self) -> str:
        """The name of the member."""
        return self._reads.member

    @property
    def service_run(self) -> str:
        """The run of the service, as WELCOME told it."""
        return self._opened.instance

    @property
    def decisions(self) -> Decisions:
        """The decisions for records of this member."""
        assert self._member is not None
        return self._member.decisions

    @property
    def is_over(self) -> bool:
        """True once this connection is ending."""
        return self._ending is not None

    @property
    def has_room(self) -> bool:
        """True while the outbox has room for content."""
        return self._outbox.has_room

    def say(self, kind: int, body: Sequence[object]) -> None:
        """Send a frame by the outbox."""
        self._outbox.say(kind, body)

    def _answer(self, kind: int, body: Sequence[object], error: StoreError | None) -> None:
        if error is None:
            self._outbox.say(kind, body)
        else:
            self._outbox.goodbye(error)

    def _say_goodbye_in_turn(self, error: StoreError) -> None:
        was_sent = threading.Event()

        def say(_outcome: StoreError | None) -> None:
            self._outbox.goodbye(error)
            was_sent.set()

        with self._store.batch() as batch:
            batch.finish(say)
        was_sent.wait(_ROOM_WAIT_S)

    def _leave(self) -> None:
        if self._member is not None:
            _log.info("%s is gone; %d requests", self.name, self._taken)
            self._audit(
                MemberEvent.GONE, peer=self._remote, member=self._said, requests=self._taken
            )
            self._members.leave(self._member, self)
            if self._ending is None and self._member.is_exclusive:
                with suppress(StoreError), self._store.batch() as batch:
                    self._members.left_alone(batch, self._member)
        if self._dispatcher is not None:
            self._dispatcher.left(self)  # before its grace begins, and so before that is over
        if self._timers is not None and self._member is not None and self._member.peer is None:
            self._timers.grace.gone([self._member.name])
        self._reads.end()
        self._outbox.drain(_LINGER_S if self._ending is None else _ROOM_WAIT_S)
        with suppress(OSError):
            self.peer.shutdown(socket.SHUT_WR)
        self._linger()
        self.peer.close()

    def _linger(self) -> None:
        """Read on for a moment, so that the peer gets our last words and not a reset."""
        poll, until = select.poll(), time.monotonic() + _LINGER_S
        with suppress(OSError, ValueError):
            poll.register(self.peer, select.POLLIN)
            while (left := until - time.monotonic()) > 0 and poll.poll(left * 1000):
                if not self.peer.recv(_READ_BYTES):
                    return
