"""Exchanges, and the bindings of queues to them."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct, field

from broker_shim.broker.wiring.routing import Router
from broker_shim.security.rules.rights import Act
from broker_shim.serve.http.bodies import (
    Durability,
    Name,
    OrderModel,
    OrderOutcome,
    PageQuery,
    done,
)
from broker_shim.serve.http.calls import Call
from broker_shim.serve.http.endpoint import ADMIN, API, MONITOR, Endpoint
from broker_shim.store.interface import ExchangeBindingKey
from sparkstore.core.wiring_arguments import EXCHANGE_TYPES, alternate_of
from sparkstore.operations.administration import DURABILITIES, AdminAction, Order

ExchangeKind = Annotated[str, Meta(extra_json_schema={"enum": [*EXCHANGE_TYPES]})]


class ExchangeRow(Struct, kw_only=True):
    """An exchange, the broker's own ones too."""

    name: str
    type: str
    durability: Durability
    alternate_exchange: str | None


class ExchangeList(Struct, kw_only=True):
    """A page of exchanges in the order of their names."""

    total: int
    offset: int
    items: list[ExchangeRow]


class ExchangeCreation(OrderModel, kw_only=True):
    """An exchange that is to be there."""

    type: ExchangeKind
    arguments: dict[str, Any] = field(default_factory=dict)


class ExchangeDeletionLimits(OrderModel):
    """Limits of the deletion of an exchange; `force`: with its bindings."""

    force: bool = False
    if_unused: bool = False


class BindingRow(Struct, kw_only=True):
    """A binding of a queue to an exchange."""

    exchange: str
    key: str
    queue: str
    arguments: dict[str, Any]


class BindingQuery(PageQuery):
    """The part of the list of bindings that is asked for, of one queue or exchange."""

    queue: str | None = None
    exchange: str | None = None


class BindingList(Struct, kw_only=True):
    """A page of bindings in the order of exchange, queue and key."""

    total: int
    offset: int
    items: list[BindingRow]


class BindingCreation(OrderModel, kw_only=True):
    """A binding that is to be there."""

    exchange: Name
    queue: Name
    key: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)


class BindingToRemove(OrderModel, kw_only=True):
    """The binding that is to be taken away."""

    exchange: Name
    queue: Name
    key: str = ""


async def list_exchanges(call: Call) -> ExchangeList:
    """List a page of the exchanges."""
    broker, page = call.broker, call.query

    def read() -> ExchangeList:
        exchanges = sorted(broker.router.definitions.items())
        items = []
        for name, exchange in exchanges[page.offset : page.offset + page.limit]:
            durability = DURABILITIES[exchange.durability]
            items.append(
                ExchangeRow(
                    name=name,
                    type=exchange.type,
                    durability=durability,  # type: ignore[arg-type]  # one of the three words
                    alternate_exchange=alternate_of(exchange.arguments),
                )
            )
        return ExchangeList(total=len(exchanges), offset=page.offset, items=items)

    return await call.read(read)


async def create_exchange(call: Call) -> OrderOutcome:
    """Create an exchange; one that is there as asked for is no change."""
    body, act = call.body, AdminAction.CREATE_EXCHANGE
    order = Order(act, exchange=call.names["exchange"], type=body.type, arguments=body.arguments)
    return done(await call.order(order, dry_run=body.dry_run))


async def delete_exchange(call: Call) -> OrderOutcome:
    """Delete an exchange; by force with its bindings."""
    act, limits = AdminAction.DELETE_EXCHANGE, call.query
    order = Order(act, exchange=call.names["exchange"], force=limits.force)
    order = order._replace(if_unused=limits.if_unused)
    return done(await call.order(order, dry_run=limits.dry_run))


async def list_bindings(call: Call) -> BindingList:
    """List a page of the bindings, of one queue or exchange if that is asked for."""
    router, page = call.broker.router, call.query

    def read() -> BindingList:
        keys = sorted(
            key
            for key in router.bindings()
            if page.queue in {None, key.queue} and page.exchange in {None, key.exchange}
        )
        items = [binding_row(router, key) for key in keys[page.offset : page.offset + page.limit]]
        return BindingList(total=len(keys), offset=page.offset, items=items)

    return await call.read(read)


async def add_binding(call: Call) -> OrderOutcome:
    """Bind a queue to an exchange."""
    body, act = call.body, AdminAction.ADD_BINDING
    order = Order(act, body.queue, body.exchange, body.key, arguments=body.arguments)
    return done(await call.order(order, dry_run=body.dry_run))


async def remove_binding(call: Call) -> OrderOutcome:
    """Take a binding of a queue away."""
    query, act = call.query, AdminAction.REMOVE_BINDING
    order = Order(act, query.queue, query.exchange, query.key)
    return done(await call.order(order, dry_run=query.dry_run))


def binding_row(router: Router, key: ExchangeBindingKey) -> BindingRow:
    """Describe a binding that is there."""
    return BindingRow(
        exchange=key.exchange,
        key=key.binding_key,
        queue=key.queue,
        arguments=dict(router.arguments_of(key)),
    )


ENDPOINTS = (
    Endpoint("GET", API + "/exchanges", MONITOR, list_exchanges, ExchangeList, PageQuery),
    Endpoint(
        "PUT",
        API + "/exchanges/{exchange}",
        ADMIN,
        create_exchange,
        OrderOutcome,
        body=ExchangeCreation,
        acts=(Act.MAKE_EXCHANGE,),
    ),
    Endpoint(
        "DELETE",
        API + "/exchanges/{exchange}",
        ADMIN,
        delete_exchange,
        OrderOutcome,
        ExchangeDeletionLimits,
        conflict=409,
        acts=(Act.DELETE_EXCHANGE,),
    ),
    Endpoint("GET", API + "/bindings", MONITOR, list_bindings, BindingList, BindingQuery),
    Endpoint(
        "POST",
        API + "/bindings",
        ADMIN,
        add_binding,
        OrderOutcome,
        body=BindingCreation,
        acts=(Act.BIND_QUEUE, Act.BIND_TO_EXCHANGE),
    ),
    Endpoint(
        "DELETE",
        API + "/bindings",
        ADMIN,
        remove_binding,
        OrderOutcome,
        BindingToRemove,
        conflict=409,
        acts=(Act.UNBIND, Act.BIND_TO_EXCHANGE),
    ),
)
