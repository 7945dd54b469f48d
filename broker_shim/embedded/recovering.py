"""The start of a broker: what survived is taken over, what connections held is given back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from broker_shim.completion import Completion, OnComplete, all_of
from broker_shim.embedded.broker import Broker
from broker_shim.embedded.routing import DEFAULT_EXCHANGES
from broker_shim.store.interface import Entry, Exchange, MessageStore, Queue

_log = logging.getLogger(__name__)

_Call = Callable[[OnComplete], None]


def recover(store: MessageStore, broker: Broker, *, timeout_s: float = 600.0) -> None:
    """Take over what survived, release what connections of the last run held, create wiring.

    Blocks: for the start only, before the loop runs. What was acquired belonged to connections
    that are gone, so it is released and counts as a failed delivery: they may have seen it.

    Raises:
        StoreError: The store refused; a configured queue exists with other arguments.
    """
    recovered = store.recover()
    acquired: list[tuple[int, str, str]] = []
    for definition in recovered.queues:
        entries = recovered.entries.get(definition.name, {})
        broker.serve(definition).recovered(_survivors(definition.name, entries, acquired))
    for exchange in recovered.exchanges:
        broker.router.add_exchange(exchange.name, exchange.type)
    for key in recovered.bindings:
        broker.router.bind(key.exchange, key.binding_key, key.queue)
    _release(store, acquired, timeout_s)
    _create(store, broker, timeout_s)
    for queue in [*broker.queues.values()]:
        broker.bulk.end_failed(queue)
        if queue.last_values is not None:
            broker.replacing.arrived(queue, list(recovered.entries.get(queue.name, {})))
            broker.wanted(queue.name)
    count = sum(len(queue) for queue in broker.queues.values())
    _log.info("recovered %d messages on %d queues", count, len(broker.queues))


def _survivors(
    queue: str, entries: Mapping[int, Entry], acquired: list[tuple[int, str, str]]
) -> Iterator[tuple[int, int, int]]:
    """(message id, priority, delivery count) of each; those that were held are noted."""
    for message_id, entry in entries.items():
        holder = entry.acquired_by
        if holder is not None:
            acquired.append((message_id, queue, holder))
        yield message_id, entry.priority, entry.delivery_count + (holder is not None)


def _release(store: MessageStore, acquired: list[tuple[int, str, str]], timeout_s: float) -> None:
    _wait(
        (
            partial(store.release, message_id, queue, holder, delivery_failed=True)
            for message_id, queue, holder in acquired
        ),
        timeout_s,
    )
    if acquired:
        holders = len({holder for _id, _queue, holder in acquired})
        _log.info("released %d messages that %d lost links held", len(acquired), holders)


def _create(store: MessageStore, broker: Broker, timeout_s: float) -> None:
    settings = broker.settings
    exchanges = [Exchange(name, kind) for name, kind in DEFAULT_EXCHANGES.items()]
    exchanges += settings.exchanges
    for exchange in exchanges:
        broker.router.add_exchange(exchange.name, exchange.type)
    wiring: list[Queue | Exchange] = [*exchanges, *settings.queues]
    _wait((partial(store.create, item) for item in wiring), timeout_s)
    for queue in settings.queues:
        if queue.name not in broker.queues:
            broker.serve(queue)
    bindings = [broker.destinations.bound(key) for key in settings.bindings]
    _wait((partial(store.bind, key, {}) for key in bindings), timeout_s)
    for key in bindings:
        broker.router.bind(key.exchange, key.binding_key, key.queue)


def _wait(calls: Iterable[_Call], timeout_s: float) -> None:
    """Make calls of the store and wait for all of them."""
    completions = []
    for call in calls:
        completion = Completion()
        call(completion.finish)
        completions.append(completion)
    all_of(completions).complete(timeout_s)
