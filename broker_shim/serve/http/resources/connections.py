"""Connections of clients, the messages that somebody holds, and the user who asks."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct, defstruct

from broker_shim.serve.http.bodies import Limit, Model, OrderOutcome, PageQuery, done
from broker_shim.serve.http.calls import Call, iso_time
from broker_shim.serve.http.endpoint import API, MONITOR, OPERATOR, Endpoint
from broker_shim.serve.http.refusals import HttpRefusal
from broker_shim.serve.http.table_reads import root_of
from sparkstore import __version__
from sparkstore.control.connection_columns import COLUMNS, LINK_COLUMNS, ConnectionColumn, row_of


def _row_type(name: str, columns: tuple[ConnectionColumn, ...], text: str) -> Any:
    fields = [
        (column.name, Annotated[column.kind, Meta(description=column.text)]) for column in columns
    ]
    return defstruct(name, fields, kw_only=True, module=__name__, namespace={"__doc__": text})


if TYPE_CHECKING:
    ConnectionRow = Struct
    LinkRow = Struct
else:
    ConnectionRow = _row_type("ConnectionRow", COLUMNS, "A client that is connected.")
    LinkRow = _row_type("LinkRow", LINK_COLUMNS, "A link of a connection, or a subscription.")


_NUMBERS = [column.name for column in COLUMNS if column.kind in {int, int | None, float | None}]


class ConnectionList(Struct, kw_only=True):
    """A page of connections; `silent` are members that did not answer."""

    total: int
    offset: int
    items: list[ConnectionRow]
    silent: list[str]


class ConnectionQuery(PageQuery):
    """The part of the connections that is asked for; `sort` as for queues, such as `-links`."""

    sort: str = ""


class LinkList(Struct, kw_only=True):
    """The links of a connection; of AMQP 0-10 its subscriptions, as it keeps no other.

    `left_out` more are.
    """

    items: list[LinkRow]
    left_out: int


class ConnectionPlace(Model):
    """The member that has a connection; none: this broker."""

    member: str | None = None


class LinkQuery(ConnectionPlace):
    """The member that has a connection, and how many of its links are asked for."""

    limit: Limit = 1000


class HolderQuery(Model):
    """How many held messages are to be told."""

    limit: Annotated[int, Meta(ge=1)] = 1000


class HolderRow(Struct, kw_only=True):
    """A message that somebody holds; `since`: its holder is there, where that is known."""

    queue: str
    message: int
    holders: list[str]
    since: str | None


class NotDurableCounts(Struct, kw_only=True):
    """The messages of each queue that end with this process; a queue without any is left out."""

    queues: dict[str, int]


class HolderList(Struct, kw_only=True):
    """The messages that are held; `left_out` more are."""

    items: list[HolderRow]
    left_out: int


class UserAnswer(Struct, kw_only=True):
    """The user who asks, the highest of its roles, the release of the broker, and its root."""

    user: str
    role: str
    version: str
    has_history: bool
    root_id: str | None


async def list_connections(call: Call) -> ConnectionList:
    """List a page of the connections, those of members too."""
    calls, page = call.served.calls, call.query
    rows, silent = await calls.wait(calls.turns.connections.rows)
    if page.sort:
        rows = _sorted(rows, page.sort)
    items = [
        ConnectionRow(**{**row_of(row), "connected_at": iso_time(row["connected_at"])})
        for row in rows[page.offset : page.offset + page.limit]
    ]
    return ConnectionList(total=len(rows), offset=page.offset, items=items, silent=silent)


def _sorted(rows: list[dict[str, Any]], sort: str) -> list[dict[str, Any]]:
    column = sort.removeprefix("-")
    if column not in _NUMBERS:
        raise HttpRefusal(400, f"query: sort is one of {', '.join(_NUMBERS)}, or - before it")
    return sorted(rows, key=lambda row: row.get(column) or 0, reverse=sort.startswith("-"))


async def list_links(call: Call) -> LinkList:
    """List the links of a connection, with credit and what is unsettled."""
    calls, query = call.served.calls, call.query
    ask = partial(calls.turns.connections.links, _number(call), query.member, query.limit)
    links = await calls.wait(ask)
    items = [LinkRow(**row_of(row, LINK_COLUMNS)) for row in links.rows]
    return LinkList(items=items, left_out=links.left_out)


def _number(call: Call) -> int:
    number = call.names["connection"]
    if not number.isascii() or not number.isdecimal():
        raise HttpRefusal(400, "a connection is a number: GET /api/v1/connections lists them")
    return int(number[:18])


async def close_connection(call: Call) -> OrderOutcome:
    """Close a connection; its client may connect again."""
    calls, caller = call.served.calls, call.caller
    closed = await calls.wait(
        partial(
            calls.turns.connections.close,
            _number(call),
            call.query.member,
            (caller.peer, caller.user),
        )
    )
    return done({**closed, "connected_at": iso_time(closed["connected_at"])})


async def list_holders(call: Call) -> HolderList:
    """List the messages that somebody holds, with their queues and holders."""
    held = await call.read(partial(call.served.calls.turns.held, call.query.limit))
    items = [
        HolderRow(
            queue=row.queue,
            message=row.message_id,
            holders=row.holders,
            since=None if row.since_us is None else iso_time(row.since_us, "microseconds"),
        )
        for row in held.shown
    ]
    return HolderList(items=items, left_out=held.left_out)


async def count_not_durable(call: Call) -> NotDurableCounts:
    """Count the messages of each queue that are in memory only."""
    return NotDurableCounts(queues=await call.read(call.served.calls.turns.not_durable))


async def show_self(call: Call) -> UserAnswer:
    """Tell who asks, and what it may do here."""
    caller = call.caller
    return UserAnswer(
        user=caller.principal.name,
        role=caller.role,
        version=__version__,
        has_history=root_of(call) is not None,
        root_id=call.served.root_id,
    )


ENDPOINTS = (
    Endpoint("GET", API + "/self", MONITOR, show_self, UserAnswer, needs_broker=False),
    Endpoint(
        "GET",
        API + "/connections",
        MONITOR,
        list_connections,
        ConnectionList,
        ConnectionQuery,
        needs_broker=False,
    ),
    Endpoint(
        "GET",
        API + "/connections/{connection}/links",
        MONITOR,
        list_links,
        LinkList,
        LinkQuery,
        conflict=404,
        needs_broker=False,
    ),
    Endpoint(
        "DELETE",
        API + "/connections/{connection}",
        OPERATOR,
        close_connection,
        OrderOutcome,
        ConnectionPlace,
        conflict=404,
        needs_broker=False,
    ),
    Endpoint(
        "GET", API + "/holders", MONITOR, list_holders, HolderList, HolderQuery, needs_broker=False
    ),
    Endpoint(
        "GET",
        API + "/not-durable",
        MONITOR,
        count_not_durable,
        NotDurableCounts,
        needs_broker=False,
    ),
)
