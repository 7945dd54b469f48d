"""What all connections of this protocol share. On the loop's thread only."""

from __future__ import annotations

from collections.abc import Callable

from broker_shim.amqp_0_10.definitions import SessionDetachCode
from broker_shim.broker.virtual_host import Broker
from broker_shim.handlers.chain import InsertionPoints
from broker_shim.listener_0_10.connection import Amqp010Connection
from broker_shim.listener_0_10.session import Amqp010Session
from broker_shim.sockets.access import LOOPBACK, Access


class Amqp010Host:
    """The broker as clients of AMQP 0-10 see it.

    Attributes:
        broker: The virtual host.
        points: What stands before the standard handlers.
    """

    def __init__(self, broker: Broker, points: InsertionPoints = InsertionPoints()) -> None:  # noqa: B008  # a value
        self.broker, self.points = broker, points
        self._sessions: dict[tuple[str, bytes], Amqp010Session] = {}

    def connect(
        self, has_output: Callable[[], None], access: Access = LOOPBACK
    ) -> Amqp010Connection:
        """See `ConnectionHost`."""
        return Amqp010Connection(self.broker, self, self.points, has_output, access)

    def enter(self, session: Amqp010Session, *, force: bool) -> bool:
        """A session is attached; False if its user has one of that name attached already."""
        key = session.key
        there = self._sessions.get(key)
        if there is not None:
            if not force:
                return False
            there.end(SessionDetachCode.SESSION_BUSY)
        self._sessions[key] = session
        return True

    def leave(self, session: Amqp010Session) -> None:
        """A session ended: a queue that it had to itself is anybody's, or goes with it."""
        if self._sessions.get(session.key) is session:
            del self._sessions[session.key]
        self.broker.claims.end(session)
