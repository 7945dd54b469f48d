"""Takes messages back from consumers that neither settle them nor renew their lock in time.

A queue with `lock_timeout_ms` lends each message for so long. Its consumer renews the lock by
saying something about the delivery that decides nothing. Whatever decides about it ends the lock: a
transaction that is open has the message, however long it takes, and a rollback locks it anew.

Why nobody loses a message that he has decided about: a lock is looked up by the consumer, on the
loop's thread, among what it has not decided about. So either the decision came first, and there is
nothing to take back, or the message is given back as a failed delivery, and a decision that comes
later is about nothing. The store takes the release as any other: it is durable before the message
is handed out again.

There is one timer for all locks of a broker; a lock costs an item of a heap and of a dictionary.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from heapq import heappop, heappush

from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.broker.storage.loop import Later, SoonestTimer

_MOST_STALE = 4096


class LockTimer:
    """The timer of all locks. On the loop's thread only."""

    def __init__(self, later: Later, now_s: Callable[[], float] = time.monotonic) -> None:
        """Begin with no lock; `now_s` never goes back."""
        self.now_s = now_s
        self._locking: set[ConsumerLocks] = set()
        self._timer = SoonestTimer(later, self._turn)

    def watch(self, locks: ConsumerLocks, until_s: float) -> None:
        """Have `expire` called when this time has come, or soon after."""
        self._locking.add(locks)
        self._timer.ask(until_s, max(0.0, until_s - self.now_s()))

    def forget(self, locks: ConsumerLocks) -> None:
        """Let go of a consumer that has no lock."""
        self._locking.discard(locks)

    def _turn(self) -> None:
        for locks in [*self._locking]:
            until_s = locks.expire(self.now_s())
            if until_s is None:
                self._locking.discard(locks)
            else:
                self.watch(locks, until_s)


class ConsumerLocks:
    """The locks of one consumer's messages. On the loop's thread only."""

    def __init__(
        self, timer: LockTimer, queue: QueueDispatch, take_back: Callable[[int], None]
    ) -> None:
        """Begin with no lock.

        Args:
            timer: Of the broker.
            queue: The queue that is consumed; its arguments say how long a lock lasts.
            take_back: Gives a message back as a failed delivery, if its consumer has it undecided.
        """
        self._timer, self._queue, self._take_back = timer, queue, take_back
        self._heap: list[tuple[float, int]] = []
        self._until: dict[int, float] = {}

    def begin(self, message_ids: Iterable[int]) -> None:
        """Lock messages that the consumer was sent, or lock them anew."""
        timeout_ms = self._queue.arguments.lock_timeout_ms
        if timeout_ms is None:
            return
        until_s = self._timer.now_s() + timeout_ms / 1000
        for message_id in message_ids:
            self._until[message_id] = until_s
            heappush(self._heap, (until_s, message_id))
        if len(self._heap) > 2 * len(self._until) + _MOST_STALE:  # the others were settled in time
            self._heap = sorted((until_s, i) for i, until_s in self._until.items())
        self._timer.watch(self, until_s)

    def renew(self, message_ids: Iterable[int]) -> None:
        """Lock messages anew that are locked."""
        if self._until:
            self.begin([message_id for message_id in message_ids if message_id in self._until])

    def end(self, message_ids: Iterable[int]) -> None:
        """End the locks of messages that are decided about."""
        if self._until:
            for message_id in message_ids:
                self._until.pop(message_id, None)
            if not self._until:
                self._clear()

    def _clear(self) -> None:
        self._until.clear()
        self._heap.clear()
        self._timer.forget(self)

    def close(self) -> None:
        """Forget all locks, and who takes back: the consumer is gone, and nothing begins any more.

        Else each consumer that ends would be a cycle, which only Python's collector finds.
        """
        self._clear()
        self._take_back = _nobody

    def expire(self, now_s: float) -> float | None:
        """Take back what was locked until now; when to look again, None: nothing is locked."""
        while self._heap and self._heap[0][0] <= now_s:
            until_s, message_id = heappop(self._heap)
            if self._until.get(message_id) == until_s:
                del self._until[message_id]
                self._take_back(message_id)
        return self._heap[0][0] if self._heap else None


def _nobody(_message_id: int) -> None:
    """Take nothing back, as nothing is locked."""
