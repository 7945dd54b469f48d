"""The consumers of members at the queues of the service's broker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.errors import InvalidRequest, StoreError, Unavailable
from broker_shim.members.grants import Grants
from broker_shim.store import protocol as wire

if TYPE_CHECKING:
    from broker_shim.service.member_connection import MemberConnection


class MemberConsumer:
    """Stands for one consumer on a member. On the loop's thread only.

    Credit is a count since the subscription began, of which the member says a new value now and
    then: so no word about it is lost by being late.

    Attributes:
        number: What the member calls its subscription.
        peer: The member's connection.
        queue: What it consumes.
        limit: How many messages it takes in all.
        is_gone: Nothing is to be handed to it any more.
        steps_left: How many of two steps are not done: it is added to its queue with its selector,
            and what was on its way to it waits again. Until both are, it has no credit.
    """

    def __init__(
        self,
        number: int,
        peer: MemberConnection,
        queue: QueueDispatch,
        holder: str,
        limit: int,
        grants: Grants,
    ) -> None:
        self.number, self.peer, self.queue, self.limit = number, peer, queue, limit
        self.is_gone, self.steps_left = False, 2
        self._holder, self._grants = holder, grants
        self._granted = self._under_way = 0
        self._told_limit = -1

    @property
    def holder(self) -> str:
        """The name by which the member knows who holds its messages."""
        return self._holder

    @property
    def is_draining(self) -> bool:
        """False always: the member is told whenever nothing more waits."""
        return False

    @property
    def waits_to_be_told(self) -> bool:
        """True while the consumer has credit, and has not heard that there is nothing more."""
        return self._under_way > 0 or (self.credit > 0 and self._told_limit != self.limit)

    def take_credit(self, limit: int) -> None:
        """Set how many messages it takes in all, and tell it once more when nothing waits."""
        self.limit = limit
        self._told_limit = -1

    @property
    def credit(self) -> int:
        """The messages that it takes now: its limit less those granted. See `Consumer.credit`."""
        return 0 if self.is_gone or self.steps_left else max(0, self.limit - self._granted)

    def assign(self, message_ids: Sequence[int]) -> int:
        """Have messages acquired for the member's consumer. See `Consumer.assign`."""
        self._granted += len(message_ids)
        self._under_way += len(message_ids)
        self._grants.add(self, message_ids)
        return len(message_ids)

    def granted(self, count: int) -> None:
        """Count messages that are acquired for it, and told to its member."""
        self._under_way -= count

    def not_granted(self) -> None:
        """Give back the credit of a message that is not the consumer's, or not now."""
        self._granted -= 1
        self._under_way -= 1

    def caught_up(self) -> None:
        """Tell the member that nothing waits: once for each limit, after all grants.

        See `Consumer.caught_up`.
        """
        if self.credit > 0 and not self._under_way and self._told_limit != self.limit:
            self._told_limit = self.limit
            self.peer.say(wire.CAUGHT_UP, (self.number, self.limit))

    def queue_deleted(self) -> None:
        """End the consumer because its queue is destroyed. See `Consumer.queue_deleted`."""
        self.end(InvalidRequest(f"queue {self.queue.name!r} was destroyed"))
        self._grants.end_with_queue(self)

    def turned_away(self, reason: str) -> None:
        """End the consumer with a reason after which its client may try again.

        See `Consumer.turned_away`.
        """
        self.end(Unavailable(reason))

    def end(self, error: StoreError | None) -> None:
        """End the consumer, and tell its member why; None: the member asked for it."""
        if not self.is_gone:
            self.is_gone = True
            self.queue.discard(self)
            self._grants.withdraw(self)
            reason = ("", "") if error is None else (type(error).__name__, str(error))
            self.peer.say(wire.ENDED, (self.number, *reason))
