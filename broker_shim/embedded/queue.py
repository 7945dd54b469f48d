"""Who gets which message of a queue next. Pure: ids, never bodies; no store, no clock.

Higher priority first, then the order of arrival; a message that was given back is again where it
was. Consumers with credit take turns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import NamedTuple, Protocol

from sparkstore.queue_arguments import QueueArguments

_MAX_PRIORITY = 9
_PRIORITY_SHIFT = 64
_LEFTOVERS = 1000
"""So many more than what waits may be in the heap before it is made anew."""


class Consumer(Protocol):
    """Whoever takes messages from a queue."""

    @property
    def credit(self) -> int:
        """How many more messages it takes now."""

    def assign(self, message_id: int) -> None:
        """This message is held for you: lower your credit, acquire it, deliver it."""


class Browser(Protocol):
    """Whoever looks at a queue and takes nothing."""

    def look(self) -> None:
        """Something may be new on the queue."""


class Waiting(NamedTuple):
    """An available message; the order of the tuple is the order of the queue."""

    order: int
    message_id: int


class Withdrawn(NamedTuple):
    """What became of messages that were to be taken out of dispatch.

    Attributes:
        held: Taken out: held by the caller now.
        left: Held by somebody else.
        gone: Not on the queue.
    """

    held: list[int]
    left: int
    gone: int


class QueueDispatch:
    """One queue: what waits, what is held, who wants.

    Invariants: a message on the queue is either waiting or held, never both. `_available` is what
    waits; the heap gives its order, and may hold leftovers of what was withdrawn meanwhile.

    Attributes:
        name: Of the queue.
        is_kept: Durable messages on it survive a restart.
        arguments: What the queue asks of its messages.
        browsers: Who looks at it.
    """

    def __init__(
        self,
        name: str,
        *,
        is_kept: bool = True,
        arguments: QueueArguments = QueueArguments(),  # noqa: B008  # a value, and frozen
    ) -> None:
        self.name = name
        self.is_kept = is_kept
        self.arguments = arguments
        self._arrivals = 0
        self._waiting: list[Waiting] = []
        self._available: dict[int, Waiting] = {}
        self._held: dict[int, Waiting] = {}
        self._delivery_counts: dict[int, int] = {}
        self._refused_by: dict[int, set[Consumer]] = {}
        self._consumers: deque[Consumer] = deque()
        self.browsers: list[Browser] = []

    def __len__(self) -> int:
        """Messages on the queue, held ones too."""
        return len(self._available) + len(self._held)

    def __contains__(self, message_id: int) -> bool:
        """True if it is on the queue."""
        return message_id in self._available or message_id in self._held

    @property
    def consumer_count(self) -> int:
        """Consumers attached."""
        return len(self._consumers)

    def recovered(self, entries: list[tuple[int, int, int]]) -> None:
        """Take what survived: (message id, priority, delivery count) in queue order, once."""
        for message_id, priority, delivery_count in entries:
            self._arrivals += 1
            waiting = Waiting(_order(priority, self._arrivals), message_id)
            self._waiting.append(waiting)
            self._available[message_id] = waiting
            if delivery_count:
                self._delivery_counts[message_id] = delivery_count
        heapify(self._waiting)

    def arrived(self, message_id: int, priority: int) -> None:
        """A message was enqueued."""
        self._arrivals += 1
        waiting = Waiting(_order(priority, self._arrivals), message_id)
        self._available[message_id] = waiting
        heappush(self._waiting, waiting)

    def released(self, message_id: int, *, delivery_failed: bool) -> None:
        """A held message is available again."""
        self._available[message_id] = waiting = self._held.pop(message_id)
        heappush(self._waiting, waiting)
        if delivery_failed:
            self._delivery_counts[message_id] = self.delivery_count(message_id) + 1

    def withdraw(self, message_ids: Iterable[int]) -> Withdrawn:
        """Take waiting messages out of dispatch; end each by `released` or `removed`."""
        held, left, gone = [], 0, 0
        for message_id in message_ids:
            waiting = self._available.pop(message_id, None)
            if waiting is not None:
                self._held[message_id] = waiting
                held.append(message_id)
            elif message_id in self._held:
                left += 1
            else:
                gone += 1
        if len(self._waiting) > 2 * len(self._available) + _LEFTOVERS:
            self._waiting = list(self._available.values())
            heapify(self._waiting)
        return Withdrawn(held, left, gone)

    def removed(self, message_id: int) -> None:
        """A held message left the queue."""
        del self._held[message_id]
        self._delivery_counts.pop(message_id, None)
        self._refused_by.pop(message_id, None)

    def delivery_count(self, message_id: int) -> int:
        """Failed deliveries so far."""
        return self._delivery_counts.get(message_id, 0)

    def failed_too_often(self) -> list[int]:
        """What waits with more failed deliveries than the queue allows."""
        limit = self.arguments.max_delivery_count
        if limit is None:
            return []
        counts = self._delivery_counts.items()
        return [each for each, count in counts if count > limit and each in self._available]

    def add(self, consumer: Consumer) -> None:
        """A consumer takes its place after the others."""
        self._consumers.append(consumer)

    def discard(self, consumer: Consumer) -> None:
        """A consumer is gone; what it holds is for the caller to release."""
        if consumer in self._consumers:
            self._consumers.remove(consumer)
        for refusers in self._refused_by.values():
            refusers.discard(consumer)

    def refuse(self, message_id: int, consumer: Consumer) -> None:
        """This consumer must not get this message again (modified, undeliverable-here)."""
        self._refused_by.setdefault(message_id, set()).add(consumer)

    def take(self) -> Iterator[tuple[int, Consumer]]:
        """Hand out messages, each to a consumer with credit, and hold them.

        The caller must `assign` each before it asks for the next. What every
        consumer with credit has refused stays where it is.
        """
        passed_over: list[Waiting] = []
        try:
            while self._waiting and any(consumer.credit > 0 for consumer in self._consumers):
                waiting = heappop(self._waiting)
                if self._available.get(waiting.message_id) != waiting:
                    continue  # a leftover
                consumer = self._next_consumer(waiting.message_id)
                if consumer is None:
                    passed_over.append(waiting)
                    continue
                del self._available[waiting.message_id]
                self._held[waiting.message_id] = waiting
                yield waiting.message_id, consumer
        finally:
            for waiting in passed_over:
                heappush(self._waiting, waiting)

    def waiting_after(self, order: int) -> list[Waiting]:
        """What waits after a place in the queue, in order, for browsing."""
        return sorted(waiting for waiting in self._available.values() if waiting.order > order)

    def _next_consumer(self, message_id: int) -> Consumer | None:
        refusers = self._refused_by.get(message_id, ())
        for _ in range(len(self._consumers)):
            consumer = self._consumers[0]
            self._consumers.rotate(-1)
            if consumer.credit > 0 and consumer not in refusers:
                return consumer
        return None


def _order(priority: int, arrival: int) -> int:
    return (_MAX_PRIORITY - priority << _PRIORITY_SHIFT) + arrival
