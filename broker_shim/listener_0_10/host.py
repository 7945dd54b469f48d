"""What all connections of this protocol share. On the loop's thread only."""

from __future__ import annotations

from collections.abc import Callable

from broker_shim.amqp_0_10.definitions import SessionDetachCode
from broker_shim.broker.virtual_host import Broker
from broker_shim.completion import OnComplete
from broker_shim.handlers.chain import InsertionPoints
from broker_shim.listener_0_10.connection import Amqp010Connection
from broker_shim.listener_0_10.session import Amqp010Session
from broker_shim.sockets.access import LOOPBACK, Access
from sparkstore.operations.administration import OwnLink


class Amqp010Host:
    """The broker as clients of AMQP 0-10 see it.

    Attributes:
        broker: The virtual host.
        points: What stands before the standard handlers.
    """

    def __init__(self, broker: Broker, points: InsertionPoints = InsertionPoints()) -> None:  # noqa: B008  # a value
        self.broker, self.points = broker, points
        self._sessions: dict[tuple[str, bytes], Amqp010Session] = {}
        self._exclusive: dict[str, Amqp010Session] = {}
        self._leaving: set[str] = set()
        broker.queue_owners.append(self)

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
        """A session ended: the queues that are its own alone go with it."""
        if self._sessions.get(session.key) is session:
            del self._sessions[session.key]
        for queue in [name for name, owner in self._exclusive.items() if owner is session]:
            del self._exclusive[queue]
            self._destroy_if_leaving(queue)

    def owner_of(self, queue: str) -> Amqp010Session | None:
        """The session that declared a queue for itself alone; None: there is none."""
        return self._exclusive.get(queue)

    def claim(self, queue: str, session: Amqp010Session) -> None:
        """A queue is this session's alone, until that ends."""
        self._exclusive[queue] = session

    def delete_when_unused(self, queue: str) -> None:
        """A queue goes with its last subscriber, or with the session that it is exclusive to."""
        self._leaving.add(queue)

    def is_leaving(self, queue: str) -> bool:
        """True if a queue goes when nobody needs it."""
        return queue in self._leaving

    def unsubscribed(self, queue: str) -> None:
        """A subscriber of a queue is gone."""
        if queue not in self._exclusive:
            self._destroy_if_leaving(queue)

    def _destroy_if_leaving(self, queue: str) -> None:
        dispatch = self.broker.queues.get(queue)
        if queue in self._leaving and dispatch is not None and not dispatch.consumer_count:
            self.broker.destroy_queue(queue)

    def own_link(self, queue: str) -> OwnLink | None:  # noqa: ARG002  # the protocol's name
        """See `QueueOwner`: sessions keep no queue that outlives them."""
        return None

    def end_own_link(self, queue: str, on_done: OnComplete) -> bool:  # noqa: ARG002
        """See `QueueOwner`."""
        return False

    def queue_gone(self, queue: str) -> None:
        """See `QueueOwner`."""
        self._exclusive.pop(queue, None)
        self._leaving.discard(queue)
