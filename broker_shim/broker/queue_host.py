"""The interfaces around the virtual host: for its parts, and to its listeners.

The virtual host makes its parts, and they call it back by `QueueHost`, or by a protocol beside a
part that adds what this one alone needs. A listener keeps subscriptions and other links beyond
their connections, each with a queue of its own. The virtual host knows neither links nor
connections, so it asks a `QueueOwner`, and tells it what became of a queue.
"""

from __future__ import annotations

from typing import Protocol

from broker_shim.broker.metrics import Metrics
from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.broker.settings import BrokerSettings
from broker_shim.broker.storage.store_calls import StoreCalls
from broker_shim.completion import OnComplete
from broker_shim.messages.header import HeaderReader
from broker_shim.store.interface import Queue
from sparkstore.operations.administration import OwnLink


class QueueHost(Protocol):
    """The queues that are served, and the store under them. On the loop's thread only.

    Attributes:
        queues: Those that are in use, by name.
        calls: The store, whose answers come on the loop's thread.
        headers: How the headers of messages are shown to selectors.
        settings: What the broker was started with.
        metrics: What is counted.
    """

    queues: dict[str, QueueDispatch]
    calls: StoreCalls
    headers: HeaderReader
    settings: BrokerSettings
    metrics: Metrics

    def wanted(self, queue: str) -> None:
        """Dispatch a queue in which something changed, before the loop sleeps."""

    def arrived(self, name: str, message_id: int, priority: int, *, durable: bool = True) -> None:
        """Dispatch a message that is on a queue durably, and that no publish brought."""

    def create_queue(self, queue: Queue, on_done: OnComplete) -> None:
        """Create a queue; it is used when that has completed."""


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
        """Forget what anybody held of a queue that was destroyed."""
