"""The broker at its start: what survived, what is given back, what is configured."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from broker_shim.broker.orders.expiry_timer import Expiry
from broker_shim.broker.queues.queue_index import Survivors
from broker_shim.broker.queues.recovered_order import in_order_of_delivery
from broker_shim.broker.settings import BrokerSettings
from broker_shim.broker.storage.loop import wall_us
from broker_shim.broker.virtual_host import Broker
from broker_shim.broker.wiring.routing import DEFAULT_EXCHANGES, Router
from broker_shim.completion import wait_for
from broker_shim.durability import TerminusDurability
from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.links import LinkKey, link_text
from broker_shim.listener_1_0.connections.links import Held, now_ms
from broker_shim.listener_1_0.connections.resumption import tag_of
from broker_shim.listener_1_0.host import Amqp10Listener
from broker_shim.store.expiring_store import ExpiringStore
from broker_shim.store.interface import (
    BrokerStore,
    Entry,
    Exchange,
    MessageStore,
    Queue,
    WiringCalls,
)
from sparkstore.core.policies import CATEGORY, policies_of
from sparkstore.core.queue_arguments import own_arguments
from sparkstore.core.queue_names import shown
from sparkstore.core.state_machine import sole_host
from sparkstore.core.wiring_arguments import (
    ALTERNATE_EXCHANGE,
    alternate_of,
    check_binding_arguments,
)
from sparkstore.core.xids import is_branch_holder
from sparkstore.operations.administration import DURABILITIES
from sparkstore.operations.policy_orders import decide_set
from sparkstore.operations.queue_alteration import QueueUsage, check_alteration, definition

_log = logging.getLogger(__name__)


class Absent(NamedTuple):
    """Brokers on the same store that may come back: what they have is theirs until they are lost.

    Attributes:
        names: Names of those that ever asked the service.
        links: Those that are attached at one of them, by their texts.
    """

    names: frozenset[str] = frozenset()
    links: Mapping[str, LinkKey] = MappingProxyType({})

    def holds(self, holder: str) -> bool:
        """Whether one of them holds what this holder does."""
        name, slash, _rest = holder.partition("/")
        return holder in self.links or (bool(slash) and name in self.names)


NOBODY = Absent()
"""The store is this broker's alone."""


def recover(
    store: BrokerStore, host: Amqp10Listener, absent: Absent = NOBODY, timeout_s: float = 600.0
) -> None:
    """Take over what survived, release what connections of the last run held, create wiring.

    Blocks: for the start only, before the loop runs. What was acquired belonged to connections that
    are gone, so it is released and counts as a failed delivery: they may have seen it. But what a
    link of tier 2 acquired it holds until it is attached again. What a member of the store's
    service acquired that member holds, until the service says that it is lost. A link that is
    attached at a member stays so, as its clients are connected there. It is no broker's here to say
    that it was left, or to let its time run out and end its queue.

    Args:
        store: What is recovered.
        host: Takes it over.
        absent: The members that may come back.
        timeout_s: How long the store may take, in seconds.

    Raises:
        StoreError: The store refused; what the settings say of a queue or an exchange cannot be
            made of what is there, and the message names the command that helps.
    """
    broker, links = host.broker, host.links
    recovered = store.recover()
    _leave_host_behind(store, recovered.configured, timeout_s)
    broker.policies = policies_of(recovered.configured)
    termini = links.registry.recover(now_ms(), _log_failure, set(absent.links.values()))
    keepers = {
        link_text(terminus.key): terminus.key
        for terminus in termini
        if terminus.durability is TerminusDurability.UNSETTLED_STATE
    }
    acquired: list[_Acquired] = []
    for kept in recovered.queues:
        entries = recovered.entries.get(kept.name, {})
        dispatch = broker.serve(kept)
        dispatch.recovered(_survivors(kept.name, entries, keepers, absent, acquired))
    router = broker.router
    for exchange in recovered.exchanges:
        router.add_exchange(exchange)
    for key, arguments in recovered.bindings.items():
        router.bind(key.exchange, key.binding_key, key.queue, arguments)
    # The queues are there by now: what is given back waits on them.
    _give_back(store, host, acquired, keepers, absent, timeout_s)
    create_wiring(store, broker, timeout_s)
    host.recover_own_queues(store, termini, timeout_s)
    # Links have their own queues by now, which do not delete themselves.
    broker.claims.auto_deletion.recovered(recovered.configured, absent.names)
    for queue in [*broker.queues.values()]:
        broker.look_over(queue)
    links.expire()
    count = sum(len(queue) for queue in broker.queues.values())
    text = "recovered %d messages on %d queues, %d links"
    _log.info(text, count, len(broker.queues), len(termini))


