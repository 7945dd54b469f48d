"""The broker's queues and wiring, between the links and the store. On the loop's thread only.

When things become visible: a message may be dispatched when its enqueue has completed, a queue or
binding is used when its creation has. So nothing that a client was shown is undone by a crash.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from broker_shim.broker.delivery.acquisition import Acquisition
from broker_shim.broker.delivery.delivery_locks import ConsumerLocks, LockTimer
from broker_shim.broker.delivery.holdings import ConsumerHoldings
from broker_shim.broker.delivery.undelivered_messages import Undelivered
from broker_shim.broker.flow.dead_letters import DeadLetters
from broker_shim.broker.flow.delivery_delays import DeliveryDelays
from broker_shim.broker.flow.header_scan import HeaderScan
from broker_shim.broker.flow.last_value_queues import LastValueQueues
from broker_shim.broker.flow.observation import EntryObserver
from broker_shim.broker.flow.publications import Publications
from broker_shim.broker.flow.selector_compiler import SelectorCompiler
from broker_shim.broker.flow.served_queues import ServedQueues
from broker_shim.broker.flow.settlement import Settlement
from broker_shim.broker.flow.unfinished_messages import Unfinished
from broker_shim.broker.metrics import Metrics
from broker_shim.broker.orders.administration import Administration
from broker_shim.broker.orders.alternate_routing import alternate_routing_of
from broker_shim.broker.orders.bulk_operations import BulkOperations
from broker_shim.broker.orders.claims import Claims
from broker_shim.broker.orders.placements import Placements
from broker_shim.broker.orders.queries import Queries
from broker_shim.broker.orders.queue_deletion import QueueDeletions
from broker_shim.broker.orders.unused_queues import UnusedQueues
from broker_shim.broker.orders.wiring_limit import CreatedEntity, WiringLimit
from broker_shim.broker.orders.xid_claims import XidClaims
from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.broker.queues.queue_filter import adopt
from broker_shim.broker.queues.selective_cursor import Browser, Consumer
from broker_shim.broker.settings import BrokerSettings
from broker_shim.broker.storage.loop import Later
from broker_shim.broker.storage.store_calls import StoreCalls
from broker_shim.broker.transactions.unit_of_work import UnitOfWork
from broker_shim.broker.wiring.address import ExchangeNode
from broker_shim.completion import OnComplete, nobody
from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.messages.header import HeaderReader
from broker_shim.store.interface import ExchangeBindingKey, Queue
from sparkstore.core.queue_arguments import QueueArguments, terms_of
from sparkstore.core.queue_names import shown
from sparkstore.core.state_machine.call_values import BindCall, CreateCall
from sparkstore.core.state_machine.definitions import detail_of

_log = logging.getLogger(__name__)


class MakeQueue(Protocol):
    """A factory of what dispatches one queue."""

    def __call__(self, name: str, *, is_kept: bool, arguments: QueueArguments) -> QueueDispatch:
        """A queue, with nothing on it."""


class Broker(ServedQueues):
    """All queues of one virtual host, and the parts that serve them. On the loop's thread only.

    Attributes:
        publications: Puts new messages on queues: runs of them, or one on several.
        publish: Puts one message on queues (`Publications.publish_one`).
        unfinished: What waits in memory of messages that have not come whole.
        deletions: Destroys queues, and says when a name is free again.
        lock_timer: Knows when consumers have had messages for too long.
        settlement: Makes durable what consumers decided.
        undelivered: Decides what becomes of messages that are not sent.
        dead_letters: Counts the messages that may not stay on their queue.
        bulk: Moves, purges and puts messages, many at a time.
        last_value_queues: Has newer messages take the place of older ones.
        selector_compiler: Compiles selectors in slices.
        administration: Carries out an administrator's orders.
        claims: Knows which queues are one client's alone, and deletes those that delete themselves.
        xid_claims: Knows which branches of distributed transactions were begun.
        unused_queues: Deletes queues that were made on demand, and that nobody uses.
        wiring_limit: Refuses queues and exchanges to users who have had enough made.
        queries: Tells what queues and exchanges are.
        acquisition: Acquires messages that were browsed.
        observer: Moves messages as others did, who use the same store.
        delays: Hides messages until their time.
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
        is_member = make_queue is not QueueDispatch
        super().__init__(calls, settings, metrics, later, headers, is_member=is_member)
        self._make_queue = make_queue
        self._before_dispatch: list[Callable[[], None]] = []
        self._creating: dict[str, list[OnComplete]] = {}
        self.unfinished, self.lock_timer = Unfinished(settings), LockTimer(later)
        self.settlement = Settlement(self)
        self.last_value_queues = LastValueQueues(self, self.settlement)
        self.on_arrived = self.last_value_queues.arrived
        self.publications = Publications(self, self.last_value_queues)
        self.publish = self.publications.publish_one
        self.dead_letters = DeadLetters(metrics, self.queues, self.create_queue)
        self.bulk = BulkOperations(self, self.dead_letters, self.publish)
        self.settlement.on_released = self.bulk.end_due
        self.placements = Placements(self)
        self.observer = EntryObserver(self, self.settlement)
        self.undelivered = Undelivered(self, self.settlement)
        self.acquisition = Acquisition(self, self.settlement, self.undelivered)
        self.deletions = QueueDeletions(calls, self.settlement)
        self.selector_compiler = SelectorCompiler(later)
        self._header_scan = HeaderScan(self, self.dispatch)
        calls.watch_dropped(self.observer.took, self.last_value_queues.last_value)
        self.delays = DeliveryDelays(self)
        self.on_waiting = self.delays.came
        self.wiring_limit, self.xid_claims = WiringLimit(self), XidClaims()
        self.administration = Administration(
            self, self.bulk, self.last_value_queues, self.wiring_limit, self.deletions
        )
        self.claims = Claims(self, self.administration)
        self.unused_queues = UnusedQueues(self, self.administration, self.claims.is_claimed)
        self.queries = Queries(self, self.administration)

    @property
    def open_count(self) -> int:
        """The number of calls under way, and of decisions that the store has yet to take."""
        return self.calls.open_count + self.settlement.waiting_count

    def holdings(
        self, queue: QueueDispatch, holder: str, take_back: Callable[[int], None]
    ) -> ConsumerHoldings:
        """Make what one consumer holds of a queue: nothing yet; `take_back` ends a lock."""
        locks = ConsumerLocks(self.lock_timer, queue, take_back)
        parts = self, self.settlement, self.dead_letters
        return ConsumerHoldings(*parts, queue, holder, locks)

    def unit_of_work(self) -> UnitOfWork:
        """Begin a unit of work of a client."""
        return UnitOfWork(self, self.last_value_queues)

    def ensure_queue_for(self, user: str, name: str, on_done: OnComplete) -> None:
        """Have a queue as `ensure_queue`, for a user who may have only so many made."""
        self.wiring_limit.make(user, CreatedEntity(name), partial(self.ensure_queue, name), on_done)

    def ensure_queue(self, name: str, on_done: OnComplete) -> None:
        """Have a queue of this name, created on demand if the settings say so.

        Who asks for one that is being created is told in turn: messages that wait for their queue
        keep their order.
        """
        if name in self.queues:
            self.unused_queues.used(name)
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
            if error is None:
                self.unused_queues.made(name)
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
                if self.is_member:  # it was told of it before
                    text = f"queue {shown(queue.name)} was destroyed while it was made"
                    on_done(InvalidRequest(text))
                    return
                self.serve(queue)
                _log.info("queue %r created", queue.name)
            on_done(error)

        self.deletions.when_gone(queue.name, partial(self.calls.make, CreateCall(queue), created))

    def serve(self, queue: Queue) -> QueueDispatch:
        """Use a queue that the store has."""
        queue = self.with_policies(queue)
        kept, arguments, _asks = terms_of(detail_of(queue))
        dispatch = self._make_queue(queue.name, is_kept=kept, arguments=arguments)
        if not self.is_member:
            dispatch.watcher = self.claims.auto_deletion
        adopt(dispatch, queue)
        self.queues[queue.name], self.definitions[queue.name] = dispatch, queue
        self.destinations.addresses.add(queue.name)
        return dispatch

    def look_over(self, queue: QueueDispatch) -> None:
        """End what may not stay on a queue, after a start or a change of what it asks."""
        self.delays.recovered(queue)
        self.bulk.end_failed(queue)
        if queue.last_values is not None:  # else the ids of a long queue were listed for nothing
            self.last_value_queues.arrived(queue, [*self.calls.message_ids(queue.name)])
        self.wanted(queue.name)

    def subscribe(self, queue: Queue, node: ExchangeNode, on_done: OnComplete) -> None:
        """Create a queue and bind it to an exchange."""
        key = self.binding_of(queue.name, node)

        def bound(error: StoreError | None) -> None:
            if error is None and not self.is_member:
                self.router.bind(key.exchange, key.binding_key, key.queue)
            on_done(error)

        def created(error: StoreError | None) -> None:
            if error is None:
                self.calls.make(BindCall(key, {}), bound)
            else:
                on_done(error)

        self.create_queue(queue, created)

    def binding_of(self, queue: str, node: ExchangeNode) -> ExchangeBindingKey:
        """Make the binding of a subscription's queue: by its routing key, or to everything."""
        binding_key = "#" if node.routing_key is None else node.routing_key
        return ExchangeBindingKey(node.exchange, queue, binding_key)

    def destroy_queue(self, name: str, on_done: OnComplete = nobody) -> None:
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

        decider = self.administration.decider
        routing = alternate_routing_of(self, self.settlement, decider, queue)
        self.deletions.begin(name, destroyed, routing)

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

    def before_dispatch(self, call: Callable[[], None]) -> None:
        """Make a call before the loop sleeps, and before anything is handed out."""
        self._before_dispatch.append(call)

    @property
    def is_dispatch_due(self) -> bool:
        """True if `dispatch` has something to do."""
        return bool(self._to_dispatch or self._before_dispatch) and not self.is_stopping

    def dispatch_at_once(self, queue: QueueDispatch) -> None:
        """Hand out of a queue now what the end of the turn would, if that is little work.

        A consumer with a credit of 1 accepts a message and asks for the next in one breath. The
        loop sleeps before the end of its turn, which is when the log's thread begins a group. So
        only if the acquire is decided before, it shares a group with the dequeue, and the consumer
        waits for one sync, not for two.
        """
        if queue.is_simple and not self.is_stopping:
            queue.dispatch()

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
