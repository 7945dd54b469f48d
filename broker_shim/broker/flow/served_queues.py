"""The queues that are served, the store under them, and the listeners whose links own some.

The virtual host is these queues and the parts that serve them. Each part gets them, and the other
parts that it needs; none gets the whole. A listener keeps subscriptions and other links beyond
their connections, each with a queue of its own. The virtual host knows neither links nor
connections, so it asks a `QueueOwner`, and tells it what became of a queue.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Protocol

from broker_shim.broker.metrics import Metrics
from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.broker.settings import BrokerSettings
from broker_shim.broker.storage.loop import Later
from broker_shim.broker.storage.store_calls import StoreCalls
from broker_shim.broker.wiring.address import ExchangeNode, Node, QueueNode
from broker_shim.broker.wiring.destinations import Destinations
from broker_shim.broker.wiring.headers_exchange import properties_of
from broker_shim.completion import OnComplete, nobody
from broker_shim.messages.header import HeaderReader
from broker_shim.store.interface import MessageHeader, Queue
from sparkstore.core.policies import Policy, with_change
from sparkstore.core.queue_arguments import terms_of
from sparkstore.core.queue_names import shown
from sparkstore.core.state_machine.call_values import EnqueueCall
from sparkstore.core.state_machine.definitions import as_policies_say, detail_of
from sparkstore.operations.administration import OwnLink

_log = logging.getLogger(__name__)


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


class ServedQueues(ABC):
    """The queues of one virtual host, and which of them a message goes to. On the loop's thread.

    The virtual host makes and destroys them: whatever orders that asks it here.

    Attributes:
        calls: The store, whose answers come on the loop's thread.
        settings: What the broker was started with.
        metrics: What is counted.
        later: Makes a call on the loop's thread after a while.
        headers: How the headers of messages are shown to selectors.
        queues: Those that are in use, by name.
        definitions: What each of them was created or altered to be.
        policies: All that the store has, those that count most first; a member knows none.
        queue_owners: The listeners whose links have queues of their own.
        destinations: What names mean: queues on their addresses, exchanges, settings of addresses.
        router: The exchanges, and what is bound to them.
        is_member: Another broker decides for all, and alone knows what is on queues and who
            consumes: this one knows its own.
        is_stopping: Set once a clean end was asked for: nothing is handed out any more.
        on_arrived: Called with messages that are on a queue durably, and that no publish brought.
        on_waiting: Called with messages that wait on a queue, new ones and others, before they
            are handed out.
    """

    on_arrived: Callable[[QueueDispatch, Sequence[int]], None]
    on_waiting: Callable[[QueueDispatch, Sequence[int]], None]

    def __init__(
        self,
        calls: StoreCalls,
        settings: BrokerSettings,
        metrics: Metrics,
        later: Later,
        headers: HeaderReader,
        *,
        is_member: bool,
    ) -> None:
        self.calls, self.settings, self.metrics = calls, settings, metrics
        self.later, self.headers, self.is_member = later, headers, is_member
        self.queues: dict[str, QueueDispatch] = {}
        self.definitions: dict[str, Queue] = {}
        self.policies: list[Policy] = []
        self.queue_owners: list[QueueOwner] = []
        self.destinations = Destinations(settings)
        self.router = self.destinations.router
        self.is_stopping = False
        self._told_of: set[str] = set()
        self._to_dispatch: set[str] = set()

    @abstractmethod
    def create_queue(self, queue: Queue, on_done: OnComplete) -> None:
        """Create a queue; it is used when that has completed."""

    @abstractmethod
    def destroy_queue(self, name: str, on_done: OnComplete = nobody) -> None:
        """Destroy a queue and its bindings; its messages go by its alternate exchange, if any."""

    @abstractmethod
    def look_over(self, queue: QueueDispatch) -> None:
        """End what may not stay on a queue, after a start or a change of what it asks."""

    def queues_for(self, node: Node, header: MessageHeader) -> set[str]:
        """The queues that a message sent to a node goes to; none if it routes nowhere."""
        if isinstance(node, QueueNode):  # most often
            return {node.queue} if node.queue in self.queues else set()
        get = properties_of(self.headers, header)
        return self.destinations.queues_for(node, header, get) & self.queues.keys()

    def selecting(self, names: Iterable[str], header: MessageHeader) -> tuple[str, ...]:
        """Keep those queues whose selector does not refuse a message that is routed to them."""
        routed, queues = tuple(names), self.queues
        if all(name not in queues or queues[name].only is None for name in routed):
            return routed
        get = self.headers(header).get
        return tuple(
            name
            for name in routed
            if name not in queues or (only := queues[name].only) is None or only.fits(get)
        )

    def alternates(
        self, exchange: str, header: MessageHeader, message_id: int, queue: str
    ) -> dict[str, bool]:
        """The queues that a message goes to from `queue`, each with whether it has it already.

        It is routed by the alternate exchange as when it was sent: by its subject, or by its
        application properties. It never comes back to the queue that it leaves: were that bound to
        its own alternate, a message could be rejected there for ever. A message that goes to no
        queue leaves the store.
        """
        routed = self.queues_for(ExchangeNode(exchange), header) - {queue}
        selecting = sorted(self.selecting(routed, header))
        return {name: self.calls.entry(name, message_id) is not None for name in selecting}

    def work_of(self, header: MessageHeader, queues: Iterable[str]) -> int:
        """Estimate the extra work of publishing a message, in pieces of some 20 µs."""
        words = header.subject or header.to or ""
        work = header.header_bytes // 64 + len(words) // 16 - 5
        for name in queues:
            queue = self.queues.get(name)
            work += 5 if queue is None or queue.only is None else 5 + queue.only.steps // 16
        return max(0, work)

    def all_keep(self, queues: Iterable[str]) -> bool:
        """True if every one of some queues keeps its messages."""
        return all(name in self.queues and self.queues[name].is_kept for name in queues)

    def with_policies(self, queue: Queue) -> Queue:
        """A definition with what policies say of its queue, as the store makes it."""
        return queue if self.is_member else as_policies_say(queue, self.policies)

    def use_policy(self, name: str, policy: Policy | None) -> list[QueueDispatch]:
        """Use a policy of this name from now on, or none; the queues whose arguments changed."""
        self.policies = with_change(self.policies, name, policy)
        changed = [(old, self.with_policies(old)) for old in self.definitions.values()]
        changed = [(old, new) for old, new in changed if old != new]
        for _old, new in changed:
            self.redefine(new)
            self.wanted(new.name)
        return [self.queues[new.name] for _old, new in changed]

    def redefine(self, queue: Queue) -> None:
        """Use a queue by this definition from now on; the store is to know it, too."""
        self.definitions[queue.name] = queue
        self.queues[queue.name].alter(terms_of(detail_of(queue)).arguments)

    def serves(self, queue: QueueDispatch) -> bool:
        """True unless a queue was destroyed, although another may have its name by now."""
        return self.queues.get(queue.name) is queue

    def again(self, call: Callable[[], None]) -> None:
        """Make a call when it is time to ask a store again that did not answer."""
        self.later(self.settings.probe_interval_s, call)

    def wanted(self, queue: str) -> None:
        """Dispatch a queue in which something changed, before the loop sleeps."""
        self._to_dispatch.add(queue)

    def arrived(
        self, name: str, message_ids: Sequence[int], priority: int, *, durable: bool = True
    ) -> None:
        """Dispatch messages that are on a queue durably, and that no publish brought."""
        self.wait(name, message_ids, priority, durable=durable)
        if name in self.queues:
            self.on_arrived(self.queues[name], message_ids)

    def brought(self, put: EnqueueCall) -> None:
        """Dispatch messages that a call has put on a queue, durably."""
        queue, message = self.queues.get(put.queue), put.message
        if queue is None:
            return
        ids, headers, durable, at = message.message_ids, message.headers, True, 0
        if len(ids) == 1:  # what may not be durable comes one by one (`bulk.puts`)
            entry = self.calls.entry(put.queue, ids[0])
            durable = headers[0].durable and (entry is None or entry.position > 0)
        for message_id in ids if put.delivery_count else ():
            queue.count_failures(message_id, put.delivery_count)
        for priority, alike in groupby(header.priority for header in headers):
            end = len(ids) if len(headers) == 1 else at + len([*alike])
            self.arrived(put.queue, ids[at:end], priority, durable=durable)
            at = end

    def wait(self, name: str, message_ids: Sequence[int], priority: int, *, durable: bool) -> None:
        """Dispatch messages that are on a queue, as durably as they are to be."""
        queue = self.queues.get(name)
        if queue is not None:
            if queue.is_kept and not durable and not self.is_member:
                self._count_not_durable(queue, len(message_ids))
            queue.arrived(message_ids, priority, durable=durable)
            self.on_waiting(queue, message_ids)
            self._to_dispatch.add(name)

    def _count_not_durable(self, queue: QueueDispatch, count: int) -> None:
        """Count messages that are not durable, and say so once a queue.

        Some client libraries send so unless they are told otherwise. A member counts none: its
        service has the queue, and counts each, so that a sum over processes is right.
        """
        self.metrics.not_durable += count
        if queue.name not in self._told_of:
            self._told_of.add(queue.name)
            text = "%s gets messages that are not durable: they end with this process, and SQL does"
            text += " not see them. Their sender says durable, or not, in a message's header"
            _log.warning(text, shown(queue.name))