def expire(store: BrokerStore, broker: Broker) -> None:
    """Have messages, and queues that nobody uses, leave when their time is over, from now on.

    Of a store in this process: what a member of a service has, that one expires.
    """
    broker.unused_queues.start()
    if isinstance(store, ExpiringStore):
        Expiry(store, lambda: broker.bulk, broker.later).start()


def _leave_host_behind(
    store: WiringCalls, configured: Mapping[tuple[str, str], Any], timeout_s: float
) -> None:
    """Note that a Broker-J host whose root this was has missed changes, for its return."""
    changed = sole_host.changed_object(configured.get(sole_host.OBJECT))
    if changed is not None:
        wait_for([partial(store.configure, *sole_host.OBJECT, changed)], timeout_s)


class _Acquired(NamedTuple):
    """A message that was held when the last run ended."""

    message_id: int
    queue: str
    holder: str


def _survivors(
    queue: str,
    entries: Mapping[int, Entry],
    keepers: Container[str],
    absent: Absent,
    acquired: list[_Acquired],
) -> Iterator[Survivors]:
    """Tell what is on the queue, with failed deliveries, and note what was held."""
    for stretch in in_order_of_delivery(entries, wall_us()):
        failures: dict[int, int] = {}
        for message_id, entry in stretch.marked:
            holder, failed = entry.acquired_by, entry.delivery_count
            if holder is not None:
                acquired.append(_Acquired(message_id, queue, holder))
                failed += holder not in keepers and not _is_elsewhere(holder, absent)
            if failed:
                failures[message_id] = failed
        yield Survivors(stretch.message_ids, stretch.priorities, failures)


def _is_elsewhere(holder: str, absent: Absent) -> bool:
    return is_branch_holder(holder) or absent.holds(holder)


def _hold(
    host: Amqp10Listener, acquired: Iterable[_Acquired], keepers: Mapping[str, LinkKey]
) -> None:
    """Let each link of tier 2 hold what it had acquired; nobody else gets it."""
    for message_id, queue, holder in acquired:
        host.broker.queues[queue].withdraw([message_id])
        held = host.links.held.setdefault(keepers[holder], {})
        held[tag_of(message_id)] = Held(message_id, queue)


def _give_back(
    store: MessageStore,
    host: Amqp10Listener,
    acquired: Iterable[_Acquired],
    keepers: Mapping[str, LinkKey],
    absent: Absent,
    timeout_s: float,
) -> None:
    lost: list[_Acquired] = []
    kept: list[_Acquired] = []
    for entry in acquired:
        if entry.holder in keepers:
            kept.append(entry)
        elif _is_elsewhere(entry.holder, absent):
            host.broker.queues[entry.queue].held_elsewhere((entry.message_id,))
        else:
            lost.append(entry)
            continue
        if (groups := host.broker.queues[entry.queue].groups) is not None:
            groups.held(entry.message_id, entry.holder)
    _release(store, lost, timeout_s)
    _hold(host, kept, keepers)


def _release(store: MessageStore, acquired: list[_Acquired], timeout_s: float) -> None:
    wait_for(
        (
            partial(store.release, message_id, queue, holder, delivery_failed=True)
            for message_id, queue, holder in acquired
        ),
        timeout_s,
    )
    if acquired:
        holders = len({holder for _id, _queue, holder in acquired})
        _log.info("released %d messages that %d lost links held", len(acquired), holders)


