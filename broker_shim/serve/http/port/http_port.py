"""Accept connections over HTTP at one listening socket, with TLS if there is any, and end them.

It leaves file descriptors to clients of AMQP and to the store (`sockets.descriptors`). Who was
refused, or gave way, is told in a line a minute.

At a unix socket nobody is served but our own user, and root: the kernel says who is there.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from functools import partial
from typing import NamedTuple

from broker_shim.security.guard import Guard, Remote
from broker_shim.security.summed_refusals import SummedRefusals
from broker_shim.serve.http.port.http_connection import (
    Application,
    HttpConnection,
    Patience,
    PortResources,
)
from broker_shim.serve.http.port.places import MOST_HELD_BYTES, Place, Places
from broker_shim.service.socket import is_our_user, process_of
from broker_shim.sockets.descriptors import is_scarce_for_http
from broker_shim.sockets.tls_transport import TlsTransport
from sparkstore.control.audit import AuditEvent

_log = logging.getLogger(__name__)

MOST_HEAD_BYTES = 1 << 14
_READ_BYTES, _SENT_BYTES = 1 << 16, 1 << 18
_ACCEPTS_IN_TURN = 64
_ACCEPT_PAUSE_S = 1.0
"""After a failed accept: what was not accepted keeps the socket ready, and the loop would spin."""
TOLD_EVERY_S = 60.0
_FAREWELL_S = 1.0


class PortLimits(NamedTuple):
    """The limits of one port.

    Attributes:
        most_connections: Connections at a time.
        handshake_timeout_s: How long a handshake of TLS may take.
        patience: How long a peer may take for all else.
        most_held_bytes: Bodies, and answers that nobody reads, in memory.
        most_head_bytes: The longest head of a request.
    """

    most_connections: int
    handshake_timeout_s: float = 10.0
    patience: Patience = Patience()
    most_held_bytes: int = MOST_HELD_BYTES
    most_head_bytes: int = MOST_HEAD_BYTES


class HttpPort:
    """Answers at a listening socket, on the thread of the running loop."""

    def __init__(
        self,
        application: Application,
        listening: socket.socket,
        guard: Guard,
        limits: PortLimits,
    ) -> None:
        """Accept from now on.

        Args:
            application: Answers each request.
            listening: The socket that connections come to; it is closed at the end.
            guard: Has the certificates for the next connection, if TLS is spoken; writes down who
                was refused.
            limits: How much all of them, and each, may have.
        """
        self._loop = asyncio.get_running_loop()
        self._listening, self._guard = listening, guard
        self._limits, self._is_local = limits, listening.family == socket.AF_UNIX
        buffer = memoryview(bytearray(_READ_BYTES))
        places = Places(limits.most_connections, limits.most_held_bytes)
        self._shared = PortResources(
            application, places, buffer, set(), limits.patience, limits.most_head_bytes
        )
        self._arriving: set[asyncio.Task[None]] = set()
        refused = partial(guard.audit, AuditEvent.CONNECTION_REFUSED)
        failed = partial(guard.audit, AuditEvent.LOGIN_FAILED, mechanism="TLS")
        self._refused = SummedRefusals(refused, TOLD_EVERY_S)
        self._failed_tls = SummedRefusals(failed, TOLD_EVERY_S)
        self._telling: asyncio.TimerHandle | None = None
        # Connections inherit it. What the kernel holds for who does not read has a bound, too.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SENT_BYTES)
        listening.setblocking(False)  # noqa: FBT003  # the library's signature
        self._loop.add_reader(listening, self._accept)

    @property
    def places(self) -> Places:
        """The places of its connections."""
        return self._shared.places

    async def close(self) -> None:
        """Accept nobody any more, give what is asked a moment to end, and hang up."""
        self.end_listening()
        self.places.end_all(that_wait=True)
        if self._shared.tasks:
            await asyncio.wait(self._shared.tasks, timeout=_FAREWELL_S)
        self.places.end_all()
        for task in self._shared.tasks:
            task.cancel()
        if self._telling is not None:
            self._telling.cancel()
        self._tell()

    def end_listening(self) -> None:
        """Accept nobody any more; may be called twice."""
        if self._listening.fileno() >= 0:
            self._loop.remove_reader(self._listening)
            self._listening.close()

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_IN_TURN):
            try:
                accepted, address = self._listening.accept()
            except (BlockingIOError, ConnectionAbortedError):  # no more, or gone again
                return
            except OSError as reason:  # no descriptor left, say: the others go on
                self._refuse(Remote(), f"a connection was not accepted: {reason}")
                self._loop.remove_reader(self._listening)
                self._loop.call_later(_ACCEPT_PAUSE_S, self._resume_accepting)
                return
            if self._is_local and not is_our_user(accepted):
                accepted.close()
                continue
            remote = Remote(process_of(accepted)) if self._is_local else Remote(*address[:2])
            if self._has_place(remote, accepted):
                self._begin(accepted, remote)
            else:
                accepted.close()

    def _resume_accepting(self) -> None:
        if self._listening.fileno() >= 0:
            self._loop.add_reader(self._listening, self._accept)

    def _has_place(self, remote: Remote, accepted: socket.socket) -> bool:
        """True if there is a place for a connection, or another one gave way to it."""
        is_full = is_scarce_for_http(accepted, self.places.count)
        host = self._place_of(remote)
        reason = self.places.refusal_of_newcomer(host, is_full=is_full)
        if reason is None:
            return True
        makes_room = self.places.make_room(host)
        self._refuse(remote, f"HTTP: {reason}" + ": the oldest gave way" * makes_room)
        return makes_room

    def _place_of(self, remote: Remote) -> str:
        """Return the address whose share a peer takes: a process of this machine has that of it."""
        return "127.0.0.1" if self._is_local else remote.host

    def _begin(self, accepted: socket.socket, remote: Remote) -> None:
        """Make a transport of a socket, over TLS if that is spoken."""
        accepted.setblocking(False)  # noqa: FBT003
        if not self._is_local:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        context = None if self._is_local else self._guard.context
        place = self.places.enter(self._place_of(remote))
        connection = HttpConnection(self._shared, place, remote)
        protocol: HttpConnection | TlsTransport = connection
        if context is not None:
            protocol = TlsTransport(
                connection,
                context,
                self._shared.buffer,
                self._limits.handshake_timeout_s,
                partial(self._over, place, remote),
            )
        place.on_give_way = protocol.abort
        task = self._loop.create_task(self._serve(accepted, protocol, place))
        self._arriving.add(task)
        task.add_done_callback(self._arriving.discard)

    async def _serve(
        self, accepted: socket.socket, protocol: HttpConnection | TlsTransport, place: Place
    ) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: protocol, accepted)
        except Exception:  # noqa: BLE001  # one connection must not end the others
            _log.exception("a connection over HTTP could not be served")
            accepted.close()
            place.leave()

    def _over(self, place: Place, remote: Remote, reason: str | None) -> None:
        """Give back the place of a connection whose TLS is over."""
        place.leave()
        if reason is not None:
            self._failed_tls.add(remote.host, time.monotonic(), peer=remote, reason=reason)
            self._tell_later()

    def _refuse(self, remote: Remote, reason: str) -> None:
        self._refused.add(remote.host, time.monotonic(), peer=remote, reason=reason)
        self._tell_later()

    def _tell_later(self) -> None:
        if self._telling is None and (self._refused.pending or self._failed_tls.pending):
            self._telling = self._loop.call_later(TOLD_EVERY_S, self._tell)

    def _tell(self) -> None:
        """Tell of those that no line has told yet."""
        self._telling, now_s = None, time.monotonic()
        self._refused.tell(now_s)
        self._failed_tls.tell(now_s)
