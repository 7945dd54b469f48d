"""One session's transaction: what it sends and accepts since the last commit, all of it or nothing.

Its work waits in a unit (`broker.transactions`) until tx.commit. What is accepted in it stays held
by the session until then; what is rolled back is the client's to accept or release again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass

from broker_shim.amqp_0_10.definitions import ExecutionErrorCode
from broker_shim.broker.flow.publications import Publication
from broker_shim.broker.flow.served_queues import ServedQueues
from broker_shim.broker.storage.loop import Later
from broker_shim.broker.transactions.unit_of_work import Promise, UnitOfWork
from broker_shim.broker.virtual_host import Broker
from broker_shim.completion import OnComplete, nobody
from broker_shim.errors import StoreError
from broker_shim.framing.errors import RemoteCommandError
from broker_shim.store.interface import MessageHeader
from sparkstore.core.state_machine.call_values import DequeueCall, StoreCall

_LEAST_S = 1.0
"""Between two looks."""


class OpenTransactions:
    """The transactions of all sessions, the oldest first, with one timer for all.

    On the loop's thread only.
    """

    def __init__(
        self, later: Later, most_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Begin with no transaction that is open.

        Args:
            later: Makes a call after a while.
            most_s: How long one may be open, from its first operation, in seconds.
            clock: Only rises, in seconds.
        """
        self._later, self.most_s, self._clock = later, most_s, clock
        self._open: dict[Hashable, tuple[float, Callable[[], None]]] = {}
        self._is_looked_at_later = False

    def began(self, transaction: Hashable, on_late: Callable[[], None]) -> None:
        """Watch a transaction since its first operation; `on_late` if it is open too long."""
        self._open[transaction] = self._clock(), on_late
        self._look_later()

    def ended(self, transaction: Hashable) -> None:
        """Forget a transaction that is over; one that never began changes nothing."""
        self._open.pop(transaction, None)

    def _look_later(self) -> None:
        oldest = next(iter(self._open.values()), None)
        if oldest is not None and not self._is_looked_at_later:
            self._is_looked_at_later = True
            due_s = oldest[0] + self.most_s - self._clock()
            self._later(max(due_s, _LEAST_S), self._look)

    def _look(self) -> None:
        self._is_looked_at_later = False
        due_s = self._clock() - self.most_s
        for transaction, (began_at_s, on_late) in [*self._open.items()]:
            if began_at_s > due_s:
                break
            del self._open[transaction]
            on_late()
        self._look_later()


@dataclass(slots=True, eq=False)
class AcceptedRun:
    """Messages of one consumer that the client accepted in the transaction; a `SettledWork`.

    Attributes:
        message_ids: The ids of the messages.
        queue: The queue that they leave.
        holder: Whoever holds them there.
        on_ended: Called with `is_undone`: False once they have left their queue, True if they have
            not: the client decides again.
    """

    message_ids: Sequence[int]
    queue: str
    holder: str
    on_ended: Callable[..., None]

    def __len__(self) -> int:
        """The number of deliveries. See `SettledWork`."""
        return len(self.message_ids)

    @property
    def place(self) -> tuple[str, Sequence[int]]:
        """The queue, and the ids of the accepted messages. See `SettledWork`."""
        return self.queue, self.message_ids

    def operations(self, served: ServedQueues) -> list[StoreCall]:  # noqa: ARG002
        """Make the dequeue of the accepted messages. See `SettledWork`."""
        return [DequeueCall(self.message_ids, self.queue, self.holder)]

    def committed(self, served: ServedQueues) -> None:
        """Take the messages, which are dequeued durably, off their queue. See `SettledWork`."""
        dispatch = served.queues.get(self.queue)
        if dispatch is not None:
            dispatch.removed(self.message_ids, "accepted")
        served.metrics.accepted += len(self)
        self.on_ended(is_undone=False)

    def promised(self) -> None:
        """Note that a branch has the messages durably. See `SettledWork`."""
        self.on_ended(is_undone=False)

    def undone(self, on_done: OnComplete) -> None:
        """Let the session have the deliveries again. See `SettledWork`."""
        self.on_ended(is_undone=True)
        on_done(None)


class SessionTransaction:
    """The transaction of a session, one after the other. On the loop's thread only.

    Attributes:
        gives_back: What was accepted in it is available again if it is rolled back, to anybody;
            else its client decides about it again.
        on_begun: Called with its first operation, each time.
        on_ended: Called when it is committed or rolled back, each time.
    """

    def __init__(self, broker: Broker, *, gives_back: bool = False) -> None:
        self._broker, self._metrics, self.gives_back = broker, broker.metrics, gives_back
        self.on_begun: Callable[[], None] = _nothing
        self.on_ended: Callable[[], None] = _nothing
        self._work = broker.unit_of_work()
        self._bytes = 0

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to do."""
        return self._work.is_empty

    def publish(
        self, header: MessageHeader, bodies: Sequence[bytes], queues: Collection[str]
    ) -> None:
        """Send messages that share a header at the commit. Raises as `take`."""
        self.take(len(bodies), sum(map(len, bodies)) + len(bodies) * header.header_bytes)
        if self._work.post_run(Publication((header,), bodies, queues)):
            return
        for body in bodies:
            posting = self._work.post()
            posting.publish(header, body, queues, posting.ended)

    def accept(self, accepted: AcceptedRun) -> None:
        """Accept deliveries, which it has taken, at the commit."""
        self._work.settle(accepted)

    def take(self, operation_count: int, byte_count: int = 0) -> None:
        """Count operations that are to be added.

        Raises:
            RemoteCommandError: There is too much in it.
        """
        settings = self._broker.settings
        if operation_count and self.is_empty and not self._bytes:
            self.on_begun()
        self._bytes += byte_count
        count = self._work.operation_count + operation_count
        if (
            count > settings.max_transaction_operations
            or self._bytes > settings.max_transaction_bytes
        ):
            text = f"a transaction of {count} operations and {self._bytes} bytes: commit earlier"
            raise RemoteCommandError(ExecutionErrorCode.RESOURCE_LIMIT_EXCEEDED, text)

    def commit(self, on_done: OnComplete) -> None:
        """Do all of it; `on_done` when that is durable and visible, or nothing was done."""
        work = self._begin_anew()
        if work.is_empty:
            on_done(None)
        else:
            work.commit(self._counting(on_done))

    def prepare(self, promise: Promise, on_done: OnComplete) -> None:
        """Promise all of it, as a branch that is decided by its xid alone; else it is undone."""
        self._begin_anew().prepare(promise, on_done)

    def rollback(self) -> None:
        """Forget what the session sent; what it accepted the client decides about again."""
        work = self._begin_anew()
        if not (self.gives_back or work.is_empty):
            self._metrics.transaction_ended(committed=False)
        work.undo(nobody)

    undo = rollback

    def _counting(self, on_done: OnComplete) -> OnComplete:
        """Count a transaction when it is decided, unless it is a branch of a larger one."""
        if self.gives_back:
            return on_done

        def decided(error: StoreError | None) -> None:
            self._metrics.transaction_ended(committed=error is None)
            on_done(error)

        return decided

    def _begin_anew(self) -> UnitOfWork:
        work, self._work = self._work, self._broker.unit_of_work()
        self._bytes = 0
        self.on_ended()
        return work


def _nothing() -> None:
    """Do nothing: nobody counts its time."""
