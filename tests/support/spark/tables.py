"""Writing journals, and reading views and `state` back as the oracle's values."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, NamedTuple

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from sparkstore.core import fold
from sparkstore.core.records import ExchangeBindingKey, MessageHeader, Record
from sparkstore.tables import rows
from sparkstore.tables.root import Root
from sparkstore.views import views
from tests.support.histories.histories import Row

HEADER = MessageHeader("amqp-1.0", b"h", priority=5, header_bytes=1, body_bytes=3)
"""A header for the three bytes that most messages here carry."""

Entries = dict[tuple[str, int], tuple[Any, ...]]
Configured = dict[tuple[str | None, str], str]
"""Objects by category and key; without a category, a branch in doubt: what `transactions` says."""
Members = dict[str, tuple[int, int]]
"""Last request and how many refusals, by member."""


class Folded(NamedTuple):
    """What a fold says, in values that all forms of it can be brought to."""

    entries: Entries
    queues: dict[str, str]
    bindings: dict[ExchangeBindingKey, str]
    configured: Configured
    members: Members


def journal(root: Root, records: Sequence[Record], *, first: int = 1, epoch: int = 1) -> int:
    """Commit records in a row to the journal, as the store does; returns the last position."""
    table = rows.to_table(records, first_position=first, epoch=epoch, segment=(first - 1) // 1000)
    write_deltalake(str(root.journal), table, mode="append")
    return first + len(records) - 1


def journal_rows(root: Root, found: Sequence[Row], segment_records: int = 1000) -> None:
    """Commit rows as they are, ghosts too, in one Delta commit."""
    tables = [
        rows.to_table(
            [row.record],
            first_position=row.position,
            epoch=row.epoch,
            segment=(row.position - 1) // segment_records,
        )
        for row in found
    ]
    if tables:
        write_deltalake(str(root.journal), pa.concat_tables(tables), mode="append")


def trim(root: Root, before: int) -> None:
    """Drop journal records before a position, as the store's trimming does."""
    DeltaTable(str(root.journal)).delete(f"position < {before}")


def numbered(records: Sequence[Record], *, first: int = 1, epoch: int = 1) -> list[Row]:
    """Rows for records in a row."""
    return [Row(first + index, epoch, record) for index, record in enumerate(records)]


def expected(state: fold.State) -> Folded:
    """What the views must say, from the oracle."""
    entries = {
        (name, message_id): (
            entry.position,
            entry.at,
            entry.acquired_by,
            entry.delivery_count,
            entry.priority,
            entry.expires_at,
            entry.message_bytes,
            _annotations(entry.detail),
        )
        for name, queue in state.queues.items()
        for message_id, entry in queue.entries.items()
    }
    queues = {name: queue.detail for name, queue in state.queues.items()}
    members = {name: (m.last_request, len(m.refusals)) for name, m in state.members.items()}
    configured: Configured = {**state.configured}
    configured |= {(None, key): _branch(detail) for key, detail in state.prepared.items()}
    return Folded(entries, queues, dict(state.bindings), configured, members)


def _branch(detail: str) -> str:
    """Of a branch in doubt, what the view tells."""
    told = json.loads(detail)
    return f"{told['since_us']} {told.get('count', len(told['operations']))}"


def viewed_entries(spark: SparkSession) -> tuple[Entries, dict[str, str]]:
    """What the views say of entries and queues alone: two of the six queries of `viewed`."""
    return _entries_and_queues(*(spark.sql(query).collect() for query in _QUERIES[:2]))


def _entries_and_queues(
    found: Sequence[Any], queue_rows: Sequence[Any]
) -> tuple[Entries, dict[str, str]]:
    entries = {(row[0], row[1]): tuple(row[2:]) for row in found}
    queues = {row.queue: row.detail for row in queue_rows}
    assert len(entries) == len(found)
    assert len(queues) == len(queue_rows)
    return entries, queues


def viewed(spark: SparkSession) -> Folded:
    """What the views say; a row that is there twice is an error.

    The queries run at the same time: on a few rows each is seconds of planning on one core.
    """
    with ThreadPoolExecutor(len(_QUERIES)) as pool:
        found, queue_rows, binding_rows, configured_rows, member_rows, branches = pool.map(
            lambda query: spark.sql(query).collect(), _QUERIES
        )
    entries, queues = _entries_and_queues(found, queue_rows)
    bindings = {
        ExchangeBindingKey(row.exchange, row.queue, row.binding_key): row.detail
        for row in binding_rows
    }
    configured: Configured = {(row.category, row.key): row.detail for row in configured_rows}
    members = {row.member: (row.last_request, row.refusals) for row in member_rows}
    assert len(bindings) == len(binding_rows)
    assert len(configured) == len(configured_rows)
    configured |= {(None, row.xid): f"{row.since} {row.operations}" for row in branches}
    assert len(members) == len(member_rows)
    for member in member_rows:
        held = [row for row in found if (row.acquired_by or "").startswith(f"{member.member}/")]
        assert member.acquired == len(held)
        assert member.acquired_bytes == sum(row.message_bytes for row in held)
        told = json.loads(configured.get(("sparkstore.member", member.member), "{}"))
        assert member.since_us == told.get("since_us")
    return Folded(entries, queues, bindings, configured, members)


