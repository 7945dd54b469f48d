"""A queue of a store service, at a member: consumers are asked for there, and served from here.

It stands where a queue of a broker alone stands (`QueueDispatch`), so whoever serves a link need
not know which it is. What waits on the queue is the service's affair; here is what this member was
granted and has not settled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.broker.queues.queue_index import Cursor, Withdrawn
from broker_shim.broker.queues.selective_cursor import Batch, Consumer
from broker_shim.members.remote_browse import RemoteCursor
from broker_shim.selectors import Selector
from broker_shim.store.interface import Entry
from sparkstore.core.queue_arguments import QueueArguments

if TYPE_CHECKING:
    from broker_shim.members.membership import Membership


class RemoteQueue(QueueDispatch):
    """A member's queue, which has what the service granted. On the loop's thread only.

    Attributes:
        granted: What this member holds of the queue, as it was granted.
    """

    def __init__(
        self, name: str, *, is_kept: bool, arguments: QueueArguments, subscriber: Membership
    ) -> None:
        super().__init__(name, is_kept=is_kept, arguments=_here(arguments))
        self.granted: dict[int, Entry] = {}
        self._subscriber = subscriber
        self._there: list[Consumer] = []
        self._browsed: dict[int, Entry] = {}
        self._failures: dict[int, int] = {}

    def __len__(self) -> int:
        """The number of messages of it that this member holds."""
        return len(self.granted)

    def __contains__(self, message_id: int) -> bool:
        """True if this member holds it."""
        return message_id in self.granted

    @property
    def held_count(self) -> int:
        """The number of the queue's messages that this member holds."""
        return len(self.granted)

    @property
    def consumer_count(self) -> int:
        """The number of consumers attached at this member."""
        return len(self._there)

    @property
    def consumers(self) -> list[Consumer]:
        """The consumers that are attached at this member."""
        return [*self._there]

    def alter(self, arguments: QueueArguments) -> None:
        """Take other arguments of the queue, from now on."""
        self.arguments = _here(arguments)

    def arrived(self, message_ids: Sequence[int], priority: int, *, durable: bool = True) -> None:
        """Do nothing: the service knows which messages were enqueued."""

    def cursor(self) -> RemoteCursor:
        """Make the cursor of a browser, which begins at the head."""
        if not self.browsers:
            self._browsed.clear()
            self._failures.clear()
        return RemoteCursor()

    def can_look(self, cursor: Cursor, on_known: Callable[[], None]) -> bool:
        """Tell whether a browser's next messages are known; if not, ask the service once.

        See `QueueDispatch.can_look`.
        """
        assert isinstance(cursor, RemoteCursor)
        if cursor.take_known():
            return True
        is_asked = cursor.on_known is not None
        cursor.on_known = on_known
        if not is_asked:
            self._subscriber.look(self, cursor)
        return False

    def has_browsed(self, cursor: Cursor) -> bool:
        """True if the service had nothing more for a browser when it was asked."""
        assert isinstance(cursor, RemoteCursor)
        return cursor.has_nothing

    def browse(self, cursor: Cursor, count: int) -> Batch:
        """Take the messages that the service showed a browser, `count` at most."""
        assert isinstance(cursor, RemoteCursor)
        rows = cursor.take(count)
        for message_id, entry in rows:
            self._browsed[message_id] = entry
            if entry.delivery_count:
                self._failures[message_id] = entry.delivery_count
        return [(0, message_id) for message_id, _ in rows]

    def entry_of_browsed(self, message_id: int) -> Entry | None:
        """Take the service's entry of a message that was browsed, once.

        See `QueueDispatch.entry_of_browsed`.
        """
        return self._browsed.pop(message_id, None)

    def take_browsed(self, message_id: int, entry: Entry | None, holder: str) -> Withdrawn:
        """Count a browsed message as held here, until the service says whether it waits."""
        if message_id in self.granted or entry is None:
            return Withdrawn([], *((0, 1) if entry is None else (1, 0)))
        self.granted[message_id] = replace(entry, acquired_by=holder)
        return Withdrawn([message_id], 0, 0)

    def is_acquired(self, message_id: int) -> bool:
        """True if the message was granted: it is acquired in its holder's name."""
        return message_id in self.granted

    def released(self, message_id: int, *, delivery_failed: bool) -> None:
        """A granted message waits again, at the service."""
        self.redelivered += delivery_failed
        self.granted.pop(message_id, None)

    def removed(self, message_ids: Sequence[int], kind: str = "other") -> None:  # noqa: ARG002  # the service counts it
        """Forget granted messages that left the queue, or are not this member's any more."""
        for message_id in message_ids:
            self.granted.pop(message_id, None)

    def held_elsewhere(self, message_ids: Sequence[int]) -> None:
        """Forget granted messages that others have now."""
        self.removed(message_ids)

    def withdraw(self, message_ids: Iterable[int]) -> Withdrawn:
        """Withdraw nothing: no message waits at a member."""
        return Withdrawn([], 0, len([*message_ids]))

    def waits(self, _message_id: int) -> bool:
        """False always: no message waits at a member."""
        return False

    def delivery_count(self, message_id: int) -> int:
        """The number of failed deliveries before the message was granted or shown."""
        entry = self.granted.get(message_id)
        return self._failures.get(message_id, 0) if entry is None else entry.delivery_count

    def delivery_counts(self, message_ids: Sequence[int]) -> list[int]:
        """Tell the `delivery_count` of each message."""
        return [self.delivery_count(message_id) for message_id in message_ids]

    def add(self, consumer: Consumer, selector: Selector | None = None) -> None:
        """A consumer takes its place after the others, those of other members too."""
        self._there.append(consumer)
        self._subscriber.subscribe(self, consumer, selector)

    def discard(self, consumer: Consumer) -> None:
        """Cancel the subscription of a consumer; what it holds is for the caller to release."""
        if consumer in self._there:
            self._there.remove(consumer)
            self._subscriber.cancel(consumer)

    def refuse(self, message_id: int, consumer: Consumer) -> None:
        """Never hand a message to this consumer again."""
        self._subscriber.refuse(message_id, consumer)

    def dispatch(self) -> None:
        """Ask for what consumers have credit for; what is granted comes later."""
        for consumer in self._there:
            self._subscriber.ask(consumer)

    def has_caught_up(self, consumer: Consumer) -> bool:
        """True if the service has nothing for this consumer now."""
        return self._subscriber.has_caught_up(consumer)


def _here(arguments: QueueArguments) -> QueueArguments:
    """Leave out the arguments that only the service acts on: groups and the last-value key."""
    return arguments._replace(last_value_key=None, message_groups=False)


class GrantedEntries(Mapping[str, Mapping[int, Entry]]):
    """The entries that this member holds, by queue and message id."""

    def __init__(self) -> None:
        self.queues: Mapping[str, Any] = {}

    def __getitem__(self, queue: str) -> Mapping[int, Entry]:
        """The granted entries of one queue."""
        granted: Mapping[int, Entry] = self.queues[queue].granted
        return granted

    def __iter__(self) -> Iterator[str]:
        """The names of all queues."""
        return iter(self.queues)

    def __len__(self) -> int:
        """The number of queues."""
        return len(self.queues)


def granted_entry(shown: tuple[Any, ...], holder: str | None) -> Entry:
    """Make the entry that a grant tells of, as its holder has it."""
    position, at, priority, expires_at, message_bytes, delivery_count, detail = shown
    return Entry(position, at, priority, expires_at, message_bytes, holder, delivery_count, detail)
