"""The listener: a thread that accepts, and a `MemberConnection` with a thread for each peer.

`serve_alone` is the whole of a process without a broker: it serves until a signal, or until the
store has ended.
"""

from __future__ import annotations

import logging
import signal
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from uuid import uuid4

from broker_shim.errors import NotNow, StoreError, Unavailable
from broker_shim.service.dispatcher import Dispatcher
from broker_shim.service.grace import GraceTimers, MemberTimers
from broker_shim.service.member_connection import MemberConnection
from broker_shim.service.members import Audit, MemberEvent, Members, known_members, not_audited
from broker_shim.service.seen_root import ServedRoot
from broker_shim.service.socket import ServiceSocket, is_our_user, remote_of
from broker_shim.store.delta import DeltaMessageStore

_log = logging.getLogger(__name__)
_alone = logging.getLogger("sparkstore.serve")

MAX_CONNECTIONS = 256
MEMBER_GRACE_S = 30.0
TRANSACTION_TIMEOUT_S = 3600.0
_STOP_S = 10.0
_PROBE_S = 1.0
_REPORT_PROBES = 5


class Service:
    """Serves one open store until `close`; the store is closed by who opened it.

    Attributes:
        instance: UUID of this run.
        members: Who is connected.
        store: What is served.
        urls: Where it listens.
    """

    def __init__(
        self,
        store: DeltaMessageStore,
        addresses: Sequence[ServiceSocket],
        max_message_bytes: int,
        audit: Audit = not_audited,
        dispatcher: Dispatcher | None = None,
        member_grace_s: float = MEMBER_GRACE_S,
        transaction_timeout_s: float = TRANSACTION_TIMEOUT_S,
    ) -> None:
        """Listen on all addresses, and serve from now on.

        Args:
            store: What is served.
            addresses: Where peers come in.
            max_message_bytes: How long the content of one message may be, in bytes, inclusive.
            audit: Told who comes and goes.
            dispatcher: Hands messages out to consumers on members; without one none are served.
            member_grace_s: A member that is gone so long, in seconds, loses what it acquired.
            transaction_timeout_s: A member's transaction that is open so long, in seconds, is
                rolled back; a branch that is prepared never is.
        """
        self.instance = str(uuid4())
        self.members = Members(max_message_bytes)
        self.store, self._addresses, self._audit = store, addresses, audit
        identity = store.root.identity
        self._opened = ServedRoot(
            identity.root_id,
            identity.generation,
            self.instance,
            store.opened_position,
            frozenset({identity.primary_id, *identity.superseded}),
        )
        self._dispatcher = dispatcher
        self._transaction_timeout_s = transaction_timeout_s
        self._timers = MemberTimers(
            GraceTimers(member_grace_s, self._lose),
            GraceTimers(transaction_timeout_s, self._roll_back_late),
        )
        with store.look() as machine:
            self._timers.grace.gone_with_leases(known_members(machine.state))
        self.urls = [_url_of(address.listening) for address in addresses]
        self._guard = threading.Lock()
        self._connections: dict[MemberConnection, threading.Thread] = {}
        self._is_closed = False
        self._threads = [
            threading.Thread(target=self._accept, args=(name,), name="store service", daemon=True)
            for name in addresses
        ]
        for thread in self._threads:
            thread.start()

    def close(self, reason: StoreError | None = None) -> None:
        """Answer what is decided, say goodbye to everybody, and stop. May be called twice."""
        with self._guard:
            self._is_closed = True
            connections = dict(self._connections)
        for address in self._addresses:
            with suppress(OSError):
                address.listening.shutdown(socket.SHUT_RDWR)
            address.listening.close()
        for connection in connections:
            connection.end(reason or Unavailable("the service is stopping: connect again"))
        for thread in (*connections.values(), *self._threads):
            thread.join(_STOP_S)
        self._timers.close()

    def _accept(self, address: ServiceSocket) -> None:
        while True:
            try:
                peer, _address = address.listening.accept()
            except OSError:
                if self._is_closed:
                    return
                _log.exception("a connection could not be accepted")
                continue
            self._start(address, peer)

    def _start(self, address: ServiceSocket, peer: socket.socket) -> None:
        is_unix = peer.family == socket.AF_UNIX
        if is_unix and not is_our_user(peer):
            self._audit(MemberEvent.REFUSED, peer=remote_of(peer), reason="another user's process")
            peer.close()
            return
        if not is_unix:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection = MemberConnection(
            peer,
            self.store,
            self.members,
            self._opened,
            address.token,
            self._audit,
            self._dispatcher,
            self._timers,
        )
        thread = threading.Thread(
            target=self._serve, args=(connection,), name="member", daemon=True
        )
        with self._guard:
            if self._is_closed or not self._has_place():
                peer.close()
                return
            self._connections[connection] = thread
        thread.start()

    def _has_place(self) -> bool:
        """Tell whether one more may come: the oldest that has not greeted gives way if it must."""
        if len(self._connections) < MAX_CONNECTIONS:
            return True
        silent = next((one for one in self._connections if not one.has_greeted), None)
        if silent is not None:
            del self._connections[silent]
            silent.end(Unavailable("another peer needed its place: connect again"))
        return silent is not None

    def _lose(self, name: str) -> None:
        with self.store.batch() as batch:
            count = self.members.lose(batch, name)
        if count is not None and self._dispatcher is not None:
            self._dispatcher.lost(name)
        if count:
            _log.warning("member %r is gone: %d messages that it held wait again", name, count)
            self._audit(MemberEvent.LOST, member=name, released=count)

    def _roll_back_late(self, name: str) -> None:
        with self.store.batch():
            count, next_s = self.members.roll_back_late(name, self._transaction_timeout_s)
        if count:
            text = "%d transactions of member %r were open for %g s: rolled back"
            _log.warning(text, count, name, self._transaction_timeout_s)
        if next_s is not None:
            self._timers.transactions.again(name, next_s)

    def _serve(self, connection: MemberConnection) -> None:
        try:
            connection.run()
        finally:
            with self._guard:
                self._connections.pop(connection, None)


