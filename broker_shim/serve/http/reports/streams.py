"""Streams of Spark over this broker's queues, as far as the broker can know of them.

A query that takes messages (`broker_shim.spark_tickets`) and a task of a sink
(`broker_shim.spark_sink`) are members of the store service, so the tables have them. A stream of
events, or a query by SQL, only reads files: nobody hears of it, its offsets are in its checkpoint,
and nothing is kept for it. What the broker can say is where history begins: a stream that had not
come so far is refused.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from broker_shim.serve.http.bodies import Limit, Model
from broker_shim.serve.http.calls import Call
from broker_shim.serve.http.endpoint import API, MONITOR, Endpoint
from broker_shim.serve.http.resources.events import OpenStreams
from broker_shim.serve.http.table_reads import flushed, read_tables
from sparkstore.tables.root import Root

_QUERY = "spark-[0-9a-f]{32}"
_SINK = "spark-sink-([0-9a-f]{8}|[0-9a-f]{32})"
_MEMBERS = """
WITH held AS (
  SELECT
    split_part(acquired_by, '/', 1) AS member,
    TRY_CAST(split_part(acquired_by, '/ticket-', 2) AS BIGINT) AS ticket,
    queue, count(*) AS messages, min(enqueued_at) AS oldest_at
  FROM queue_messages WHERE regexp_full_match(acquired_by, '{query}/ticket-[0-9]+')
  GROUP BY acquired_by, queue
)
SELECT
  member,
  CASE WHEN starts_with(member, 'spark-sink-') THEN 'sink' ELSE 'query' END AS kind,
  since, queue, ticket, coalesce(messages, 0) AS messages, oldest_at, count(*) OVER () AS known
FROM (
  SELECT member, since FROM members WHERE regexp_full_match(member, '{query}|{sink}')
) AS named
FULL JOIN held USING (member)
ORDER BY since DESC NULLS LAST, member, ticket LIMIT {limit}
"""
"""Names are as `ticket_store.member_of` and `spark_sink.member_names` make them, no others."""


class StreamQuery(Model):
    """How many rows are asked for."""

    limit: Limit = 100


class StreamRow(Struct, kw_only=True):
    """A query that takes messages with a ticket that it holds, or a task of a sink.

    `since` is when its newest start connected, where the tables have that. A query that has settled
    all it took may be missing: nothing is kept of it.
    """

    member: str
    kind: Literal["query", "sink"]
    since: str | None
    queue: str | None
    ticket: int | None
    messages: int
    oldest_at: str | None


class StreamList(Struct, kw_only=True):
    """The streams that are known, the newest first; `left_out` more rows are.

    `event_streams` are those of `GET /api/v1/events` that are open here. Streams of events in Spark
    are not known: they read files. One whose position is below `history_begins` is refused.
    """

    items: list[StreamRow]
    left_out: int
    event_streams: int
    history_begins: int


async def list_streams(call: Call) -> StreamList:
    """List the streams that take from queues or write to them, and where history begins."""
    root, limit = await flushed(call), call.query.limit
    (rows, left_out), begin = await read_tables(
        call, lambda: (streams_of(root, limit), _begin(root))
    )
    return StreamList(
        items=[StreamRow(**row) for row in rows],
        left_out=left_out,
        event_streams=OpenStreams.events,
        history_begins=begin,
    )


def streams_of(root: Root, limit: int) -> tuple[list[dict[str, Any]], int]:
    """Return the rows of `StreamRow`, as the tables have them, and how many more there are.

    Raises:
        StoreError: They cannot be read.
    """
    from sparkstore.embedded.query import query  # noqa: PLC0415  # it loads duckdb

    text = _MEMBERS.format(limit=limit, query=_QUERY, sink=_SINK)
    rows = query(root, text).to_pylist()
    known = [row.pop("known") for row in rows]
    times = ({name: _time(row[name]) for name in ("since", "oldest_at")} for row in rows)
    items = [{**row, **shown} for row, shown in zip(rows, times, strict=True)]
    return items, known[0] - len(known) if known else 0


def _time(moment: Any) -> str | None:
    return None if moment is None else moment.isoformat(timespec="milliseconds")


def _begin(root: Root) -> int:
    from sparkstore.recovery.recovery import read_state  # noqa: PLC0415  # it loads deltalake

    starts = read_state(root, parts=("meta",))["history_start"].to_pylist()
    return max((start for start in starts if start), default=1)


ENDPOINTS = (Endpoint("GET", API + "/streams", MONITOR, list_streams, StreamList, StreamQuery),)
