"""Queues that one client has to itself: a session that declared one exclusive. In memory only.

A claim ends with its owner, and so with the broker. It is another thing than the argument
`exclusive`, by which a queue has one consumer at a time, whoever that is.
"""

from __future__ import annotations

from collections.abc import Hashable

from broker_shim.broker.flow.served_queues import ServedQueues
from broker_shim.broker.orders.administration import Administration
from broker_shim.broker.orders.auto_delete import AutoDeletion
from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.errors import InvalidRequest
from sparkstore.core.queue_names import shown


class Claims:
    """The queues that one client has to itself, and whose each is. On the loop's thread only.

    Attributes:
        auto_deletion: Deletes queues that nobody uses any more.
    """

    def __init__(self, served: ServedQueues, administration: Administration) -> None:
        """Begin with no queue claimed; the arguments are those of `AutoDeletion`."""
        self._served = served
        self._owners: dict[str, Hashable] = {}
        self._queues: dict[Hashable, dict[str, None]] = {}
        self._new: set[str] = set()
        self.auto_deletion = AutoDeletion(served, administration, self.is_claimed)

    def is_claimed(self, queue: str) -> bool:
        """Whether somebody has a queue to itself."""
        return queue in self._owners

    def is_taken(self, queue: QueueDispatch, *, takes: bool = True) -> bool:
        """True if one of a queue's consumers has it alone: another one is refused.

        By the queue's arguments it may be looked at all the same, so it matters what the other one
        `takes`; by the consumer's own wish (AMQP 0-10) it may not.
        """
        consumers = queue.consumers
        if consumers and takes and queue.arguments.exclusive:
            return True
        return any(getattr(consumer, "is_exclusive", False) for consumer in consumers)

    def may_use(self, queue: str, user: Hashable) -> bool:
        """Whether a queue is anybody's, or this one's; ask before each use of a queue."""
        return self._owners.get(queue, user) == user

    def is_own(self, queue: str, user: Hashable) -> bool:
        """Whether a queue has been this one's alone since it was made: nobody else used it."""
        return queue in self._new and self._owners.get(queue) == user

    def is_of_connection(self, queue: str, connection: int) -> bool:
        """Whether a queue is a session's alone that is on the connection of this number now."""
        owner = self._owners.get(queue)
        return owner is not None and getattr(owner, "connection_number", None) == connection

    def claim(self, queue: str, owner: Hashable, *, is_new: bool = False) -> None:
        """Have a queue for oneself until `end`; again changes nothing.

        Args:
            queue: Name of a queue that is in use.
            owner: Stands for a session, or whatever may end.
            is_new: The owner has just had it made.

        Raises:
            InvalidRequest: There is no such queue; another one has it, or consumes from it.
        """
        dispatch = self._served.queues.get(queue)
        if dispatch is None:
            raise InvalidRequest(f"unknown queue {shown(queue)}")
        if not self.may_use(queue, owner):
            raise InvalidRequest(
                f"queue {shown(queue)} is another session's alone: try again later"
            )
        if queue not in self._owners and dispatch.consumer_count:
            message = f"queue {shown(queue)} has {dispatch.consumer_count} consumers: nobody can"
            raise InvalidRequest(f"{message} have it alone")
        if is_new:
            self._new.add(queue)
        self._owners[queue] = owner
        self._queues.setdefault(owner, {})[queue] = None
        self.auto_deletion.used(dispatch)

    def end(self, owner: Hashable) -> None:
        """Free the queues of an owner that is gone, or delete them if they delete themselves."""
        for queue in self._queues.pop(owner, ()):
            del self._owners[queue]
            self._new.discard(queue)
            dispatch = self._served.queues.get(queue)
            if dispatch is not None:
                self.auto_deletion.unused(dispatch)

    def gone(self, queue: str) -> None:
        """Forget a queue that is being destroyed."""
        owner = self._owners.pop(queue, None)
        self._new.discard(queue)
        if owner is not None:
            of_owner = self._queues[owner]
            del of_owner[queue]
            if not of_owner:
                del self._queues[owner]
