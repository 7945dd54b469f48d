"""The broker's queues and wiring, between the links and the store. On the loop's thread only.

When things become visible: a message may be dispatched when its enqueue has completed, a queue or
binding is used when its creation has. So nothing that a client was shown is undone by a crash.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol

from broker_shim.broker.address import ExchangeNode, Node, QueueNode
from broker_shim.broker.administration import Administration
from broker_shim.broker.bulk_operations import BulkOperations
from broker_shim.broker.dead_letters import DeadLetterLog
from broker_shim.broker.delivery.undelivered_messages import Undelivered
from broker_shim.broker.destinations import Destinations
from broker_shim.broker.exchanges.alternate_routing import alternate_routing_of
from broker_shim.broker.exchanges.headers_exchange import properties_of
from broker_shim.broker.header_scan import HeaderScan
from broker_shim.broker.last_value_queues import LastValueQueues, Replaced, Value
from broker_shim.broker.metrics import Metrics
from broker_shim.broker.operations.acquisition import Acquisition
from broker_shim.broker.operations.claims import Claims
from broker_shim.broker.operations.observation import EntryObserver
from broker_shim.broker.operations.queries import Queries
from broker_shim.broker.operations.wiring_limit import WiringLimit
from broker_shim.broker.operations.xid_claims import XidClaims
from broker_shim.broker.queue_deletion import QueueDeletions
from broker_shim.broker.queue_host import QueueOwner
from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.broker.queues.queue_filter import adopt
from broker_shim.broker.queues.selective_cursor import Browser, Consumer
from broker_shim.broker.selector_compiler import SelectorCompiler
from broker_shim.broker.settings import BrokerSettings
from broker_shim.broker.settlement import Settlement
from broker_shim.broker.storage.loop import Later
from broker_shim.broker.storage.publications import Publications
from broker_shim.broker.storage.store_calls import StoreCalls
from broker_shim.broker.storage.store_puts import Operation, Staged
from broker_shim.broker.unfinished_messages import Unfinished
from broker_shim.completion import OnComplete
from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.messages.header import HeaderReader
from broker_shim.store.interface import ExchangeBindingKey, MessageHeader, Queue
from sparkstore.core.queue_arguments import QueueArguments, terms_of
from sparkstore.core.queue_names import shown
from sparkstore.core.state_machine.definitions import detail_of

_log = logging.getLogger(__name__)


class MakeQueue(Protocol):
    """A factory of what dispatches one queue."""

    def __call__(self, name: str, *, is_kept: bool, arguments: QueueArguments) -> QueueDispatch:
        """A queue, with nothing on it."""


class Broker:
    """All queues of one virtual host, and the parts that serve them. On the loop's thread only.

    Attributes:
        calls: The store, whose answers come on the loop's thread.
        settings: What the broker was started with.
        metrics: What is counted.
        later: Makes a call on the loop's thread after a while.
        headers: How the headers of messages are shown to selectors.
        queues: Those that are in use, by name.
        definitions: What each of them was created or altered to be.
        queue_owners: The listeners whose links have queues of their own.
        destinations: What names mean: queues on their addresses, exchanges, settings of addresses.
        router: The exchanges, and what is bound to them.
        publications: Publishes many messages at once.
        unfinished: What waits in memory of messages that have not come whole.
        deletions: Destroys queues, and says when a name is free again.
        settlement: Makes durable what consumers decided.
        undelivered: Decides what becomes of messages that are not sent.
        dead_letter_log: Counts the messages that may not stay on their queue.
        bulk: Moves, purges and puts messages, many at a time.
        last_value_queues: Has newer messages take the place of older ones.
        selector_compiler: Compiles selectors in slices.
        administration: Carries out an administrator's orders.
        claims: Knows which queues are one client's alone, and deletes those that delete themselves.
        xid_claims: Knows which branches of distributed transactions were begun.
        wiring_limit: Refuses queues and exchanges to users who have had enough made.
        queries: Tells what queues and exchanges are.
        acquisition: Acquires messages that were browsed.
        is_member: Another broker decides for all, and alone knows what is on queues and who
            consumes: this one knows its own.
        is_stopping: Set once a clean end was asked for: nothing is handed out any more.
    """

    def __init__(
        self,
        calls: StoreCalls,
        settings: BrokerSettings,
        metrics: Metrics,
        later: Later,
        headers: HeaderReader,
        make_queue: MakeQueue = QueueDispatch,
    ) -> None:
        self._make_queue = make_queue
        self.is_member = make_queue is not QueueDispatch
        self.headers = headers
        self.queue_owners: list[QueueOwner] = []
        self.calls = calls
        calls.watch_dropped(EntryObserver(self).took)
        self.later = later
        self.settings = settings
        self.metrics = metrics
        self._told_of: set[str] = set()
        self.queues: dict[str, QueueDispatch] = {}
        self.definitions: dict[str, Queue] = {}
        self.destinations = Destinations(settings)
        self.router = self.destinations.router
        self._to_dispatch: set[str] = set()
        self._before_dispatch: list[Callable[[], None]] = []
        self._creating: dict[str, list[OnComplete]] = {}
        self.is_stopping = False
        self.unfinished, self.publications = Unfinished(), Publications(self)
        self.dead_letter_log = DeadLetterLog(metrics, self.queues)
        self.bulk = BulkOperations(self, self.dead_letter_log)
        self.settlement = Settlement(self, later, self.bulk.end_if_due)
        self.undelivered = Undelivered(self, later)
        self.deletions = QueueDeletions(calls, self.settlement)
        self.selector_compiler = SelectorCompiler(later)
        self._header_scan = HeaderScan(self, later)
        self.last_value_queues = LastValueQueues(self, self.settlement)
        self.claims, self.xid_claims = Claims(self), XidClaims()
        self.wiring_limit = WiringLimit(self)
        self.queries, self.acquisition = Queries(self), Acquisition(self)
        self.administration = Administration(self, self.bulk, self.last_value_queues, later)

    @property
    def open_count(self) -> int:
        """The number of calls under way, and of decisions that the store has yet to take."""
        return self.calls.open_count + self.settlement.waiting_count

    def queues_for(self, node: Node, header: MessageHeader) -> set[str]:
        """The queues that a message sent to a node goes to; none if it routes nowhere."""
        if isinstance(node, QueueNode):  # most often
            return {node.queue} if node.queue in self.queues else set()
        get = properties_of(self.headers, header)
        return self.destinations.queues_for(node, header, get) & self.queues.keys()

    def selecting(self, names: Iterable[str], header: MessageHeader) -> tuple[str, ...]:
        """Keep those queues whose selector does not refuse a message that is routed to them."""
        routed, queues = tuple(names), self.queues
        if all(each not in queues or queues[each].only is None for each in routed):
            return routed
        get = self.headers(header).get
        return tuple(
            each
            for each in routed
            if each not in queues or (only := queues[each].only) is None or only.fits(get)
        )

    def work_of(self, header: MessageHeader, queues: Iterable[str]) -> int:
        """Estimate the extra work of publishing a message, in pieces of some 20 µs."""
        words = header.subject or header.to or ""
        work = header.header_bytes // 64 + len(words) // 16 - 5
        for name in queues:
            queue = self.queues.get(name)
            work += 5 if queue is None or queue.only is None else 5 + queue.only.steps // 16
        return max(0, work)

    def publish(
        self,
        header: MessageHeader,
        content: bytes | Staged,
        queues: Iterable[str],
        on_done: OnComplete,
        along: Sequence[Operation] = (),
    ) -> None:
        """Put a message on queues, all or none; `on_done` when that has completed.

        `content` is staged only if all of the queues keep messages (`all_keep`). Of queues whose
        subscription does not select it, it is on none; it may be on none at all. `along` is done
        in the same transaction; not at all if it is on none.
        """
        names = self.selecting(queues, header)
        if not names:
            on_done(None)
            return
        values = self.last_value_queues.values(header, names)
        put = partial(self._put, header, content, names, values, on_done, along)
        if values:
            self.last_value_queues.begin(values, put)
        else:
            put([])

    def _put(
        self,
        header: MessageHeader,
        content: bytes | Staged,
        names: tuple[str, ...],
        values: list[Value],
        on_done: OnComplete,
        along: Sequence[Operation],
        replaced: Replaced,
    ) -> None:
        def done(error: StoreError | None, message_id: int) -> None:
            if error is None:
                self.metrics.enqueued += len(names)
                for name in names:
                    self.wait(name, (message_id,), header.priority, durable=header.durable)
            if values:
                came = [(message_id, value) for value in values]
                self.last_value_queues.end(values, replaced, came, error)
            on_done(error)

        self.calls.puts.put(
            header,
            content,
            names,
            done,
            all_keep=self.all_keep,
            replacing=replaced,
            along=along,
        )

    def all_keep(self, queues: Iterable[str]) -> bool:
        """True if every one of some queues keeps its messages."""
        return all(name in self.queues and self.queues[name].is_kept for name in queues)

    def ensure_queue(self, name: str, on_done: OnComplete) -> None:
        """Have a queue of this name, created on demand if the settings say so.

        Who asks for one that is being created is told in turn: messages that wait for their queue
        keep their order.
        """
        if name in self.queues:
            on_done(None)
            return
        if name in self._creating:
            self._creating[name].append(on_done)
            return
        try:
            queue = self.destinations.on_demand(name)
        except InvalidRequest as refusal:
            on_done(refusal)
            return
        self._creating[name] = [on_done]

        def created(error: StoreError | None) -> None:
            for done in self._creating.pop(name):
                done(error)

        self.create_queue(queue, created)

    def create_queue(self, queue: Queue, on_done: OnComplete) -> None:
        """Create a queue; it is used when that has completed."""

        def created(error: StoreError | None) -> None:
            if error is None and queue.name in self.deletions:
                self.create_queue(queue, on_done)  # one that was there, and goes: this is another
                return
            if error is None and queue.name not in self.queues:
                self.serve(queue)
                _log.info("queue %r created", queue.name)
            on_done(error)

        self.deletions.when_gone(queue.name, partial(self.calls.create, queue, created))

    def serve(self, queue: Queue) -> QueueDispatch:
        """Use a queue that the store has."""
        kept, arguments, _asks = terms_of(detail_of(queue))
        dispatch = self._make_queue(queue.name, is_kept=kept, arguments=arguments)
        if not self.is_member:
            dispatch.watcher = self.claims.auto_deletion
        adopt(dispatch, queue)
        self.queues[queue.name], self.definitions[queue.name] = dispatch, queue
        self.destinations.addresses.add(queue.name)
        return dispatch

    def redefine(self, queue: Queue) -> None:
        """Use a queue by this definition from now on; the store is to know it, too."""
        self.definitions[queue.name] = queue
        self.queues[queue.name].alter(terms_of(detail_of(queue)).arguments)

    def subscribe(self, queue: Queue, node: ExchangeNode, on_done: OnComplete) -> None:
        """Create a queue and bind it to an exchange."""
        key = self.binding_of(queue.name, node)

        def bound(error: StoreError | None) -> None:
            if error is None:
                self.router.bind(key.exchange, key.binding_key, key.queue)
            on_done(error)

        def created(error: StoreError | None) -> None:
            if error is None:
                self.calls.bind(key, bound)
            else:
                on_done(error)

        self.create_queue(queue, created)

    def binding_of(self, queue: str, node: ExchangeNode) -> ExchangeBindingKey:
        """Make the binding of a subscription's queue: by its routing key, or to everything."""
        binding_key = "#" if node.routing_key is None else node.routing_key
        return ExchangeBindingKey(node.exchange, queue, binding_key)

    def destroy_queue(self, name: str, on_done: OnComplete = lambda _error: None) -> None:
        """Destroy a queue and its bindings; its messages go by its alternate exchange, if any."""
        queue = self.queues.get(name)
        if queue is None:
            self.deletions.when_gone(name, partial(on_done, None))
            return
        if self.deletions.refuses(name, on_done):
            return
        # Out of use at once: nothing is routed to it, or handed out of it, while it is destroyed.
        self._forget_queue(name)

        def destroyed(error: StoreError | None) -> None:
            self.claims.auto_deletion.gone(name)
            on_done(error)

        self.deletions.begin(name, destroyed, alternate_routing_of(self, queue))

    def queue_destroyed(self, name: str) -> None:
        """End the links of a queue that another member destroyed."""
        if name in self.queues:
            queue = self.queues[name]
            users: list[Consumer | Browser] = [*queue.consumers, *queue.browsers]
            # Before the queue is forgotten: its users let go of what they hold while it is there.
            for user in users:
                user.queue_deleted()
            self._forget_queue(name)

    def _forget_queue(self, name: str) -> None:
        del self.queues[name]
        del self.definitions[name]
        self.router.unbind_queue(name)
        self.destinations.addresses.remove(name)
        for owner in self.queue_owners:
            owner.queue_gone(name)
        self.claims.gone(name)

    def wanted(self, queue: str) -> None:
        """Dispatch a queue in which something changed, before the loop sleeps."""
        self._to_dispatch.add(queue)

    def before_dispatch(self, call: Callable[[], None]) -> None:
        """Make a call before the loop sleeps, and before anything is handed out."""
        self._before_dispatch.append(call)

    @property
    def is_dispatch_due(self) -> bool:
        """True if `dispatch` has something to do."""
        return bool(self._to_dispatch or self._before_dispatch) and not self.is_stopping

    def dispatch(self) -> None:
        """Hand out what waits to consumers with credit."""
        while self.is_dispatch_due:
            self._call_before()
            if not self._to_dispatch:
                continue
            queue = self.queues.get(self._to_dispatch.pop())
            if queue is None:
                continue
            try:
                self.last_value_queues.sweep(queue)
                self._header_scan.turn(queue)
                queue.dispatch()
                for browser in queue.browsers:
                    browser.look()
            except Exception:  # noqa: BLE001  # one queue must not end the others
                _log.exception("queue %r: dispatching failed", queue.name)

    def _call_before(self) -> None:
        while self._before_dispatch:
            call = self._before_dispatch.pop()
            try:
                call()
            except Exception:  # noqa: BLE001  # one link must not end the others
                _log.exception("a link could not ask for more")

    def arrived(self, name: str, message_id: int, priority: int, *, durable: bool = True) -> None:
        """Dispatch a message that is on a queue durably, and that no publish brought."""
        self.wait(name, (message_id,), priority, durable=durable)
        if name in self.queues:
            self.last_value_queues.arrived(self.queues[name], [message_id])

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

    def wait(self, name: str, message_ids: Sequence[int], priority: int, *, durable: bool) -> None:
        """Dispatch messages that are on a queue, as durably as they are to be."""
        queue = self.queues.get(name)
        if queue is not None:
            if queue.is_kept and not durable and not self.is_member:
                self._count_not_durable(queue, len(message_ids))
            queue.arrived(message_ids, priority, durable=durable)
            self._to_dispatch.add(name)