def _url_of(listening: socket.socket) -> str:
    name = listening.getsockname()
    return f"unix:{name}" if isinstance(name, str) else f"tcp:{name[0]}:{name[1]}"


_UNREAD = "SIGHUP: a service without AMQP reads nothing again: settings count from its next start"


def serve_alone(
    service: Service,
    report: Callable[[], None],
    announce: Callable[[], None],
    hand_nothing_out: Callable[[], None] = lambda: None,
    asked: Sequence[int] = (),
) -> StoreError | None:
    """Wait for SIGTERM or SIGINT, then close service and store.

    Args:
        service: What serves; its store is closed, too.
        report: Writes what was counted, every 5 s and at the end.
        announce: Called once it serves.
        hand_nothing_out: Called when no member is connected any more, before the store is closed.
        asked: Signals that asked it to stop before it served.

    Returns:
        What the store ended with, if it was not told to.
    """
    store, stopping, failure = service.store, threading.Event(), None

    def stop(number: int, _frame: object) -> None:
        _alone.info("%s: stopping", signal.Signals(number).name)
        stopping.set()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    line = service.members.metrics.line
    signal.signal(signal.SIGUSR1, lambda _number, _frame: _alone.info("%s", line(store.metrics)))
    signal.signal(signal.SIGHUP, lambda _number, _frame: _alone.warning(_UNREAD))
    announce()
    probes = 0
    while not (asked or stopping.wait(_PROBE_S)) and failure is None:
        failure = _probe(store)
        probes += 1
        if probes % _REPORT_PROBES == 0:
            report()
    service.close(failure)
    hand_nothing_out()
    try:
        store.close()
    except StoreError as error:
        failure = failure or error
    report()
    if failure is None:
        _alone.info("stopped cleanly; %s", line(store.metrics))
    return failure


def _probe(store: DeltaMessageStore) -> StoreError | None:
    """Find the error that the store has ended with. That there is no room now ends nothing."""
    try:
        with store.batch():
            return None
    except NotNow:
        return store.failure
    except StoreError as error:
        return error
