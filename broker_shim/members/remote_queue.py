"""A queue of a store service, at a member: consumers are asked for there, and served from here.

It stands where a queue of a broker alone stands (`QueueDispatch`), so whoever serves a link need
not know which it is. What waits on the queue is the service's affair; here is what this member was
granted and has not settled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from broker_shim.broker.queues.queue import QueueDispatch, Withdrawn
from broker_shim.broker.queues.selective_cursor import Consumer
from broker_shim.selectors import Selector
from broker_shim.store.interface import Entry
from sparkstore.core.queue_arguments import QueueArguments


class Subscriber(Protocol):
    """Asks the service for messages."""

    def subscribe(self, queue: RemoteQueue, consumer: Consumer, selector: Selector | None) -> None:
        """A consumer wants messages of a queue."""

    def cancel(self, consumer: Consumer) -> None:
        """A consumer wants nothing any more."""

    def refuse(self, message_id: int, consumer: Consumer) -> None:
        """A consumer must not get a message again."""

    def ask(self, consumer: Consumer) -> None:
        """Tell how many messages a consumer takes, if that has changed."""

    def has_caught_up(self, consumer: Consumer) -> bool:
        """True if the service has nothing for a consumer now, and it has all that was sent."""


class RemoteQueue(QueueDispatch):
    """See above. On the loop's thread only.

    Attributes:
        granted: What this member holds of the queue, as it was granted.
    """

    def __init__(
        self, name: str, *, is_kept: bool, arguments: QueueArguments, subscriber: Subscriber
    ) -> None:
        super().__init__(name, is_kept=is_kept, arguments=_here(arguments))
        self.granted: dict[int, Entry] = {}
        self._subscriber = subscriber
        self._there: list[Consumer] = []

    def __len__(self) -> int:
        """Messages of it that this member holds."""
        return len(self.granted)

    def __contains__(self, message_id: int) -> bool:
        """True if this member holds it."""
        return message_id in self.granted

    @property
    def held_count(self) -> int:
        """Messages of it that this member holds."""
        return len(self.granted)

    @property
    def consumer_count(self) -> int:
        """Consumers attached here."""
        return len(self._there)

    @property
    def consumers(self) -> list[Consumer]:
        """Those that are attached here."""
        return [*self._there]

    def alter(self, arguments: QueueArguments) -> None:
        """The queue asks for other things from now on."""
        self.arguments = _here(arguments)

    def arrived(self, message_id: int, priority: int, *, durable: bool = True) -> None:
        """A message was enqueued: the service knows."""

    @property
    def can_browse(self) -> bool:
        """False: what waits is known to the service."""
        return False

    def is_acquired(self, message_id: int) -> bool:
        """True: it is granted in its holder's name."""
        return message_id in self.granted

    def released(self, message_id: int, *, delivery_failed: bool) -> None:
        """A granted message waits again, at the service."""
        self.redelivered += delivery_failed
        self.granted.pop(message_id, None)

    def removed(self, message_id: int) -> None:
        """A granted message left the queue, or is not this member's any more."""
        self.granted.pop(message_id, None)

    def held_elsewhere(self, message_id: int) -> None:
        """Another member has what this one was granted."""
        self.granted.pop(message_id, None)

    def withdraw(self, message_ids: Iterable[int]) -> Withdrawn:
        """Nothing waits here."""
        return Withdrawn([], 0, len([*message_ids]))

    def waits(self, _message_id: int) -> bool:
        """Nothing waits here."""
        return False

    def delivery_count(self, message_id: int) -> int:
        """Failed deliveries before it was granted."""
        entry = self.granted.get(message_id)
        return 0 if entry is None else entry.delivery_count

    def add(self, consumer: Consumer, selector: Selector | None = None) -> None:
        """A consumer takes its place after the others, those of other members too."""
        self._there.append(consumer)
        self._subscriber.subscribe(self, consumer, selector)

    def discard(self, consumer: Consumer) -> None:
        """A consumer is gone; what it holds is for the caller to release."""
        if consumer in self._there:
            self._there.remove(consumer)
            self._subscriber.cancel(consumer)

    def refuse(self, message_id: int, consumer: Consumer) -> None:
        """This consumer must not get this message again."""
        self._subscriber.refuse(message_id, consumer)

    def take(self) -> Iterator[tuple[int, Consumer]]:
        """Ask for what consumers have credit for; what is granted comes later."""
        for consumer in self._there:
            self._subscriber.ask(consumer)
        return iter(())

    def has_caught_up(self, consumer: Consumer) -> bool:
        """True if the service has nothing for this consumer now."""
        return self._subscriber.has_caught_up(consumer)


def _here(arguments: QueueArguments) -> QueueArguments:
    """Without what the service decides: groups of messages, and which is the newest of a key."""
    return arguments._replace(last_value_key=None, message_groups=False)
