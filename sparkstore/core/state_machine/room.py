"""Decide whether a message has room, and when it may be delivered, by its queue's arguments.

Pure. What takes messages away is never asked whether there is room.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from sparkstore.core import fold
from sparkstore.core.annotations import with_delivery_time
from sparkstore.core.queue_arguments import QueueTerms
from sparkstore.core.records import MessageHeader
from sparkstore.core.state_machine.call_values import RecordStep, Transaction
from sparkstore.core.state_machine.recent_ids import RecentIds
from sparkstore.core.state_machine.sole_host import sole_host
from sparkstore.errors import Full

_MOST_VALUES = 4_096
"""More than the broker is behind the log."""

LastValue = Callable[[str, str, MessageHeader], tuple[str | None, int | None]]
"""last_value(queue, its key, header of a new message) -> its value, and who has it there: its id"""


class RoomStateMachine:
    """The part of the state machine that holds senders back.

    Decision: a Broker-J host is not held back. It numbers all its requests in one line and takes a
    refused enqueue for the end of its store, so its consumers would not go on, either; it has
    limits of its own for senders, by the size of its store.

    Attributes:
        held_back: Why new messages are refused; empty: they are not. Any thread may set it.
        terms: What each queue, by its name, makes of a message that is put on it.
        claims: By (queue, message id), the transaction that nobody else gets an entry before.
        has_dropped: Some of what was decided and is not applied yet drops messages of full queues;
            also true if it was refused after all.
        identity_of: What a message's sender calls it, by its header; None: it has no name.
        last_value: The value of a new message on a last-value queue, and the newest message there
            that has it, as far as the broker knows; both None if it has none. Called under the
            store's lock, on any thread.
        recent_ids: What came of late to queues that detect duplicates.
        recent_values: The message that came last to a last-value queue, by (queue, value).
        is_copy: Another store has decided all that comes: queues are never full here.
        on_dropped: Told of steps by which full queues dropped messages, when they are applied.
        on_full: Told of each message that is refused because its queue is full: the queue's name.
    """

    state: fold.State
    now_us: Callable[[], int]
    branches: dict[str, Transaction]
    terms: dict[str, QueueTerms]
    claims: dict[tuple[str, int], Transaction]
    recent_ids: RecentIds
    recent_values: dict[tuple[str, str], int]
    identity_of: Callable[[MessageHeader], Hashable | None] = staticmethod(
        lambda header: header.amqp_message_id
    )
    last_value: LastValue = staticmethod(lambda _queue, _key, _header: (None, None))
    held_back: str = ""
    has_dropped: bool = False
    is_copy: bool = False
    on_dropped: Callable[[Sequence[RecordStep]], None] = staticmethod(lambda _steps: None)
    on_full: Callable[[str], None] = staticmethod(lambda _queue: None)

    def delayed(
        self, queue: str, before: str | None, detail: str | None, delivery_count: int
    ) -> str | None:
        """The new `detail` of an entry whose delivery failed: when the queue tries it again.

        Args:
            queue: Name of its queue, which must exist.
            before: Its detail until now.
            detail: Its new detail, but for this; None: the same.
            delivery_count: Its failed deliveries by now.
        """
        at_us = self.terms[queue].arguments.retried_from(delivery_count, self.now_us())
        if at_us is None:
            return detail
        return with_delivery_time(before if detail is None else detail, at_us)

    def note_id(self, queue: str, identity: Hashable, at_us: int) -> None:
        """Remember what the sender of a message called it, for as long as its queue asks."""
        window_ms = self.terms[queue].arguments.duplicate_window_ms
        if window_ms is not None:
            self.recent_ids.note(queue, identity, at_us, at_us - window_ms * 1000)

    def note_names(self, step: RecordStep) -> None:
        """Remember what the sender of a message called it, and who came last with its value."""
        queue, values = step.record.queue or "", self.recent_values
        if step.identity is not None:
            self.note_id(queue, step.identity, step.record.at)
        if step.value is not None:
            values.pop((queue, step.value), None)
            values[queue, step.value] = step.record.message_id or 0
            if len(values) > _MOST_VALUES:
                del values[next(iter(values))]

    def check_room(self, *, is_new: bool = True) -> None:
        """Refuse a new message that is to be kept, or a piece of one; any other passes.

        Raises:
            Full: Senders are held back.
        """
        why = self.held_back
        if why and is_new and sole_host(self.state) is None:
            raise Full(why)
