"""An administrator's orders to a running broker: `sparkstore.operations.administration` decides.

When things become visible: what is made is used when the store has it. What goes is gone from here
at once, or when the store has let go of it, as elsewhere (`virtual_host`). An alteration holds here
from the moment of its decision: whoever attaches or sends while it is under way meets the queue as
it will be. If the store refuses, the queue is again what it was.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from broker_shim.broker.flow.last_value_queues import LastValueQueues
from broker_shim.broker.flow.served_queues import ServedQueues
from broker_shim.broker.orders.bulk_operations import BulkOperations
from broker_shim.broker.orders.bulk_turns import BulkTurns
from broker_shim.broker.orders.queue_deletion import QueueDeletions
from broker_shim.broker.orders.wiring_limit import CreatedEntity, WiringLimit
from broker_shim.broker.queues.selective_cursor import Browser, Consumer
from broker_shim.completion import OnComplete
from broker_shim.durability import TerminusDurability
from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.store.interface import Exchange, ExchangeBindingKey, Queue
from sparkstore.core.entries import Entries
from sparkstore.core.policies import CATEGORY, Policy, policy_of
from sparkstore.core.queue_arguments import arguments_of
from sparkstore.core.queue_names import shown
from sparkstore.core.state_machine.call_values import (
    AlterCall,
    BindCall,
    ConfigureCall,
    CreateCall,
    DestroyCall,
    StoreCall,
    UnbindCall,
)
from sparkstore.operations.administration import (
    AdminAction,
    Order,
    OrderDecision,
    OwnLink,
    decide,
    existing,
    new_exchange,
)
from sparkstore.operations.bulk import Action, Answer, Request
from sparkstore.operations.policy_orders import count_over_delivered
from sparkstore.operations.queue_alteration import QueueUsage, definition

_log = logging.getLogger(__name__)

OnTold = Callable[[StoreError | None, dict[str, Any]], None]
OnPurged = Callable[[StoreError | None, Answer], None]
OnUsage = Callable[[StoreError | None, dict[str, Any]], None]
"""Told the figures of a queue by their columns (`queue_columns`); empty: there is none of this
name, or an error says why not."""

_MAKING = frozenset({AdminAction.CREATE_QUEUE, AdminAction.CREATE_EXCHANGE})
_NAMING = frozenset({AdminAction.CREATE_QUEUE, AdminAction.ALTER_QUEUE, AdminAction.ADD_BINDING})
"""Whoever orders this wants the queue to be there."""
_OF_POLICIES = frozenset({AdminAction.SET_POLICY, AdminAction.DELETE_POLICY})
_COMES_BACK = "the broker's settings make it so again at its next start: change them, too"


class QueueDecider(Protocol):
    """The broker that decides for several, as one of them asks it: it alone knows their queues."""

    def delete(self, order: Order, on_told: OnTold) -> None:
        """Have a queue deleted; `on_told` as of `Administration.order`."""

    def destroy(self, queue: str, on_done: OnComplete) -> None:
        """Have a queue destroyed that its last user leaves; its messages go where they should."""

    def purge(self, queue: str, on_purged: OnPurged) -> None:
        """Have a queue purged; `on_purged` as of `Administration.purge`."""

    def usage(self, queue: str, on_usage: OnUsage) -> None:
        """Tell what a queue has, whoever put it there and whoever consumes."""


class BrokerFacts:
    """The `AdministrationFacts` of a running broker. See `AdministrationFacts`."""

    def __init__(self, served: ServedQueues, last_value_queues: LastValueQueues) -> None:
        self._served, self._last_value_queues = served, last_value_queues

    @property
    def queues(self) -> Collection[str]:
        """The names of all queues."""
        return self._served.queues.keys()

    def detail(self, queue: str) -> str | None:
        """The definition of a queue; None: there is none."""
        served = self._served.definitions.get(queue)
        return None if served is None else definition(served.arguments, int(served.durability))

    def standing(self, queue: str) -> QueueUsage:
        """Count a queue's messages and consumers.

        The store knows of messages that have not arrived yet.
        """
        depth = len(self._served.calls.message_ids(queue)) + self._last_value_queues.count(queue)
        return QueueUsage(depth, self._served.queues[queue].consumer_count)

    def policies(self) -> Sequence[Policy]:
        """List all policies, those that count most first."""
        return self._served.policies

    def over_delivered(self, queue: str, limit: int) -> int:
        """Count waiting messages of a queue with more failed deliveries than a limit."""
        entries = self._served.calls.entries(queue)
        marked = entries.marked() if isinstance(entries, Entries) else ()
        return count_over_delivered(marked, limit)

    def link_of(self, queue: str) -> OwnLink | None:
        """Find the link whose own queue this is; None: it is no link's."""
        links = (owner.own_link(queue) for owner in self._served.queue_owners)
        return next((link for link in links if link is not None), None)

    def senders_of_dead_letters(self, queue: str) -> list[str]:
        """Other queues that have it as their dead-letter queue."""
        return [
            name
            for name, other in self._served.queues.items()
            if name != queue and other.arguments.dead_letter_queue == queue
        ]

    def exchange_type(self, exchange: str) -> str | None:
        """The type of an exchange; None: there is none."""
        return self._served.router.type_of(exchange)

    def alternate_of(self, exchange: str) -> str | None:
        """The alternate of an exchange; None: it has none."""
        return self._served.router.alternate_of(exchange)

    def users_of_alternate(self, exchange: str) -> list[str]:
        """Name the queues and exchanges that have this alternate exchange, for a person."""
        queues, router = self._served.queues.items(), self._served.router
        return [
            *(f"exchange {shown(name)}" for name in router.with_alternate(exchange)),
            *(
                f"queue {shown(name)}"
                for name, queue in queues
                if queue.arguments.alternate_exchange == exchange
            ),
        ]

    def bindings(self) -> Collection[ExchangeBindingKey]:
        """List all bindings of the broker."""
        return self._served.router.bindings()

    def binding_arguments(self, key: ExchangeBindingKey) -> Mapping[str, Any]:
        """The arguments of a binding that is there."""
        return self._served.router.arguments_of(key)


