"""Finds which messages of a store's queues have expired. Pure: the time is an argument."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol, runtime_checkable

from sparkstore.core.fold import QueueState
from sparkstore.core.state_machine.state_machine import StoreStateMachine


class DueMessages(NamedTuple):
    """Messages of one queue that wait there and have expired.

    Attributes:
        queue: Name of the queue that they wait on.
        message_ids: Some of them; none: ask again, since not all were looked at.
    """

    queue: str
    message_ids: list[int]


@runtime_checkable
class ExpiringStore(Protocol):
    """A store that decides in this process, and so knows of every message when it expires."""

    def expired(self, now_us: int, count: int, after: str) -> DueMessages | None:
        """Find messages of one queue whose time to live is over; None: no queue has any.

        The cost is that of the number of queues, and of what has expired.

        Args:
            now_us: The time, UTC µs.
            count: So many messages at most.
            after: Name of the queue that was told last: the others have their turn before it.

        Raises:
            StoreError: It is closed.
        """


class LocalExpiry:
    """The part of a `LocalMessageStore` that is an `ExpiringStore`."""

    _machine: StoreStateMachine
    _holding: Callable[[], AbstractContextManager[None]]

    def expired(self, now_us: int, count: int, after: str) -> DueMessages | None:
        """Find messages whose time to live is over, under the store's lock.

        See `ExpiringStore.expired`.
        """
        with self._holding():
            return due(self._machine.state.queues, now_us, count, after)


def due(
    queues: Mapping[str, QueueState], now_us: int, count: int, after: str
) -> DueMessages | None:
    """Find messages whose time to live is over, under the lock that guards the queues."""
    names = [name for name, queue in queues.items() if queue.entries.soonest <= now_us]
    turn = names.index(after) + 1 if after in names else 0
    for name in names[turn:] + names[:turn]:
        expired = queues[name].entries.expired(now_us, count)
        if expired.message_ids or not expired.is_all:
            return DueMessages(name, expired.message_ids)
    return None
