"""Queues that were made because a client attached to them, and that nobody uses any more.

Nobody ordered such a queue, and all clients of a machine may be one user, who may have only so many
made (`wiring_limit`). So it is deleted when nothing has been on it, and nobody attached to it, for
`unused_queue_s`. A client that attaches later has it made anew.

What stays: what an administrator or a client has created, altered or bound since by name, what the
settings name, what anything is bound to, what another queue sends its dead letters to, and what a
link or a session has to itself. What was there at the start of this process stays, too: nothing
says how it was made. A member deletes none, as it sees only its own clients.

Why nothing is lost: the order to delete is the administrator's without force. It is decided in the
loop's turn in which it is given, and refused if a message is on the queue or on its way, or if
somebody consumes. A link that sends to the queue keeps it (`keep_for`). A transaction that a relay
has filled, and that is left open for so long, is refused as a whole, and the client is told.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from weakref import WeakKeyDictionary

from broker_shim.broker.flow.served_queues import ServedQueues
from broker_shim.broker.orders.administration import Administration
from broker_shim.errors import StoreError
from sparkstore.core.queue_names import shown
from sparkstore.operations.administration import AdminAction, Order

_log = logging.getLogger(__name__)

_LOOKS = 4
"""In the time after which a queue is deleted."""
_LEAST_PAUSE_S, _MOST_PAUSE_S = 0.05, 60.0
"""Between two looks, however short or long that time is: the loop never spins."""


class UnusedQueues:
    """Deletes queues that were made on demand, once they are unused. On the loop's thread only."""

    def __init__(
        self,
        served: ServedQueues,
        administration: Administration,
        is_claimed: Callable[[str], bool],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with no queue that could go.

        Args:
            served: The queues of the broker, and who is attached to them.
            administration: Deletes them, and says which somebody orders by name.
            is_claimed: Whether somebody has a queue to itself.
            now_s: A clock that is never set back, in seconds.
        """
        self._served, self._administration = served, administration
        self._is_claimed, self._now_s = is_claimed, now_s
        self._used_at: dict[str, float] = {}
        self._senders = WeakKeyDictionary[object, str]()
        administration.on_ordered = self._forget

    def start(self) -> None:
        """Look at the queues from time to time, unless they stay."""
        if self._are_deleted:
            pause_s = self._served.settings.unused_queue_s / _LOOKS
            self._served.later(max(_LEAST_PAUSE_S, min(_MOST_PAUSE_S, pause_s)), self._look)

    @property
    def _are_deleted(self) -> bool:
        return self._served.settings.unused_queue_s > 0 and not self._served.is_member

    def made(self, name: str) -> None:
        """Note that a queue was made on demand."""
        if self._are_deleted:
            self._used_at[name] = self._now_s()

    def used(self, name: str) -> None:
        """Note that somebody attaches to a queue."""
        if name in self._used_at:
            self._used_at[name] = self._now_s()

    def keep_for(self, name: str, sender: object) -> None:
        """Keep a queue as long as what sends to it lives."""
        self._senders[sender] = name

    def _look(self) -> None:
        if self._served.is_stopping:
            return
        now_s, unused_s = self._now_s(), self._served.settings.unused_queue_s
        kept = {key.queue for key in self._served.router.bindings()}
        kept.update(queue.name for queue in self._served.settings.queues)
        kept.update(self._senders.values())
        for name, used_at in [*self._used_at.items()]:
            if name not in self._served.queues:
                self._forget(name)
            elif name in kept or self._is_used(name):
                self._used_at[name] = now_s
            elif now_s - used_at >= unused_s:
                self._delete(name, now_s)
        self.start()

    def _is_used(self, name: str) -> bool:
        queue = self._served.queues[name]
        is_attached = queue.consumer_count > 0 or bool(queue.browsers) or self._is_claimed(name)
        return is_attached or len(queue) > 0

    def _delete(self, name: str, now_s: float) -> None:
        self._used_at[name] = now_s  # one that cannot be deleted now is looked at again then

        def report(error: StoreError | None, _answer: object) -> None:
            if error is None:
                text = "queue %s is deleted: it was made on demand, and unused for %g s"
                _log.info(text, shown(name), self._served.settings.unused_queue_s)

        order = Order(AdminAction.DELETE_QUEUE, name, if_unused=True)
        self._administration.order(order, report)

    def _forget(self, name: str) -> None:
        self._used_at.pop(name, None)
