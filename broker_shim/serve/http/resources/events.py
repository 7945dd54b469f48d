"""Events of messages as they happen: server-sent events, each with the position of its record.

The stream reads the tables, as SQL does: an event is sent once it is in a Delta commit. Its id is
its position, so a client that comes again with `Last-Event-ID` misses nothing and sees nothing
twice, whichever broker it asks after a restart. Nothing is kept for a reader: what it has not taken
is still in the tables. So a slow reader costs a place and no memory, and one that takes nothing for
`Patience.read_s` is cut off.

A stream ends after `MOST_S`: its client comes again, and is asked for its login then. Events of
queues that the user may not receive from are left out, and so are those of content, which name no
queue.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from broker_shim.broker.wiring.address import QueueNode
from broker_shim.security.rules.rights import RIGHTS, Act
from broker_shim.serve.http.bodies import Count, Model
from broker_shim.serve.http.calls import Call, iso_time
from broker_shim.serve.http.endpoint import API, MONITOR, Endpoint
from broker_shim.serve.http.port.exchange import Response
from broker_shim.serve.http.refusals import HttpRefusal
from broker_shim.serve.http.table_reads import flushed
from broker_shim.sockets.authorization import denied
from sparkstore.embedded.message_history import EVENTS
from sparkstore.tables.delta_files import newest_version
from sparkstore.tables.root import Root

MOST_STREAMS = 32
MOST_S = 900.0
_LOOK_S, _ALIVE_S = 0.25, 15.0
_PART = 500
"""Events that are sent at once: with the longest annotations they are 8 MiB, without any 150 KB."""
_ALIVE = b": nothing new\n\n"


class EventQuery(Model):
    """The position after which events are asked for, by default now; of one queue, or of all."""

    after: Count | None = None
    queue: str | None = None


class OpenStreams:
    """Counts the streams of this process that are open; on the thread of the HTTP port.

    Attributes:
        count: All, exports too.
        events: Those of events.
    """

    count = events = 0


async def counted(
    parts: AsyncGenerator[bytes, None], events: int = 0
) -> AsyncGenerator[bytes, None]:
    """Make a stream's parts, and count it while they are made; `events`: 1 for a stream of them."""
    OpenStreams.count += 1
    OpenStreams.events += events
    try:
        async with aclosing(parts):
            async for part in parts:
                yield part
    finally:
        OpenStreams.count -= 1
        OpenStreams.events -= events


async def stream_events(call: Call) -> Response:
    """Stream the events of messages after a position, as server-sent events."""
    from sparkstore.recovery.point_in_time import latest_position  # noqa: PLC0415  # loads deltalake

    check_streams()
    root = await flushed(call)
    last = await asyncio.to_thread(latest_position, root)
    after = _begin(call, last)
    if after > last:
        text = f"the newest event is {last}, and not {after}: begin anew, without Last-Event-ID"
        raise HttpRefusal(409, text)
    call.audit_read("events", call.query.queue, after=after)
    return Response(kind="text/event-stream", parts=counted(_parts(call, root, after), events=1))


def check_streams() -> None:
    """Refuse a stream while too many are open. Raises HttpRefusal."""
    if OpenStreams.count >= MOST_STREAMS:
        text = f"{MOST_STREAMS} streams are open: end one, or try again later"
        raise HttpRefusal(429, text, {"Retry-After": "10"})


def _begin(call: Call, last: int) -> int:
    """Return the position after which a stream begins: as its client says, else now."""
    given = call.headers.get("last-event-id")
    if given is None:
        return last if call.query.after is None else int(call.query.after)
    if not given.isascii() or not given.isdecimal() or len(given) > len(str(1 << 62)):
        raise HttpRefusal(400, f"Last-Event-ID {given!r:.40} is no position: leave it out")
    return int(given)


async def _parts(call: Call, root: Root, after: int) -> AsyncGenerator[bytes, None]:
    ends_at = time.monotonic() + MOST_S
    sent_at, seen = time.monotonic(), -1
    yield b"retry: 2000\n\n"
    while time.monotonic() < ends_at:
        version = newest_version(root.journal)
        rows = [] if version == seen else await asyncio.to_thread(_read, root, after, call.query)
        if len(rows) < _PART:
            seen = version
        if rows:
            after = rows[-1]["position"]
            allowed = await call.read(lambda rows=rows: _allowed(call, rows))  # type: ignore[misc]
            text = "".join(_event(row) for row in rows if row["queue"] in allowed)
            yield text.encode() or f"id: {after}\n\n".encode()
            sent_at = time.monotonic()
        elif time.monotonic() - sent_at >= _ALIVE_S:
            yield _ALIVE
            sent_at = time.monotonic()
        else:
            await asyncio.sleep(_LOOK_S)
            yield b""


def _read(root: Root, after: int, asked: Any) -> list[dict[str, Any]]:
    from sparkstore.embedded.query import query  # noqa: PLC0415  # it loads duckdb

    chosen = ""
    if asked.queue is not None:
        name = asked.queue.replace("'", "''")
        chosen = f" AND queue = '{name}'"
    statement = f"{EVENTS} WHERE position > {after}{chosen} ORDER BY position LIMIT {_PART}"
    rows: list[dict[str, Any]] = query(root, statement).to_pylist()
    return rows


def _allowed(call: Call, rows: list[dict[str, Any]]) -> set[str]:
    """Return the queues of events that the user may see. On the loop's thread."""
    right = RIGHTS[Act.RECEIVE]
    queues = {row["queue"] for row in rows if row["queue"] is not None}
    return {name for name in queues if denied(call.caller, right, QueueNode(name)) is None}


def _event(row: dict[str, Any]) -> str:
    detail = row["detail"]
    event = {
        **row,
        "at": iso_time(row["at"]),
        "detail": None if detail is None else json.loads(detail),
    }
    return f"id: {row['position']}\nevent: {row['kind']}\ndata: {json.dumps(event)}\n\n"


ENDPOINTS = (
    Endpoint("GET", API + "/events", MONITOR, stream_events, query=EventQuery, acts=(Act.RECEIVE,)),
)