class Administration:
    """Carries orders out. On the loop's thread only.

    Attributes:
        decider: Who deletes and purges queues, if another broker decides for this one.
        facts: What there is now.
        on_ordered: Told the name of a queue that is created, altered or bound, also if that
            changes nothing.
    """

    decider: QueueDecider | None = None
    on_ordered: Callable[[str], None]

    def __init__(
        self,
        served: ServedQueues,
        bulk: BulkOperations,
        last_value_queues: LastValueQueues,
        wiring_limit: WiringLimit,
        deletions: QueueDeletions,
    ) -> None:
        """Carry out nothing yet.

        Args:
            served: The queues that orders are about.
            bulk: Purges what is on queues.
            last_value_queues: Counts what is on its way to a queue.
            wiring_limit: Refuses queues and exchanges to users who have had enough made.
            deletions: Refuses to delete a queue that cannot go now.
        """
        self._served, self._bulk, self._deletions = served, bulk, deletions
        self._wiring_limit, self.on_ordered = wiring_limit, lambda _queue: None
        self.facts = BrokerFacts(served, last_value_queues)
        self._acts: dict[AdminAction, Callable[[OrderDecision, OnComplete], None]] = {
            AdminAction.CREATE_QUEUE: self._create_queue,
            AdminAction.ALTER_QUEUE: self._alter_queue,
            AdminAction.DELETE_QUEUE: self._delete_queue,
            AdminAction.CREATE_EXCHANGE: self._create_exchange,
            AdminAction.DELETE_EXCHANGE: self._delete_exchange,
            AdminAction.ADD_BINDING: self._add_binding,
            AdminAction.REMOVE_BINDING: self._remove_binding,
            AdminAction.SET_POLICY: self._change_policy,
            AdminAction.DELETE_POLICY: self._change_policy,
        }

    def order(self, order: Order, on_told: OnTold, *, user: str | None = None) -> None:
        """Carry an order out; `on_told` when that is durable, or why it was not done.

        Args:
            order: What is to be made, altered or ended.
            on_told: Told what came of it.
            user: The name of a client's user, who may have only so many queues made; None: an
                administrator's order, or the broker's own.
        """
        if self.decider is not None and order.act is AdminAction.DELETE_QUEUE:
            self.decider.delete(order, on_told)
            return
        try:
            self._check_place(order)
            decided = self._decided(order)
        except InvalidRequest as refusal:
            on_told(refusal, {})
            return

        if order.act in _NAMING:
            self.on_ordered(decided.order.queue)

        def done(error: StoreError | None) -> None:
            if error is None and decided.is_change:
                _warn(decided.answer)
            on_told(error, {} if error else decided.answer)

        if decided.is_change and user is not None and order.act in _MAKING:
            is_exchange = order.act is AdminAction.CREATE_EXCHANGE
            creation = decided.order
            made = CreatedEntity(creation.exchange if is_exchange else creation.queue, is_exchange)
            make = partial(self._acts[order.act], decided)
            self._wiring_limit.make(user, made, make, done)
        elif decided.is_change:
            self._acts[order.act](decided, done)
        else:
            done(None)

    def purge(
        self,
        name: str,
        show: Callable[[Answer], bool],
        on_purged: OnPurged,
        last_position: int | None = None,
        operation: str | None = None,
    ) -> None:
        """Take what is on a queue now off it, but for what is acquired, some at a time.

        Args:
            name: The queue's name, as the administrator wrote it.
            show: Told how far it is; False: nobody waits for it any more, so it ends.
            on_purged: Called when it is done, durably.
            last_position: What came after it stays, and what is not durable; None: all is taken.
            operation: Its name in history; None: it has none.
        """
        try:
            queue = existing(name, self.facts)
        except InvalidRequest as refusal:
            on_purged(refusal, Answer())
            return
        if self.decider is not None:
            self.decider.purge(queue, on_purged)
            return
        request = Request(Action.PURGE, queue, (), operation=operation)
        turns = BulkTurns(self._served, self._bulk, request, show, on_purged)
        turns.start(last_position=last_position)

    def _create_queue(self, decided: OrderDecision, on_done: OnComplete) -> None:
        order = decided.order
        durability = TerminusDurability(order.durability)
        queue = Queue(order.queue, durability, arguments_of(decided.detail))
        self._served.create_queue(queue, on_done)

    def _alter_queue(self, decided: OrderDecision, on_done: OnComplete) -> None:
        served, name = self._served, decided.order.queue
        before = served.definitions[name]
        queue = served.with_policies(Queue(name, before.durability, arguments_of(decided.detail)))

        def altered(error: StoreError | None) -> None:
            dispatch = served.queues.get(name)
            if served.definitions.get(name) is queue and dispatch is not None:
                if error is not None:
                    served.redefine(before)
                else:
                    served.look_over(dispatch)
                served.wanted(name)
            on_done(error)

        served.redefine(queue)
        served.calls.make(AlterCall(queue), altered)

    def _delete_queue(self, decided: OrderDecision, on_done: OnComplete) -> None:
        """Delete a queue after its consumers, so that what they held is on it when it goes."""
        name = decided.order.queue
        if self._deletions.refuses(name, on_done):
            return
        queue = self._served.queues[name]
        users: list[Consumer | Browser] = [*queue.consumers, *queue.browsers]
        for user in users:
            user.queue_deleted()
        if not any(owner.end_own_link(name, on_done) for owner in self._served.queue_owners):
            self._served.destroy_queue(name, on_done)

    def _create_exchange(self, decided: OrderDecision, on_done: OnComplete) -> None:
        exchange, router = new_exchange(decided), self._served.router
        self._wire(CreateCall(exchange), partial(router.add_exchange, exchange), on_done)

    def _delete_exchange(self, decided: OrderDecision, on_done: OnComplete) -> None:
        exchange, router = decided.order.exchange, self._served.router
        call = DestroyCall(Exchange(exchange, ""))
        self._wire(call, partial(router.remove_exchange, exchange), on_done)

    def _add_binding(self, decided: OrderDecision, on_done: OnComplete) -> None:
        key, arguments = decided.order.binding_key, arguments_of(decided.detail)
        bind, place = self._served.router.bind, (key.exchange, key.binding_key, key.queue)
        self._wire(BindCall(key, arguments), partial(bind, *place, arguments), on_done)

    def _remove_binding(self, decided: OrderDecision, on_done: OnComplete) -> None:
        key = decided.order.binding_key
        unbind, place = self._served.router.unbind, (key.exchange, key.binding_key, key.queue)
        self._wire(UnbindCall(key), partial(unbind, *place), on_done)

    def _wire(self, call: StoreCall, change: Callable[[], None], on_done: OnComplete) -> None:
        """Have the store make a call, and then the router its change; a member is told of that."""

        def done(error: StoreError | None) -> None:
            if isinstance(error, InvalidRequest) and isinstance(call, DestroyCall | UnbindCall):
                error = None  # an earlier order was taken
            if error is None and not self._served.is_member:
                change()
            on_done(error)

        self._served.calls.make(call, done)

    def _decided(self, order: Order) -> OrderDecision:
        decided = decide(order, self.facts)
        if self._is_in_settings(decided.order):
            decided.answer["note"] = _COMES_BACK
        return decided

    def _check_place(self, order: Order) -> None:
        if self._served.is_member and order.act in _OF_POLICIES:
            text = "a member knows no policies: give the order where the store is served"
            raise InvalidRequest(text)

    def _change_policy(self, decided: OrderDecision, on_done: OnComplete) -> None:
        """Set or delete a policy: the store gives queues their new definitions in the same call."""
        served, name = self._served, decided.order.key
        detail = json.loads(decided.detail) if decided.detail else None

        def configured(error: StoreError | None) -> None:
            policy = None if detail is None else policy_of(name, detail)
            for queue in served.use_policy(name, policy) if error is None else ():
                served.look_over(queue)
            on_done(error)

        served.calls.make(ConfigureCall(CATEGORY, name, detail), configured)

    def _is_in_settings(self, order: Order) -> bool:
        """True if the next start undoes an order that takes away or alters."""
        settings = self._served.settings
        match order.act:
            case AdminAction.DELETE_QUEUE:
                return any(row.name == order.queue for row in settings.queues)
            case AdminAction.ALTER_QUEUE:
                return any(row.name == order.queue and row.arguments for row in settings.queues)
            case AdminAction.SET_POLICY | AdminAction.DELETE_POLICY:
                return any(row.name == order.key for row in settings.policies)
            case AdminAction.DELETE_EXCHANGE:
                return any(row.name == order.exchange for row in settings.exchanges)
            case AdminAction.REMOVE_BINDING:
                bound = map(self._served.destinations.bound, settings.bindings)
                return order.binding_key in bound
            case _:
                return False


def _warn(answer: Mapping[str, Any]) -> None:
    for text in answer.get("warnings", ()):
        _log.warning("%s", text)
