"""The state that all connections of AMQP 0-10 share. On the loop's thread only."""

from __future__ import annotations

from collections.abc import Callable
from weakref import ref

from broker_shim.broker.orders.prepared_branches import Branches
from broker_shim.broker.virtual_host import Broker
from broker_shim.framing.assembly import Assembly
from broker_shim.handlers.handler_chain import InsertionPoints
from broker_shim.listener_0_10.open_branches import OpenBranches
from broker_shim.listener_0_10.sessions.connection import Amqp010Connection
from broker_shim.listener_0_10.sessions.session import Amqp010Session, session_key
from broker_shim.listener_0_10.transaction import OpenTransactions
from broker_shim.sockets.access import LOOPBACK, Access

_MOST_KEPT = 100

Invoke = Callable[[Amqp010Session, Assembly], None]
"""invoke(session, command): do a command; raises RemoteCommandError if it cannot be done."""


class SessionHost:
    """The broker as connections and sessions of AMQP 0-10 see it.

    Attributes:
        broker: The virtual host.
        points: What stands before the standard handlers.
        branches: Those of distributed transactions that are not prepared.
        transactions: Those of sessions (tx) that have begun.
        in_doubt: Those that are.
        invoke: Does a command of a session.
    """

    def __init__(self, broker: Broker, points: InsertionPoints, invoke: Invoke) -> None:
        self.broker, self.points, self.invoke = broker, points, invoke
        timeout_s = broker.settings.transaction_timeout_s
        self.branches = OpenBranches(broker.later, timeout_s, broker.xid_claims)
        self.transactions = OpenTransactions(broker.later, timeout_s)
        self.in_doubt = Branches(broker, broker.settlement)
        self._sessions: dict[tuple[str, bytes], Amqp010Session] = {}
        self._kept: dict[str, set[bytes]] = {}

    def connect(
        self, has_output: Callable[[], None], access: Access = LOOPBACK
    ) -> Amqp010Connection:
        """Make a connection for a peer that came in. See `ConnectionHost`."""
        return Amqp010Connection(self.broker, self, self.points, has_output, access)

    def attach(
        self, connection: Amqp010Connection, channel: int, name: bytes, *, force: bool
    ) -> bool:
        """Attach a session to a channel: a new one, or the one of its user and name that is there.

        Returns:
            False if that one is attached already, and is not to be detached by force.
        """
        existing = self._sessions.get(session_key(connection, name))
        if existing is not None and existing.is_attached:
            if not force:
                return False
            existing.displaced()
        if existing is None or existing.is_over:
            session = Amqp010Session(connection, channel, name)
            self._sessions[session.key] = session
            session.begin()
        else:
            self._not_kept(existing)
            existing.resume(connection, channel)
        return True

    def keeps(self, session: Amqp010Session) -> bool:
        """Whether a session that lost its connection is kept, until its timeout.

        Of one user so many are kept, and none by a broker that is stopping: what it held is given
        back at once.
        """
        user, name = session.key
        kept = self._kept.setdefault(user, set())
        if self.broker.is_stopping or len(kept) >= _MOST_KEPT:
            return False
        kept.add(name)
        times, session_ref = session.detached_count + 1, ref(session)

        def late() -> None:
            kept = session_ref()  # not one that ended since: a timer may be due in a day
            if kept is not None and not kept.is_attached and kept.detached_count == times:
                kept.expired()

        self.broker.later(session.timeout_s, late)
        return True

    def leave(self, session: Amqp010Session, *, is_lost: bool) -> None:
        """A session ended: a queue that it had to itself is anybody's, or goes with it."""
        if self._sessions.get(session.key) is session:
            del self._sessions[session.key]
            self._not_kept(session)
        self.branches.session_ended(session, is_lost=is_lost)
        self.broker.claims.end(session)

    def _not_kept(self, session: Amqp010Session) -> None:
        user, name = session.key
        kept = self._kept.get(user)
        if kept is not None:
            kept.discard(name)
            if not kept:
                del self._kept[user]
