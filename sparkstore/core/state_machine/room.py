"""Whether there is room for new messages; what takes messages away is never asked. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sparkstore.core import fold
from sparkstore.core.queue_arguments import QueueTerms
from sparkstore.core.state_machine.call_values import RecordStep, Transaction
from sparkstore.core.state_machine.sole_host import sole_host
from sparkstore.errors import Full


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
        is_copy: Another store has decided all that comes: queues are never full here.
        on_dropped: Told of steps by which full queues dropped messages, when they are applied.
        on_full: Told of each message that is refused because its queue is full: the queue's name.
    """

    state: fold.State
    now_us: Callable[[], int]
    branches: dict[str, Transaction]
    terms: dict[str, QueueTerms]
    claims: dict[tuple[str, int], Transaction]
    held_back: str = ""
    has_dropped: bool = False
    is_copy: bool = False
    on_dropped: Callable[[Sequence[RecordStep]], None] = staticmethod(lambda _steps: None)
    on_full: Callable[[str], None] = staticmethod(lambda _queue: None)

    def check_room(self, *, is_new: bool = True) -> None:
        """Refuse a new message that is to be kept, or a piece of one; any other passes.

        Raises:
            Full: Senders are held back.
        """
        why = self.held_back
        if why and is_new and sole_host(self.state) is None:
            raise Full(why)
