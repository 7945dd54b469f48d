"""Accept connections, serve them, and say goodbye at the end."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

from broker_shim.broker.settings import BrokerSettings
from broker_shim.broker.storage.loop import Loop
from broker_shim.broker.virtual_host import Broker
from broker_shim.security.guard import Guard, Remote
from broker_shim.security.rules.limits import Newcomer
from broker_shim.security.summed_refusals import INTERVAL_S
from broker_shim.sockets.access import LOOPBACK, Access, identified
from broker_shim.sockets.descriptors import SCARCE, is_scarce
from broker_shim.sockets.served_connection import ConnectionHost, ServedConnection
from broker_shim.sockets.tls_transport import TlsTransport
from broker_shim.sockets.transport import PeerProtocol
from broker_shim.sockets.turns import Turns
from sparkstore.core.queue_names import shown

_log = logging.getLogger(__name__)

_READ_BYTES = 1 << 17
_ACCEPTS_IN_TURN = 64
_FAREWELL_S = 2.0
_ACCEPT_PAUSE_S = 1.0
"""After a failed accept: what was not accepted keeps the socket ready, and the loop would spin."""


class Successor(Protocol):
    """The machine that goes on when this one has ended its service."""

    @property
    def is_expected(self) -> bool:
        """Tell whether some machine is to serve soon, so that peers are to look for it."""
        ...

    def go_on(self) -> None:
        """Have it take over: nothing is under way here. Called once, amid a clean end."""


class Listener:
    """Serves until `stop` has been asked for and everything under way has ended, or `end`.

    One thread runs `run`; `stop` may be called from any other, too.

    Attributes:
        successor: The machine that may take over from this one; None: there is none.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._peers: set[PeerProtocol] = set()
        self._to_write: set[PeerProtocol] = set()
        self._arriving: dict[Newcomer, Callable[[], object]] = {}
        self._listening: dict[socket.socket, ConnectionHost] = {}
        self._broker: Broker
        self._settings: BrokerSettings
        self._guard = LOOPBACK.guard
        self._buffer = memoryview(bytearray(_READ_BYTES))
        self._turns = Turns()
        self._stopping_since_s = 0.0
        self._is_stop_asked = self._is_ending = False
        self._is_telling_due = self._is_serving = False
        self.successor: Successor | None = None
        loop.at_end_of_turn(self._end_turn)

    def listen(
        self,
        host: ConnectionHost,
        listening: socket.socket,
        guard: Guard = LOOPBACK.guard,
    ) -> None:
        """Serve connections that come to a listening socket; unless a guard is given, of anybody.

        Call it once for each protocol, with one guard. Certificates that the guard reloads are for
        the next connection.
        """
        self._broker, self._settings = host.broker, host.broker.settings
        self._guard, self._is_serving = guard, True
        self._listening[listening] = host
        listening.setblocking(False)  # noqa: FBT003  # the library's signature
        self._loop.on_readable(listening, partial(self._accept, listening))

    @property
    def connection_count(self) -> int:
        """Connections that are open."""
        return len(self._peers)

    def stop(self) -> None:
        """Ask for a clean end; safe from any thread, and in a signal handler of the loop."""
        self._is_stop_asked = True
        self._loop.post(self._loop.wake)

    def end(self, reason: str) -> None:
        """End without waiting for what is under way: every peer is told why. May be called again.

        No peer gets an outcome of what it sent or settled and was not told: nobody knows it.
        """
        if self._is_ending:
            return
        self._is_ending = True
        self._stop_listening()
        for peer in list(self._peers):
            peer.say_goodbye(reason)
        self._loop.later(_FAREWELL_S, self._loop.stop)
        self._stop_without_peers()

    def _stop_without_peers(self) -> None:
        if self._peers:
            self._loop.later(0.01, self._stop_without_peers)
        else:
            self._loop.stop()

    def end_unknown(self) -> None:
        """End the connections of users who are not in the users file any more."""
        for peer in self._peers:
            if not peer.connection.login.is_known:
                text = f"{shown(peer.connection.login.principal.name)} may not connect any more"
                peer.connection.close_unauthorized(text)

    def connections(self) -> list[ServedConnection]:
        """Return the connections that are there, in no order."""
        return [peer.connection for peer in self._peers]

    def run(self) -> None:
        """Serve connections; returns after `stop` or `end`."""
        self._loop.run()

    def close(self) -> None:
        """Let go of every socket, and of the loop."""
        self._stop_listening()
        for end in list(self._arriving.values()):
            end()
        for peer in list(self._peers):
            peer.close()
        self._loop.close()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_ACCEPTS_IN_TURN):
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, ConnectionAbortedError):  # no more, or gone again
                return
            except OSError as reason:  # no descriptor left, say: the others go on
                _log.warning("a connection was not accepted: %s", reason)
                self._pause_accepting(listening)
                return
            remote = Remote(*address[:2])
            if self._refuses(remote, accepted):
                accepted.close()
            else:
                self._greet(accepted, remote, self._listening[listening])

    def _refuses(self, remote: Remote, accepted: socket.socket) -> bool:
        """True if there are too many connections already, or file descriptors in use."""
        reason: str | None = SCARCE
        if not is_scarce(accepted):
            reason = self._guard.half_open.refusal_of_newcomer(
                remote.host,
                len(self._peers) + len(self._arriving),
                most=self._settings.max_connections,
                most_half_open=self._settings.max_half_open,
                now_s=time.monotonic(),
            )
        if reason is not None:
            self._guard.connection_refused(remote, reason)
        return reason is not None

    def _pause_accepting(self, listening: socket.socket) -> None:
        self._loop.forget(listening)
        self._loop.later(_ACCEPT_PAUSE_S, partial(self._resume_accepting, listening))

    def _resume_accepting(self, listening: socket.socket) -> None:
        if listening in self._listening:
            self._loop.on_readable(listening, partial(self._accept, listening))

    def _greet(self, accepted: socket.socket, remote: Remote, host: ConnectionHost) -> None:
        """Make a transport of a socket, and a peer: at once, or after the handshake of TLS."""
        accepted.setblocking(False)  # noqa: FBT003
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        newcomer = self._guard.half_open.enter(remote.host)
        peer, context = self._peer(remote, newcomer, host), self._guard.context
        protocol = peer if context is None else self._tls(peer, context, remote, newcomer)
        task = self._loop.asyncio.create_task(self._serve(accepted, protocol, newcomer))
        self._arriving[newcomer] = task.cancel
        newcomer.on_give_way = partial(self._give_way, remote, partial(self._turn_away, newcomer))
        task.add_done_callback(partial(self._greeted_one, accepted, newcomer))

    async def _serve(
        self, accepted: socket.socket, protocol: PeerProtocol | TlsTransport, newcomer: Newcomer
    ) -> None:
        try:
            await self._loop.asyncio.connect_accepted_socket(lambda: protocol, accepted)
        except Exception:  # noqa: BLE001  # one connection must not end the others
            _log.exception("a connection could not be served")
            accepted.close()
        if newcomer not in self._arriving:
            return
        if isinstance(protocol, TlsTransport) and not protocol.is_closing():  # it shakes hands
            self._arriving[newcomer] = protocol.abort
        else:
            self._gone(newcomer)

    def _tls(
        self, peer: PeerProtocol, context: ssl.SSLContext, remote: Remote, newcomer: Newcomer
    ) -> TlsTransport:
        """Put TLS between a socket and its peer, which begins once both have shaken hands."""

        def over(reason: str | None) -> None:
            self._gone(newcomer)
            if reason is not None:
                self._guard.handshake_failed(remote, reason)

        timeout_s = self._settings.handshake_timeout_s
        return TlsTransport(peer, context, self._buffer, timeout_s, over)

    def _peer(self, remote: Remote, newcomer: Newcomer, host: ConnectionHost) -> PeerProtocol:
        def connect(
            has_output: Callable[[], None], transport: asyncio.Transport
        ) -> ServedConnection:
            access = Access(self._guard, identified(remote, transport), newcomer)
            return host.connect(has_output, access)

        return PeerProtocol(
            self._loop,
            connect,
            self._buffer,
            self._turns,
            on_begin=self._began,
            on_output=self._to_write.add,
            on_end=self._ended,
        )

    def _greeted_one(
        self, accepted: socket.socket, newcomer: Newcomer, task: asyncio.Task[None]
    ) -> None:
        """Close a socket whose greeting was cancelled before its first turn.

        Any other has a transport by now, which ends by itself.
        """
        if task.cancelled():
            accepted.close()
            self._gone(newcomer)

    def _gone(self, newcomer: Newcomer) -> None:
        """Forget a newcomer without a connection, or whose connection ended.

        May be called twice.
        """
        self._arriving.pop(newcomer, None)
        newcomer.leave()

    def _turn_away(self, newcomer: Newcomer) -> None:
        """Hang up on one that has no connection yet."""
        self._arriving[newcomer]()

    def _give_way(self, remote: Remote, end: Callable[[], object], reason: str) -> None:
        """End the oldest half-open connection for another that comes."""
        self._guard.connection_refused(remote, f"{reason}: the oldest half-open one gave way")
        end()

    def _began(self, peer: PeerProtocol) -> None:
        self._peers.add(peer)
        access = peer.connection.access
        self._arriving.pop(access.newcomer, None)
        access.newcomer.on_give_way = partial(self._give_way, access.remote, peer.close)
        self._broker.metrics.connections += 1

    def _ended(self, peer: PeerProtocol) -> None:
        self._peers.discard(peer)
        self._to_write.discard(peer)
        peer.connection.access.newcomer.leave()

    def _end_turn(self) -> None:
        """Hand out, write and end what this turn left to do."""
        if not self._is_serving:  # a start that failed ends the loop, too
            return
        if self._is_stop_asked:
            self._advance_stop(time.monotonic())
        # Before the writes: what is handed out now goes with them, in one write for each peer.
        self._broker.dispatch()
        while self._to_write:
            self._to_write.pop().write()
        if self._guard.has_untold and not self._is_telling_due:
            self._is_telling_due = True
            self._loop.later(INTERVAL_S, self._tell)
        if self._broker.is_dispatch_due:  # what was written made room for more
            self._loop.wake()

    def _tell(self) -> None:
        self._is_telling_due = False
        self._guard.tell()

    def _stop_listening(self) -> None:
        for listening in self._listening:
            self._loop.forget(listening)
            listening.close()
        self._listening.clear()

    def _advance_stop(self, now_s: float) -> None:
        """Take one step to a clean end: refuse, let work under way end, give back, say goodbye."""
        broker = self._broker
        if not broker.is_stopping:
            broker.is_stopping = True
            self._stopping_since_s = now_s
            self._stop_listening()
            self._loop.later(self._settings.stop_timeout_s, lambda: None)
        elapsed_s = now_s - self._stopping_since_s
        if broker.open_count and elapsed_s < self._settings.stop_timeout_s:
            return
        self._is_stop_asked = False
        is_succeeded = self.successor is not None and self.successor.is_expected
        for peer in list(self._peers):
            if is_succeeded:
                peer.leave()
            else:
                peer.connection.lost()
                peer.say_goodbye("the broker stops")
        self._wait_for_the_end(now_s + _FAREWELL_S)

    def _wait_for_the_end(self, until_s: float) -> None:
        """End when every peer has said goodbye and every release completed, or it is late."""
        if self.successor is not None and not self._broker.open_count:
            successor, self.successor = self.successor, None
            successor.go_on()
        if (self._peers or self._broker.open_count) and time.monotonic() < until_s:
            self._loop.later(0.01, partial(self._wait_for_the_end, until_s))
        else:
            self._loop.stop()
