"""Requests about connections of clients, and about the user who asks."""

from __future__ import annotations

from broker_shim.serve.http.bodies import (
    ConnectionList,
    ConnectionRow,
    HolderList,
    HolderRow,
    OrderOutcome,
    UserAnswer,
)
from broker_shim.serve.http.calls import Call, iso_time
from broker_shim.serve.http.operations.history_requests import root_of
from broker_shim.serve.http.queue_requests import done
from broker_shim.serve.http.refusals import HttpRefusal
from sparkstore import __version__
from sparkstore.operations import wire


async def list_connections(call: Call) -> ConnectionList:
    """List a page of the connections, those of members too."""
    said, page = await call.send({"connections": True}), call.query
    rows = said["connections"]
    items = [
        ConnectionRow(**{**row, "connected_at": iso_time(row["connected_at"])})
        for row in rows[page.offset : page.offset + page.limit]
    ]
    silent = said.get("silent", [])
    return ConnectionList(total=len(rows), offset=page.offset, items=items, silent=silent)


async def close_connection(call: Call) -> OrderOutcome:
    """Close a connection; its client may connect again."""
    said = call.names["connection"]
    if not said.isascii() or not said.isdecimal():
        raise HttpRefusal(400, "a connection is a number: GET /api/v1/connections lists them")
    content = {"close": int(said[:18]), "member": call.query.member}
    closed = (await call.send(content))["told"]
    return done({**closed, "connected_at": iso_time(closed["connected_at"])})


async def list_holders(call: Call) -> HolderList:
    """List the messages that somebody holds, with their queues and holders."""
    held = wire.held_of(await call.send({"holders": call.query.limit}))
    items = [
        HolderRow(
            queue=row.queue,
            message=row.message_id,
            holders=row.holders,
            since=None if row.since_us is None else iso_time(row.since_us),
        )
        for row in held.shown
    ]
    return HolderList(items=items, left_out=held.left_out)


async def show_self(call: Call) -> UserAnswer:
    """Tell who asks, and what it may do here."""
    caller = call.caller
    return UserAnswer(
        user=caller.principal.name,
        role=caller.role,
        version=__version__,
        has_history=root_of(call) is not None,
        root_id=call.house.root_id,
    )
