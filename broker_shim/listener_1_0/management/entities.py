"""The queues, exchanges and bindings of a broker, as a client of `$management` is told them. Pure.

    identity   queue/NAME    exchange/NAME    binding/EXCHANGE/QUEUE/KEY     parts quoted as in URLs
    type       org.apache.qpid.Queue, ...Exchange, ...Binding: as Qpid's tools know them

A type may be said by its last word alone, in any case: `queue`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from broker_shim.store.interface import Exchange, ExchangeBindingKey, Queue
from sparkstore.core.queue_arguments import QueueArguments
from sparkstore.core.wiring_arguments import ALTERNATE_EXCHANGE, AUTO_DELETE, alternate_of
from sparkstore.operations.administration import DURABILITIES
from sparkstore.queue_columns import Road, columns_of

_PREFIX = "org.apache.qpid."
_ALL = ("name", "identity", "type")
COLUMNS = tuple(column.name for column in columns_of(Road.MANAGEMENT))
"""Attributes of a queue that nobody alters."""


class EntityKind(StrEnum):
    """The kinds of entities that can be managed."""

    QUEUE = "queue"
    EXCHANGE = "exchange"
    BINDING = "binding"

    @property
    def type(self) -> str:
        """The name of the kind, as clients are told it."""
        return _PREFIX + self.value.capitalize()


ATTRIBUTES: Mapping[EntityKind, tuple[str, ...]] = {
    EntityKind.QUEUE: (*_ALL, *QueueArguments._fields, *COLUMNS),
    EntityKind.EXCHANGE: (*_ALL, "durability", "exchange_type", ALTERNATE_EXCHANGE, AUTO_DELETE),
    EntityKind.BINDING: (*_ALL, "exchange", "queue", "key", "arguments"),
}
OPERATIONS: Mapping[EntityKind, tuple[str, ...]] = {
    EntityKind.QUEUE: ("CREATE", "READ", "UPDATE", "DELETE", "PURGE"),
    EntityKind.EXCHANGE: ("CREATE", "READ", "DELETE"),
    EntityKind.BINDING: ("CREATE", "READ", "DELETE"),
}

Entity = dict[str, Any]


def kind_of(type_name: str) -> EntityKind | None:
    """Return the kind of this name; None: there is none."""
    word = type_name.rpartition(".")[2].lower()
    return next((kind for kind in EntityKind if kind == word), None)


class EntityName(NamedTuple):
    """An entity by its names: of a binding those of its exchange and queue, and its key."""

    kind: EntityKind
    names: tuple[str, ...]

    @property
    def identity(self) -> str:
        """The identity of the entity."""
        return "/".join([self.kind.value, *(quote(name, safe="") for name in self.names)])

    @property
    def queue(self) -> str:
        """The name of the queue in it, or ""."""
        index = {EntityKind.QUEUE: 0, EntityKind.BINDING: 1}.get(self.kind)
        return "" if index is None else self.names[index]

    @property
    def exchange(self) -> str:
        """The name of the exchange in it, or ""."""
        return "" if self.kind is EntityKind.QUEUE else self.names[0]


def entity_named(identity: str) -> EntityName | None:
    """Return the entity that an identity names; None: it is none."""
    word, *parts = identity.split("/")
    kind = kind_of(word)
    if kind is None or len(parts) != (3 if kind is EntityKind.BINDING else 1):
        return None
    return EntityName(kind, tuple(unquote(part) for part in parts))


def queue_entity(queue: Queue, figures: Mapping[str, Any]) -> Entity:
    """Describe a queue; figures that are not known are null."""
    return {
        **_head(EntityKind.QUEUE, queue.name),
        **queue.arguments,
        **dict.fromkeys(COLUMNS),
        "durability": DURABILITIES[queue.durability],
        **figures,
    }


def exchange_entity(exchange: Exchange) -> Entity:
    """Describe an exchange by its attributes."""
    return {
        **_head(EntityKind.EXCHANGE, exchange.name),
        "durability": DURABILITIES[exchange.durability],
        "exchange_type": exchange.type,
        ALTERNATE_EXCHANGE: alternate_of(exchange.arguments),
    }


def binding_entity(key: ExchangeBindingKey, arguments: Mapping[str, Any]) -> Entity:
    """Describe a binding by its attributes."""
    return {
        **_head(EntityKind.BINDING, key.exchange, key.queue, key.binding_key),
        "exchange": key.exchange,
        "queue": key.queue,
        "key": key.binding_key,
        "arguments": dict(arguments),
    }


def _head(kind: EntityKind, *names: str) -> Entity:
    identity = EntityName(kind, names).identity
    name = names[0] if len(names) == 1 else identity.partition("/")[2]
    return {"name": name, "identity": identity, "type": kind.type}