_QUERIES = (
    "SELECT queue, message_id, position, unix_micros(enqueued_at), acquired_by,"
    " delivery_count, priority, unix_micros(expires_at), message_bytes, annotations"
    " FROM queue_messages",
    "SELECT * FROM queues",
    "SELECT * FROM bindings",
    "SELECT * FROM configuration",
    "SELECT *, unix_micros(since) AS since_us FROM members",
    "SELECT xid, unix_micros(since) AS since, operations FROM transactions",
)


VIEWED = ("queue_messages", "queues", "bindings", "configuration", "members", "transactions")
"""The views that `viewed` asks: to register one takes half a second of planning."""


def stored(
    root: Root,
) -> tuple[int, Entries, dict[str, str], dict[ExchangeBindingKey, str], Configured, Members]:
    """What `state` holds, without Spark: P, and what `Folded` says of the fold up to there."""
    found = DeltaTable(str(root.state)).to_pyarrow_table()
    found = found.set_column(
        found.schema.get_field_index("at"), "at", found["at"].cast(pa.int64())
    ).set_column(
        found.schema.get_field_index("expires_at"),
        "expires_at",
        found["expires_at"].cast(pa.int64()),
    )
    parts = {
        part: list(group)
        for part, group in groupby(
            sorted(found.to_pylist(), key=lambda row: row["part"]), key=lambda row: row["part"]
        )
    }
    entries = {
        (row["queue"], row["message_id"]): (
            row["position"],
            row["at"],
            row["acquired_by"],
            row["delivery_count"],
            row["priority"],
            row["expires_at"],
            row["message_bytes"],
            _annotations(row["detail"]),
        )
        for row in parts.get("entry", [])
    }
    assert len(entries) == len(parts.get("entry", []))
    queues, bindings, configured = _wiring(parts.get("wiring", []))
    members = {
        row["member"]: (row["request"], len(json.loads(row["detail"])))
        for row in parts.get("member", [])
    }
    meta = parts.get("meta", [{"position": 0}])
    assert len(meta) == 1
    return meta[0]["position"], entries, queues, bindings, configured, members


def _annotations(detail: str | None) -> dict[str, str] | None:
    """What the detail of an entry says, as the view `queue_messages` tells it: without types."""
    if detail is None:
        return None
    told = json.loads(detail).items()
    return {key: _moment(text) if kind == "timestamp" else text for key, (kind, text) in told}


def _moment(text: str) -> str:
    """A time in ms as Spark writes it, in UTC; far from now it stays a number."""
    ms = int(text)
    if abs(ms) > 253_402_300_799_999:
        return text
    moment = datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    return f"{moment}.{ms % 1000:03d}".rstrip("0").rstrip(".")


def stored_staged(root: Root) -> dict[int, int]:
    """Staged messages in `state`: the position that brought the header, by message id."""
    rows = DeltaTable(str(root.state)).to_pyarrow_table(filters=[("part", "=", "staged")])
    found = {row["message_id"]: row["position"] for row in rows.to_pylist()}
    assert len(found) == rows.num_rows
    assert rows["block"].null_count == rows.num_rows
    return found


def _wiring(
    rows: list[dict[str, Any]],
) -> tuple[dict[str, str], dict[ExchangeBindingKey, str], Configured]:
    """Queues, bindings and configured objects; every row is one of these, or an exchange."""
    queues = {
        row["queue"]: row["detail"]
        for row in rows
        if row["exchange"] is None and row["queue"] is not None
    }
    bindings = {
        ExchangeBindingKey(row["exchange"], row["queue"], row["binding_key"]): row["detail"]
        for row in rows
        if row["exchange"] is not None and row["queue"] is not None
    }
    others = [row for row in rows if row["queue"] is None]
    exchanges = {row["exchange"] for row in others if row["binding_key"] is None}
    configured: Configured = {
        (row["exchange"], row["binding_key"]): (
            _branch(row["detail"]) if row["exchange"] is None else row["detail"]
        )
        for row in others
        if row["binding_key"] is not None
    }
    assert len(rows) == len(queues) + len(bindings) + len(configured) + len(exchanges)
    return queues, bindings, configured


def assert_views_are(spark: SparkSession, root: Root, state: fold.State) -> None:
    """Register plans over Delta, query, compare with the oracle."""
    views.register(spark, root, local_rows=0)
    assert viewed(spark) == expected(state)
