"""The rows of `current`: columns of the views `queues` and `queue_messages`, from a fold. No I/O.

Not there are the columns that only content has (`header`, `body`: read them from `history` and
`journal` by message id), those of dead letters (they are in `annotations`), `delayed` and
`oldest_age_s`, which would be wrong a second later. What is there is
what the view says, type by type; a test compares them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from sparkstore.core.fold import QueueState
from sparkstore.errors import CorruptData
from sparkstore.tables.schema import BLOCK_IDS, HEADER_FIELDS

_TIME = pa.timestamp("us", tz="UTC")
_TEXTS = pa.map_(pa.string(), pa.string())
_OF_ENTRIES = {"header", "priority", "expires_at", "properties"}

QUEUES = pa.schema(
    [
        pa.field("queue", pa.string(), nullable=False),
        pa.field("depth", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("acquired", pa.int64(), nullable=False),
        pa.field("acquired_by", pa.map_(pa.string(), pa.int64())),
        pa.field("oldest_at", _TIME),
        pa.field("detail", pa.string()),
        pa.field("as_of_position", pa.int64(), nullable=False),
        pa.field("as_of", _TIME, nullable=False),
    ]
)
"""A row of `current/queues`."""

NARROW = pa.schema(
    [
        pa.field("queue", pa.string(), nullable=False),
        pa.field("message_id", pa.int64(), nullable=False),
        pa.field("position", pa.int64(), nullable=False),
        pa.field("enqueued_at", _TIME),
        pa.field("acquired_by", pa.string()),
        pa.field("delivery_count", pa.int32()),
        pa.field("priority", pa.int32()),
        pa.field("expires_at", _TIME),
        pa.field("message_bytes", pa.int64()),
        pa.field("annotations", _TEXTS),
    ]
)
"""What an entry says. The rest of a row is its message's, and a message is never changed."""

MESSAGES = pa.schema(
    [
        *(field for field in NARROW if field.name != "annotations"),
        *(field for field in HEADER_FIELDS if field.name not in _OF_ENTRIES),
        pa.field("properties", _TEXTS),
        pa.field("annotations", _TEXTS),
        pa.field("block", pa.int64(), nullable=False),
    ]
)
"""A row of `current/queue_messages`; partitioned by `block`, a range of message ids."""


def narrow(entries: pa.Table) -> pa.Table:
    """`NARROW` and `block` of the entries of a fold, by block, and by position in it."""
    columns = {
        **{name: entries[name] for name in NARROW.names if name in entries.column_names},
        "enqueued_at": entries["at"],
        "annotations": _annotations(entries["detail"]),
        "block": pc.divide(entries["message_id"], pa.scalar(BLOCK_IDS, pa.int64())),
    }
    schema = NARROW.append(MESSAGES.field("block"))
    table = pa.table([columns[name] for name in schema.names], schema=schema)
    return table.sort_by([("block", "ascending"), ("position", "ascending")])


def blocks_of(rows: pa.Table) -> dict[int, pa.Table]:
    """The part of each block, of rows that `narrow` made."""
    counts = pc.value_counts(rows["block"])
    parts, start = dict[int, pa.Table](), 0
    for block, count in zip(*(part.to_pylist() for part in counts.flatten()), strict=True):
        parts[block] = rows.slice(start, count)
        start += count
    return parts


def messages(rows: pa.Table, headers: pa.Table) -> pa.Table:
    """Rows of `MESSAGES`: those of `narrow`, with the typed headers of their messages."""
    place = pc.index_in(rows["message_id"], headers["message_id"].combine_chunks())
    of_rows = headers.select([field.name for field in _MESSAGE_FIELDS]).take(place)
    for field in _MESSAGE_FIELDS:
        rows = rows.append_column(field, of_rows[field.name])
    return rows.select(MESSAGES.names).cast(MESSAGES)


_MESSAGE_FIELDS = [field for field in MESSAGES if field.name not in {*NARROW.names, "block"}]


def queues(
    defined: Mapping[str, QueueState], rows: pa.Table, position: int, as_of: datetime
) -> pa.Table:
    """Rows of `QUEUES`, by name: of queues and of what `narrow` made of their entries.

    Raises:
        CorruptData: An entry is on a queue that is not there.
    """
    held = _held(rows)
    unknown = sorted({*held} - {*defined})
    if unknown:
        message = f"entries are on queue {unknown[0]!r}, which does not exist"
        raise CorruptData(f"{message}: run sparkstore verify")
    empty = {"depth": 0, "bytes": 0, "acquired": 0, "acquired_by": [], "oldest_at": None}
    fresh = {"as_of_position": position, "as_of": as_of}
    rows = [
        {"queue": name, **(held.get(name) or empty), "detail": queue.detail, **fresh}
        for name, queue in sorted(defined.items())
    ]
    return pa.Table.from_pylist(rows, QUEUES)


def _held(rows: pa.Table) -> dict[str, dict[str, object]]:
    """Depth, bytes, holders and age of each queue that has messages."""
    by_holder = rows.group_by(["queue", "acquired_by"]).aggregate(
        [("position", "count"), ("message_bytes", "sum"), ("enqueued_at", "min")]
    )
    parts: dict[str, list[Mapping[str, object]]] = {}
    for row in by_holder.to_pylist():
        parts.setdefault(row["queue"], []).append(row)
    return {name: _queue_row(part) for name, part in parts.items()}


def _queue_row(parts: Iterable[Mapping[str, object]]) -> dict[str, object]:
    depth = size = acquired = 0
    holders: list[tuple[object, object]] = []
    oldest: list[datetime] = []
    for part in parts:
        depth += int(str(part["position_count"]))
        size += int(str(part["message_bytes_sum"] or 0))
        if isinstance(part["enqueued_at_min"], datetime):
            oldest.append(part["enqueued_at_min"])
        if part["acquired_by"] is not None:
            acquired += int(str(part["position_count"]))
            holders.append((part["acquired_by"], part["position_count"]))
    return {
        "depth": depth,
        "bytes": size,
        "acquired": acquired,
        "acquired_by": sorted(holders, key=str),
        "oldest_at": min(oldest, default=None),
    }


def _annotations(details: pa.ChunkedArray) -> pa.ChunkedArray:
    """Annotations as text, each of the few different details looked at once."""
    encoded = details.combine_chunks().dictionary_encode()
    texts = pa.array([_texts(detail) for detail in encoded.dictionary.to_pylist()], _TEXTS)
    return pa.chunked_array([texts.take(encoded.indices)], _TEXTS)


def _texts(detail: str) -> list[tuple[str, str]]:
    """Return annotations as the view shows them: without types, a time as Spark writes it."""
    return [
        (key, _moment(text) if kind == "timestamp" and _NEAR.fullmatch(text) else text)
        for key, (kind, text) in json.loads(detail).items()
    ]


_NEAR = re.compile("[0-9]{1,14}")
"""Milliseconds that are a time of some thousand years; others stay a number."""


def _moment(text: str) -> str:
    seconds, ms = divmod(int(text), 1000)
    moment = f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"
    return f"{moment}.{ms:03d}".rstrip("0").rstrip(".") if ms else moment
