"""Whom the broker calls back about queues that are somebody's own: a listener of a protocol.

A listener keeps subscriptions and other links beyond their connections, each with a queue of its
own. The broker knows neither links nor connections; it asks, and tells what became of a queue.
"""

from __future__ import annotations

from typing import Protocol

from broker_shim.completion import OnComplete
from sparkstore.operations.administration import OwnLink


class QueueOwner(Protocol):
    """All that one listener keeps with queues of their own. On the loop's thread only."""

    def own_link(self, queue: str) -> OwnLink | None:
        """The link whose own queue this is; None: it is no link's of this listener."""

    def end_own_link(self, queue: str, on_done: OnComplete) -> bool:
        """End the link whose own queue this is, and the queue with it.

        Nobody is attached to the queue any more.

        Args:
            queue: The name of a queue that there is.
            on_done: Called when the link is forgotten, durably.

        Returns:
            False if there is no such link, or it cannot end now: then nothing was done, and
            `on_done` is not called.
        """

    def queue_gone(self, queue: str) -> None:
        """A queue was destroyed, and what anybody held of it with it."""
