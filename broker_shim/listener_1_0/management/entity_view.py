"""Show a client the queues, exchanges and bindings that it may know of: where it may do something.

It is told no more than over AMQP 0-10. On the loop's thread only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from broker_shim.broker.wiring.address import ExchangeNode, Node, QueueNode
from broker_shim.broker.wiring.routing import DEFAULT_EXCHANGES
from broker_shim.errors import StoreError
from broker_shim.listener_1_0.connections.connection import Connection
from broker_shim.listener_1_0.management.entities import (
    Entity,
    EntityKind,
    EntityName,
    binding_entity,
    exchange_entity,
    queue_entity,
)
from broker_shim.sockets.authorization import may_do_something
from broker_shim.sockets.client_orders import canonical_or_empty
from broker_shim.store.interface import ExchangeBindingKey
from sparkstore.queue_columns import Road, row_of

OnEntity = Callable[[StoreError | None, Entity | None], None]


class EntityView:
    """The entities of a broker, as one connection's user may know them."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._broker = connection, connection.broker

    def find(self, entity: EntityName, figures: Mapping[str, Any] = {}) -> Entity | None:
        """Describe an entity by its whole name, a queue with its figures; None: there is none."""
        kind, names = entity
        queries, router = self._broker.queries, self._broker.router
        if kind is EntityKind.QUEUE:
            queue = queries.queue(names[0])
            return None if queue is None else queue_entity(queue, figures)
        if kind is EntityKind.EXCHANGE:
            exchange = router.definitions.get(names[0])
            return None if exchange is None else exchange_entity(exchange)
        key = ExchangeBindingKey(*names)
        is_there = key in router.bindings()
        return binding_entity(key, router.arguments_of(key)) if is_there else None

    def read(self, entity: EntityName, on_entity: OnEntity) -> None:
        """Describe an entity with its figures, for which a member asks its service."""

        def counted(error: StoreError | None, figures: dict[str, Any]) -> None:
            on_entity(error, self.find(entity, figures) if figures else None)

        if entity.kind is EntityKind.QUEUE:
            self._broker.queries.usage(entity.names[0], counted)
        else:
            on_entity(None, self.find(entity))

    def may_know(self, entity: EntityName) -> bool:
        """Whether the client may do something at all that an entity names."""
        return all(may_do_something(self._connection, node) for node in nodes_to_know(entity))

    def known(self, kind: EntityKind) -> Iterator[Entity]:
        """Describe all entities of a kind that the client may know of, in the order of names.

        At a member queues have no figures: its service has them, and `read` asks it.
        """
        broker = self._broker
        has_figures = broker.administration.decider is None
        for names in self._names(kind):
            entity, figures = EntityName(kind, names), dict[str, Any]()
            if not self.may_know(entity):
                continue
            if kind is EntityKind.QUEUE and has_figures:
                figures = row_of(Road.MANAGEMENT, broker.queries.facts(names[0]))
            row = self.find(entity, figures)
            if row is not None:
                yield row

    def _names(self, kind: EntityKind) -> list[tuple[str, ...]]:
        if kind is EntityKind.QUEUE:
            return [(name,) for name in sorted(self._broker.queues)]
        if kind is EntityKind.EXCHANGE:
            return [(name,) for name in sorted(self._broker.router.definitions)]
        return sorted(tuple(key) for key in self._broker.router.bindings())


def nodes_to_know(entity: EntityName) -> list[Node]:
    """List where a client has to have some right; the broker's own exchanges all may know."""
    nodes: list[Node] = []
    if entity.exchange and entity.exchange not in DEFAULT_EXCHANGES:
        nodes.append(ExchangeNode(entity.exchange))
    if entity.queue:
        nodes.append(QueueNode(canonical_or_empty(entity.queue)))
    return nodes
