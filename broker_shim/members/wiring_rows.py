"""Queues, exchanges and bindings, as members are told of them, and what that changes there."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Iterator

from broker_shim.broker.virtual_host import Broker
from broker_shim.errors import InvalidRequest
from broker_shim.store.interface import ExchangeBindingKey, Recovered
from sparkstore.core.records import Kind, Record
from sparkstore.core.state_machine.definitions import (
    as_json,
    detail_of,
    exchange_of,
    queue_of,
)

_log = logging.getLogger(__name__)

Row = tuple[int, str | None, str | None, str | None, str | None]
"""Kind, queue, exchange, binding key and detail, as of a record."""

WIRING_KINDS = frozenset({Kind.CREATED, Kind.ALTERED, Kind.DESTROYED, Kind.BOUND, Kind.UNBOUND})


def row_of(record: Record) -> Row:
    """Make the row that tells members of a record."""
    return int(record.kind), record.queue, record.exchange, record.binding_key, record.detail


def attached_row(text: str) -> Row:
    """Make the row that tells members of a link attached at another member from now on."""
    return int(Kind.ATTACHED), None, None, text, None


def rows_of(recovered: Recovered) -> Iterator[Row]:
    """Make rows of all wiring, in the order in which a broker without any takes them."""
    for exchange in recovered.exchanges:
        yield int(Kind.CREATED), None, exchange.name, None, detail_of(exchange)
    for queue in recovered.queues:
        yield int(Kind.CREATED), queue.name, None, None, detail_of(queue)
    for key, arguments in recovered.bindings.items():
        detail = as_json({"arguments": dict(arguments)})
        yield int(Kind.BOUND), key.queue, key.exchange, key.binding_key, detail


def applied(broker: Broker, row: Row) -> bool:
    """Make a broker as a row says, if it can be; one that cannot costs itself, and a line.

    A store may have such a row from an older release. Those that come with it are not lost by it.
    """
    try:
        apply(broker, row)
    except (InvalidRequest, LookupError, TypeError, ValueError) as reason:
        _log.error("a change of wiring cannot be made here: %.500r: %r", row, reason)
        return False
    return True


def apply(broker: Broker, row: Row) -> None:
    """Make a broker as a row says; what is so already stays as it is.

    Raises:
        InvalidRequest: It is no row.
    """
    kind, queue, exchange, key, detail = row
    router = broker.router
    if kind in {Kind.BOUND, Kind.UNBOUND} and queue is not None and exchange is not None:
        if kind == Kind.UNBOUND:
            router.unbind(exchange, key or "", queue)
        elif queue in broker.queues and exchange in router:
            arguments = json.loads(detail or "{}").get("arguments", {})
            router.bind(exchange, key or "", queue, arguments)
    elif queue is not None:
        _apply_to_queue(broker, kind, queue, detail)
    elif exchange is not None and kind == Kind.CREATED:
        router.add_exchange(exchange_of(exchange, detail or "{}"))
    elif exchange is not None and kind == Kind.DESTROYED:
        router.remove_exchange(exchange)
    else:
        message = f"a change of kind {kind} is not one of wiring"
        raise InvalidRequest(message)


def _apply_to_queue(broker: Broker, kind: int, name: str, detail: str | None) -> None:
    if kind == Kind.DESTROYED:
        broker.queue_destroyed(name)
        return
    queue = queue_of(name, detail or "{}")
    if name not in broker.queues:
        broker.serve(queue)
    elif broker.definitions[name] != queue:
        broker.redefine(queue)
        broker.wanted(name)


def forget_others(broker: Broker, rows: Iterable[Row]) -> None:
    """Destroy all wiring that is not among these rows, which are all there is."""
    rows = [*rows]
    queues = {queue for kind, queue, _, _, _ in rows if kind == Kind.CREATED}
    exchanges = {exchange for kind, _, exchange, _, _ in rows if kind == Kind.CREATED}
    bindings = {
        ExchangeBindingKey(exchange or "", queue or "", key or "")
        for kind, queue, exchange, key, _ in rows
        if kind == Kind.BOUND
    }
    for name in _others(broker.queues, queues):
        broker.queue_destroyed(name)
    router = broker.router
    for binding in router.bindings() - bindings:
        router.unbind(binding.exchange, binding.binding_key, binding.queue)
    for name in _others(router.definitions, exchanges):
        router.remove_exchange(name)


def _others(names: Collection[str], existing: Collection[str | None]) -> list[str]:
    return [name for name in names if name not in existing]
