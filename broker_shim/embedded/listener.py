"""Sockets and the one loop: bytes ↔ connections, completions, timers, and the way to an end."""

from __future__ import annotations

import logging
import selectors
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from heapq import heappop, heappush
from itertools import count

from broker_shim.embedded.access import LOOPBACK, Access
from broker_shim.embedded.broker import Broker
from broker_shim.embedded.connection import Connection
from broker_shim.embedded.inbox import Inbox
from broker_shim.security.guard import Guard
from broker_shim.security.guard import Peer as RemotePeer
from broker_shim.security.limits import refusal_of_newcomer

_log = logging.getLogger(__name__)

_READ_BYTES = 1 << 16
_MOST_UNSENT_BYTES = 8 << 20
_READS_IN_TURN = 8
_TICK_S = 1.0
_FAREWELL_S = 2.0
_ACCEPT_PAUSE_S = 1.0
"""After a failed accept: what was not accepted keeps the socket ready, and the loop would spin."""


class Timers:
    """Calls to be made later. Pure but for the calls: time is an argument."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def add(self, at_s: float, call: Callable[[], None]) -> None:
        """Have a call made at a time."""
        heappush(self._due, (at_s, next(self._numbers), call))

    def run(self, now_s: float) -> float:
        """Make the calls that are due; seconds until the next, at least 0."""
        while self._due and self._due[0][0] <= now_s:
            try:
                heappop(self._due)[2]()
            except Exception:  # noqa: BLE001  # one call must not lose the others, or the loop
                _log.exception("a call that was put off failed")
        return max(0.0, self._due[0][0] - now_s) if self._due else _TICK_S


class Listener:
    """Serves until `stop` has been asked for and everything under way has ended, or `fail`.

    One thread runs `run`; `stop` may be called from a signal handler or through the inbox.
    """

    def __init__(self, inbox: Inbox, timers: Timers) -> None:
        self._inbox = inbox
        self._timers = timers
        self._selector = selectors.DefaultSelector()
        self._peers: dict[Connection, Peer] = {}
        self._to_write: set[Connection] = set()
        self._listening: socket.socket | None = None
        self._broker: Broker | None = None
        self._guard = LOOPBACK.guard
        self._is_ended = False
        self._stopping_since_s = 0.0
        self._is_stop_asked = False
        self._selector.register(inbox, selectors.EVENT_READ, self._inbox_ready)

    @property
    def selector(self) -> selectors.BaseSelector:
        """What the loop waits on, for other sockets; each is registered with what to call."""
        return self._selector

    def listen(self, broker: Broker, address: socket.socket, guard: Guard = LOOPBACK.guard) -> None:
        """Serve connections that come to a listening socket; without a guard, of anybody."""
        self._broker = broker
        self._guard = guard
        self._listening = address
        address.setblocking(False)  # noqa: FBT003  # the library's signature
        self._selector.register(address, selectors.EVENT_READ, self._accept)
        self._timers.add(time.monotonic() + _TICK_S, self._tick)

    def stop(self) -> None:
        """Ask for a clean end; safe in a signal handler."""
        self._is_stop_asked = True
        self._inbox.post(lambda _nothing: None, None)

    def end(self) -> None:
        """End at once: nothing that is under way is waited for."""
        self._is_ended = True

    def run(self) -> None:
        """Serve; returns after `stop` or `end`."""
        while not self._is_ended:
            wait_s = self._timers.run(time.monotonic())
            self._dispatch()  # what they found to hand out must not wait for the next event
            for key, mask in self._selector.select(0 if self._to_write else wait_s):
                key.data(mask)
            if self._is_stop_asked:
                self._advance_stop(time.monotonic())
            self._dispatch()
            self._write_all()

    def close(self) -> None:
        """Let go of every socket."""
        for peer in list(self._peers.values()):
            self._drop(peer)
        self._stop_listening()
        self._selector.close()

    def _inbox_ready(self, _mask: int) -> None:
        self._inbox.drain()

    def _dispatch(self) -> None:
        assert self._broker is not None
        self._broker.dispatch()

    def _accept(self, _mask: int) -> None:
        assert self._listening is not None
        assert self._broker is not None
        try:
            accepted, address = self._listening.accept()
        except (BlockingIOError, ConnectionAbortedError):  # gone again
            return
        except OSError as reason:  # no descriptor left, say: the others go on
            _log.warning("a connection was not accepted: %s", reason)
            self._pause_accepting()
            return
        access = Access(self._guard, RemotePeer(*address[:2]))
        if self._refuses(access):
            accepted.close()
            return
        try:
            self._serve(accepted, access)
        except Exception:  # noqa: BLE001  # one connection must not end the others
            _log.exception("a connection could not be served")
            accepted.close()

    def _refuses(self, access: Access) -> bool:
        """True if there are too many."""
        assert self._broker is not None
        reason = refusal_of_newcomer(
            access.peer.host,
            ((each.access.peer.host, each.is_half_open) for each in self._peers),
            most=self._broker.settings.max_connections,
            most_half_open=self._broker.settings.max_half_open,
        )
        if reason is not None:
            access.guard.connection_refused(access.peer, reason)
        return reason is not None

    def _pause_accepting(self) -> None:
        assert self._listening is not None
        self._selector.unregister(self._listening)
        self._timers.add(time.monotonic() + _ACCEPT_PAUSE_S, self._resume_accepting)

    def _resume_accepting(self) -> None:
        if self._listening is not None:
            self._selector.register(self._listening, selectors.EVENT_READ, self._accept)

    def _serve(self, accepted: socket.socket, access: Access) -> None:
        assert self._broker is not None
        accepted.setblocking(False)  # noqa: FBT003
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = Connection(self._broker, self._to_write.add, access)
        peer = Peer(accepted, connection)
        self._peers[connection] = peer
        self._broker.metrics.connections += 1
        self._selector.register(accepted, selectors.EVENT_READ, lambda mask: self._io(peer, mask))

    def _io(self, peer: Peer, mask: int) -> None:
        if mask & selectors.EVENT_READ:
            self._contain(peer, peer.read)
        self._to_write.add(peer.connection)

    def _contain(self, peer: Peer, step: Callable[[], None]) -> None:
        """Make one step of a connection: a fault in it ends this connection and no other.

        What ends the store is not raised here: it calls `end` (see `StoreCalls`).
        """
        try:
            step()
        except Exception:  # noqa: BLE001  # one connection must not end the others
            _log.exception("connection %d failed and is ended", peer.connection.number)
            peer.is_over = True
            self._to_write.add(peer.connection)

    def _write_all(self) -> None:
        while self._to_write:
            peer = self._peers.get(self._to_write.pop())
            if peer is None:
                continue
            self._contain(peer, peer.write)
            if peer.is_over:
                self._drop(peer)
            elif peer.interest != peer.registered:
                peer.registered = peer.interest
                self._selector.modify(
                    peer.socket, peer.interest, self._selector.get_key(peer.socket).data
                )

    def _drop(self, peer: Peer) -> None:
        del self._peers[peer.connection]
        with suppress(KeyError, ValueError):
            self._selector.unregister(peer.socket)
        peer.socket.close()
        self._contain(peer, peer.connection.lost)
        self._to_write.discard(peer.connection)

    def _tick(self) -> None:
        assert self._broker is not None
        now_s = time.monotonic()
        for connection, peer in list(self._peers.items()):
            self._contain(peer, partial(_beat, connection, now_s))
        self._timers.add(now_s + _TICK_S, self._tick)

    def _stop_listening(self) -> None:
        if self._listening is not None:
            with suppress(KeyError, ValueError):
                self._selector.unregister(self._listening)
            self._listening.close()
            self._listening = None

    def _advance_stop(self, now_s: float) -> None:
        """One step to a clean end: no more in, what is under way ends, give back, say goodbye."""
        assert self._broker is not None
        broker = self._broker
        if not broker.is_stopping:
            broker.is_stopping = True
            self._stopping_since_s = now_s
            self._stop_listening()
            self._timers.add(now_s + broker.settings.stop_timeout_s, lambda: None)
        elapsed_s = now_s - self._stopping_since_s
        if broker.open_count and elapsed_s < broker.settings.stop_timeout_s:
            return
        self._is_stop_asked = False
        for connection, peer in list(self._peers.items()):
            connection.lost()
            self._contain(peer, partial(connection.close_forced, "the broker stops"))
        self._wait_for_the_end(now_s + _FAREWELL_S)

    def _wait_for_the_end(self, until_s: float) -> None:
        """End when every peer has said goodbye and every release completed, or it is late."""
        assert self._broker is not None
        if (self._peers or self._broker.open_count) and time.monotonic() < until_s:
            again_s = time.monotonic() + 0.01
            self._timers.add(again_s, lambda: self._wait_for_the_end(until_s))
        else:
            self._is_ended = True


def _beat(connection: Connection, now_s: float) -> None:
    connection.tick(now_s)


class Peer:
    """A socket and the connection it carries."""

    def __init__(self, accepted: socket.socket, connection: Connection) -> None:
        self.socket = accepted
        self.connection = connection
        self.interest = selectors.EVENT_READ
        self.registered = selectors.EVENT_READ
        self.is_over = False
        self._unsent = memoryview(b"")

    def read(self) -> None:
        """Take what has come, a few turns at most: other peers wait."""
        for _ in range(_READS_IN_TURN):
            if self.connection.unsent_bytes > _MOST_UNSENT_BYTES:
                return  # a peer that asks and does not read would have us gather answers
            try:
                received = self.socket.recv(_READ_BYTES)
            except BlockingIOError:
                return
            except OSError:
                self.is_over = True
                return
            self.connection.receive(received)
            if len(received) < _READ_BYTES:
                return

    def write(self) -> None:
        """Write as much as the socket takes."""
        while not self.is_over:
            if not self._unsent:
                self._unsent = memoryview(self.connection.output())
            if not self._unsent:
                self.is_over = self.connection.is_over
                break
            try:
                sent = self.socket.send(self._unsent)
            except BlockingIOError:
                break
            except OSError:
                self.is_over = True
                return
            self._unsent = self._unsent[sent:]
            self.connection.written(sent)
        self._wait_for()

    def _wait_for(self) -> None:
        self.interest = selectors.EVENT_WRITE if self._unsent else 0
        is_read = self.connection.unsent_bytes <= _MOST_UNSENT_BYTES
        if is_read and not self.connection.is_over:
            self.interest |= selectors.EVENT_READ
