"""Queues: what there is, and orders to make, alter and delete them."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field

from broker_shim.broker.virtual_host import Broker
from broker_shim.security.rules.rights import Act
from broker_shim.serve.http.bodies import (
    Durability,
    OrderModel,
    OrderOutcome,
    PageQuery,
    QueueArguments,
    done,
)
from broker_shim.serve.http.calls import Call, now_us
from broker_shim.serve.http.endpoint import ADMIN, API, MONITOR, QUEUE, Endpoint
from broker_shim.serve.http.figures.queue_rows import QueueRow, queue_fields
from broker_shim.serve.http.refusals import HttpRefusal
from broker_shim.serve.http.resources.exchanges import BindingRow, binding_row
from sparkstore.core.policies import Policy
from sparkstore.core.queue_names import shown
from sparkstore.operations.administration import DURABILITIES, AdminAction, Order
from sparkstore.queue_columns import Road, columns_of, row_of

_SHOWN_SOURCES = 10


class QueueQuery(PageQuery):
    """The part of the list of queues that is asked for; `match`: a part of their names.

    `sort` is a column of numbers, such as `depth`, or `-depth` for the largest first. `policy` is
    the name of one that has to fit them.
    """

    match: str = ""
    policy: str = ""
    sort: str = ""


class QueueList(Struct, kw_only=True):
    """A page of queues in the order that was asked for, else of their names; `total` are there."""

    total: int
    offset: int
    items: list[QueueRow]


class DeadLetterRow(Struct, kw_only=True):
    """A queue that gets dead letters, and of which queues: the first ten by name."""

    name: str
    depth: int
    oldest_age_s: float | None
    sources: list[str]
    source_count: int


class DeadLetterList(Struct, kw_only=True):
    """A page of the queues that get dead letters, in the order of their names."""

    total: int
    offset: int
    items: list[DeadLetterRow]


class QueueDetails(QueueRow, kw_only=True):
    """A queue with its bindings."""

    bindings: list[BindingRow]


class QueueCreation(OrderModel):
    """A queue that is to be there."""

    arguments: QueueArguments = field(default_factory=dict)
    durability: Durability = "unsettled-state"


class QueueAlterationOrder(OrderModel):
    """Arguments of a queue that change: `set` gives them values, `unset` takes them away."""

    set: QueueArguments = field(default_factory=dict)
    unset: list[str] = field(default_factory=list)


class QueueDeletionLimits(OrderModel):
    """Limits of a deletion; `force`: with what is on it."""

    force: bool = False
    if_unused: bool = False
    if_empty: bool = False


async def list_queues(call: Call) -> QueueList:
    """List a page of the queues with their figures, by name or as `sort=-depth` asks."""
    broker, page = call.broker, call.query

    def fitting() -> list[str]:
        names = sorted(broker.queues)
        if page.match:
            names = [name for name in names if page.match in name]
        if page.policy:
            names = [*filter(_policy(broker, page.policy).fits, names)]
        return names

    names = await call.read(fitting)
    if page.sort:
        names = await _sorted(call, names, page.sort)
    asked, at_us = names[page.offset : page.offset + page.limit], now_us()

    def read() -> list[QueueRow]:
        return [  # but those that were deleted meanwhile
            QueueRow(**queue_fields(broker, name, at_us)) for name in asked if name in broker.queues
        ]

    return QueueList(total=len(names), offset=page.offset, items=await call.read(read))


def _policy(broker: Broker, name: str) -> Policy:
    policy = next((policy for policy in broker.policies if policy.name == name), None)
    if policy is None:
        raise HttpRefusal(404, f"there is no policy {shown(name)}: GET /api/v1/policies lists them")
    return policy


async def _sorted(call: Call, names: list[str], sort: str) -> list[str]:
    """Sort queues by a column; those that are alike stay in the order of their names.

    It looks at some queues in each turn of the loop, which 10,000 would stop for a tenth of a
    second otherwise.
    """
    columns = {column.name: column for column in columns_of(Road.HTTP) if column.is_number}
    column = columns.get(sort.removeprefix("-"))
    if column is None:
        raise HttpRefusal(400, f"query: sort is one of {', '.join(columns)}, or - before it")
    value, queries, queues, at_us = column.value, call.broker.queries, call.broker.queues, now_us()

    def look(part: Sequence[str]) -> dict[str, float]:
        return {name: value(queries.facts(name, at_us)) or 0 for name in part if name in queues}

    values: dict[str, float] = {}
    for part in await call.in_turns(names, look):
        values |= part
    names = [name for name in names if name in values]
    return sorted(names, key=values.__getitem__, reverse=sort.startswith("-"))


async def list_dead_letters(call: Call) -> DeadLetterList:
    """List a page of the queues that get the dead letters of others."""
    broker, page = call.broker, call.query

    def read() -> DeadLetterList:
        sources: dict[str, list[str]] = {}
        for name, queue in broker.queues.items():
            target = queue.arguments.dead_letter_queue
            if target is not None and target in broker.queues:
                sources.setdefault(target, []).append(name)
        shown, at_us = sorted(sources)[page.offset : page.offset + page.limit], now_us()
        items = []
        for name in shown:
            row = row_of(Road.HTTP, broker.queries.facts(name, at_us))
            items.append(
                DeadLetterRow(
                    name=name,
                    depth=row["depth"],
                    oldest_age_s=row["oldest_age_s"],
                    sources=sorted(sources[name])[:_SHOWN_SOURCES],
                    source_count=len(sources[name]),
                )
            )
        return DeadLetterList(total=len(sources), offset=page.offset, items=items)

    return await call.read(read)


async def show_queue(call: Call) -> QueueDetails:
    """Show one queue with its arguments and bindings."""
    broker, name = call.broker, await call.named_queue()

    def read() -> QueueDetails:
        keys = sorted(key for key in broker.router.bindings() if key.queue == name)
        return QueueDetails(
            **queue_fields(broker, name, now_us()),
            bindings=[binding_row(broker.router, key) for key in keys],
        )

    return await call.read(read)


async def create_queue(call: Call) -> OrderOutcome:
    """Create a queue; one that is there as asked for is no change."""
    body = call.body
    durability = DURABILITIES.index(body.durability)
    return done(
        await call.order(
            Order(
                AdminAction.CREATE_QUEUE,
                call.names["queue"],
                arguments=body.arguments,
                durability=durability,
            ),
            dry_run=body.dry_run,
        )
    )


async def alter_queue(call: Call) -> OrderOutcome:
    """Alter some arguments of a queue."""
    await call.named_queue()
    changes = {**call.body.set, **dict.fromkeys(call.body.unset)}
    order = Order(AdminAction.ALTER_QUEUE, call.names["queue"], arguments=changes)
    return done(await call.order(order, dry_run=call.body.dry_run))


async def delete_queue(call: Call) -> OrderOutcome:
    """Delete a queue; by force with its messages."""
    name, limits = await call.named_queue(), call.query
    order = Order(AdminAction.DELETE_QUEUE, name, force=limits.force)
    order = order._replace(if_unused=limits.if_unused, if_empty=limits.if_empty)
    return done(await call.order(order, dry_run=limits.dry_run))


ENDPOINTS = (
    Endpoint("GET", API + "/queues", MONITOR, list_queues, QueueList, QueueQuery),
    Endpoint("GET", API + "/dead-letters", MONITOR, list_dead_letters, DeadLetterList, PageQuery),
    Endpoint("GET", QUEUE, MONITOR, show_queue, QueueDetails),
    Endpoint(
        "PUT", QUEUE, ADMIN, create_queue, OrderOutcome, body=QueueCreation, acts=(Act.MAKE_QUEUE,)
    ),
    Endpoint(
        "PATCH",
        QUEUE,
        ADMIN,
        alter_queue,
        OrderOutcome,
        body=QueueAlterationOrder,
        acts=(Act.ALTER_QUEUE,),
    ),
    Endpoint(
        "DELETE",
        QUEUE,
        ADMIN,
        delete_queue,
        OrderOutcome,
        QueueDeletionLimits,
        conflict=409,
        acts=(Act.DELETE_QUEUE,),
    ),
)