def create_wiring(store: WiringCalls, broker: Broker, timeout_s: float) -> None:
    """Have the exchanges, queues and bindings of the settings. Raises StoreError."""
    settings, router = broker.settings, broker.router
    exchanges = [Exchange(name, kind) for name, kind in DEFAULT_EXCHANGES.items()]
    exchanges += settings.exchanges
    _check_exchanges(router, exchanges)
    exchanges = [row for row in exchanges if row.arguments or row.name not in router]
    altered = [queue for queue in settings.queues if _is_to_alter(broker, queue)]
    for policy in settings.policies:  # what a queue cannot take now is refused before all else
        decide_set(policy, broker.administration.facts)
    for exchange in exchanges:
        router.add_exchange(exchange)
    _check_alternates(router, settings, exchanges)
    wait_for((partial(store.create, exchange) for exchange in exchanges), timeout_s)
    new = [queue for queue in settings.queues if queue.name not in broker.queues]
    wait_for((partial(store.create, queue) for queue in new), timeout_s)
    for queue in new:
        broker.serve(queue)
    wait_for((partial(store.alter, queue) for queue in altered), timeout_s)
    for queue in altered:
        broker.redefine(broker.with_policies(queue))
        _log.info("queue %r altered, as the settings say: %s", queue.name, dict(queue.arguments))
    bindings = [
        (broker.destinations.bound(key), settings.binding_arguments.get(key, {}))
        for key in settings.bindings
    ]
    for key, arguments in bindings:
        kind = router.type_of(key.exchange) or ""
        check_binding_arguments(key.exchange, kind, arguments)
    wait_for((partial(store.bind, *row) for row in bindings), timeout_s)
    _set_policies(store, broker, timeout_s)
    for key, arguments in bindings:
        router.bind(key.exchange, key.binding_key, key.queue, arguments)


def _set_policies(store: WiringCalls, broker: Broker, timeout_s: float) -> None:
    """Have the policies of the settings. Raises StoreError; a queue may not take one now."""
    for policy in broker.settings.policies:
        if decide_set(policy, broker.administration.facts).is_change:
            set_it = partial(store.configure, CATEGORY, policy.name, policy.detail)
            wait_for([set_it], timeout_s)
            broker.use_policy(policy.name, policy)
            _log.info("policy %r set, as the settings say: %s", policy.name, policy.detail)


def _check_exchanges(router: Router, exchanges: Iterable[Exchange]) -> None:
    for exchange in exchanges:
        kind = router.type_of(exchange.name)
        if kind not in {None, exchange.type}:
            name = shown(exchange.name)
            message = f"exchange {name} is there with type {kind}, the settings say"
            message += f" {exchange.type}:"
            message += f" change them, or delete it first: sparkstore exchange delete ROOT {name}"
            raise InvalidRequest(message)


def _check_alternates(
    router: Router, settings: BrokerSettings, exchanges: Iterable[Exchange]
) -> None:
    """Refuse settings by which something has an alternate exchange that is not there.

    An exchange that is there keeps the one it has: settings that give another are refused, and
    those that give none leave it.
    """
    wanted = [(f"exchange {shown(e.name)}", alternate_of(e.arguments)) for e in exchanges]
    for exchange, (name, wish) in zip(exchanges, wanted, strict=True):
        present = router.alternate_of(exchange.name)
        if wish != present:
            message = f"{name} is there with {ALTERNATE_EXCHANGE} {present!r}, the settings say"
            message += f" {wish!r}: change them, or delete it first: sparkstore exchange delete"
            raise InvalidRequest(f"{message} ROOT {shown(exchange.name)}")
    wanted += [(f"queue {shown(q.name)}", alternate_of(q.arguments)) for q in settings.queues]
    wanted += [(f"address {shown(a.match)}", alternate_of(a.arguments)) for a in settings.addresses]
    for name, wish in wanted:
        if wish is not None and wish not in router:
            message = f"{name}: its {ALTERNATE_EXCHANGE} {shown(wish)} is not there: say it among"
            raise InvalidRequest(f"{message} the exchanges of the settings")


def _is_to_alter(broker: Broker, queue: Queue) -> bool:
    """True if the settings give a queue that is there other arguments, and it may have them.

    Settings that give none leave a queue with those it has: `--queue orders` names it, no more.

    Raises:
        InvalidRequest: It may not have them now.
    """
    existing = broker.definitions.get(queue.name)
    if existing is None:
        return False
    name = shown(queue.name)
    if existing.durability is not queue.durability:
        tiers = [DURABILITIES[queue_there.durability] for queue_there in (existing, queue)]
        message = f"queue {name} is there with durability {tiers[0]}, the settings say {tiers[1]}:"
        message += f" change them, or delete it first: sparkstore queue delete ROOT {name}"
        raise InvalidRequest(message)
    if not queue.arguments or queue.arguments == own_arguments(existing.arguments):
        return False
    configured = broker.with_policies(queue)
    detail, wanted = (definition(q.arguments, int(q.durability)) for q in (existing, configured))
    depth = len(broker.queues[queue.name])
    check_alteration(queue.name, detail, wanted, QueueUsage(depth))
    return True


def _log_failure(error: StoreError | None) -> None:
    if error is not None:
        _log.warning("the store does not know that a link is not attached: %s", error)
