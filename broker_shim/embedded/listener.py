"""Who connects, and the way to an end: accept, serve, say goodbye."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from functools import partial

from broker_shim.embedded.access import LOOPBACK, Access
from broker_shim.embedded.broker import Broker
from broker_shim.embedded.connection import Connection
from broker_shim.embedded.loop import Loop
from broker_shim.embedded.peer import Peer

_log = logging.getLogger(__name__)

_READ_BYTES = 1 << 17
_ACCEPTS_IN_TURN = 64
_FAREWELL_S = 2.0
_ACCEPT_PAUSE_S = 1.0
"""After a failed accept: what was not accepted keeps the socket ready, and the loop would spin."""


class Listener:
    """Serves until `stop` has been asked for and everything under way has ended, or `end`.

    One thread runs `run`; `stop` may be called from any other, too.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._peers: set[Peer] = set()
        self._to_write: set[Peer] = set()
        self._greeted: set[asyncio.Task[None]] = set()
        self._listening: socket.socket | None = None
        self._broker: Broker
        self._access = LOOPBACK
        self._tls: ssl.SSLContext | None = None
        self._buffer = memoryview(bytearray(_READ_BYTES))
        self._stopping_since_s = 0.0
        self._is_stop_asked = False
        loop.at_end_of_turn(self._end_turn)

    def listen(
        self,
        broker: Broker,
        listening: socket.socket,
        access: Access = LOOPBACK,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Serve connections that come to a listening socket."""
        self._broker, self._access, self._tls = broker, access, tls
        self._listening = listening
        listening.setblocking(False)  # noqa: FBT003  # the library's signature
        self._loop.on_readable(listening, self._accept)

    def stop(self) -> None:
        """Ask for a clean end; safe from any thread, and in a signal handler of the loop."""
        self._is_stop_asked = True
        self._loop.post(self._loop.wake)

    def end(self) -> None:
        """End at once: nothing that is under way is waited for."""
        self._loop.stop()

    def run(self) -> None:
        """Serve; returns after `stop` or `end`."""
        self._loop.run()

    def close(self) -> None:
        """Let go of every socket, and of the loop."""
        self._stop_listening()
        for task in self._greeted:
            task.cancel()
        for peer in list(self._peers):
            peer.close()
        self._loop.close()

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_IN_TURN):
            assert self._listening is not None
            try:
                accepted, _address = self._listening.accept()
            except (BlockingIOError, ConnectionAbortedError):  # no more, or gone again
                return
            except OSError as reason:  # no descriptor left, say: the others go on
                _log.warning("a connection was not accepted: %s", reason)
                self._pause_accepting()
                return
            if len(self._peers) + len(self._greeted) >= self._broker.settings.max_connections:
                _log.warning("a connection was refused: %d are open", len(self._peers))
                accepted.close()
            else:
                self._greet(accepted)

    def _pause_accepting(self) -> None:
        assert self._listening is not None
        self._loop.forget(self._listening)
        self._loop.later(_ACCEPT_PAUSE_S, self._resume_accepting)

    def _resume_accepting(self) -> None:
        if self._listening is not None:
            self._loop.on_readable(self._listening, self._accept)

    def _greet(self, accepted: socket.socket) -> None:
        """Make a transport of a socket: at once, or after the handshake of TLS."""
        accepted.setblocking(False)  # noqa: FBT003
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = self._loop.asyncio.create_task(self._serve(accepted))
        self._greeted.add(task)
        task.add_done_callback(self._greeted.discard)

    async def _serve(self, accepted: socket.socket) -> None:
        timeout_s = self._broker.settings.handshake_timeout_s if self._tls else None
        try:
            await self._loop.asyncio.connect_accepted_socket(
                self._peer, accepted, ssl=self._tls, ssl_handshake_timeout=timeout_s
            )
        except OSError as reason:  # ssl.SSLError is one
            _log.info("a connection was not greeted: %s", reason)
            accepted.close()
        except Exception:  # noqa: BLE001  # one connection must not end the others
            _log.exception("a connection could not be served")
            accepted.close()

    def _peer(self) -> Peer:
        return Peer(
            self._loop,
            partial(Connection, self._broker, access=self._access),
            self._buffer,
            on_begin=self._began,
            on_output=self._to_write.add,
            on_end=self._ended,
        )

    def _began(self, peer: Peer) -> None:
        self._peers.add(peer)
        self._broker.metrics.connections += 1

    def _ended(self, peer: Peer) -> None:
        self._peers.discard(peer)
        self._to_write.discard(peer)

    def _end_turn(self) -> None:
        """What this turn found to hand out, to write, and to end."""
        if self._is_stop_asked:
            self._advance_stop(time.monotonic())
        self._broker.dispatch()
        while self._to_write:
            self._to_write.pop().write()

    def _stop_listening(self) -> None:
        if self._listening is not None:
            self._loop.forget(self._listening)
            self._listening.close()
            self._listening = None

    def _advance_stop(self, now_s: float) -> None:
        """One step to a clean end: no more in, what is under way ends, give back, say goodbye."""
        broker = self._broker
        if not broker.is_stopping:
            broker.is_stopping = True
            self._stopping_since_s = now_s
            self._stop_listening()
            self._loop.later(broker.settings.stop_timeout_s, lambda: None)
        elapsed_s = now_s - self._stopping_since_s
        if broker.open_count and elapsed_s < broker.settings.stop_timeout_s:
            return
        self._is_stop_asked = False
        for peer in list(self._peers):
            peer.connection.lost()
            peer.say_goodbye("the broker stops")
        self._wait_for_the_end(now_s + _FAREWELL_S)

    def _wait_for_the_end(self, until_s: float) -> None:
        """End when every peer has said goodbye and every release completed, or it is late."""
        if (self._peers or self._broker.open_count) and time.monotonic() < until_s:
            self._loop.later(0.01, partial(self._wait_for_the_end, until_s))
        else:
            self._loop.stop()
