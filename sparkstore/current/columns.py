"""The rows of `current`: columns of the views `queues` and `queue_messages`, from a fold. No I/O.

Not there are the columns that only content has (`header`, `body`: read them from `history` and
`journal` by message id), those of dead letters (they are in `annotations`), and those of queues
that would be wrong a second later (`queue_columns`). Queues are counted by the query of the view
itself, in DuckDB; of messages a test compares both, type by type.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from sparkstore.core.fold import QueueState
from sparkstore.errors import CorruptData
from sparkstore.queue_columns import Road, columns_of
from sparkstore.sql.dialect import queues_text
from sparkstore.sql.duckdb_connection import connected
from sparkstore.tables.schema import BLOCK_IDS, HEADER_FIELDS

_TIME = pa.timestamp("us", tz="UTC")
_TEXTS = pa.map_(pa.string(), pa.string())
_OF_ENTRIES = {"header", "priority", "expires_at", "properties"}

_TYPES = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "timestamp": _TIME,
    "map<string,bigint>": pa.map_(pa.string(), pa.int64()),
}
"""Arrow's type for each that a column of queues may have, by Spark's name."""
QUEUES = pa.schema(
    [
        *(
            pa.field(column.name, _TYPES[column.kind], nullable=column.may_be_null)
            for column in columns_of(Road.CURRENT)
        ),
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
    """Write the entries of a fold as rows of `NARROW`, by block, and by position in it."""
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
    defined: Mapping[str, QueueState], entries: pa.Table, position: int, as_of: datetime
) -> pa.Table:
    """Rows of `QUEUES`, by name: of queues and of the entries of a fold, by the view's own query.

    Raises:
        CorruptData: An entry is on a queue that is not there.
    """
    unknown = sorted({*pc.unique(entries["queue"]).to_pylist()} - {*defined})
    if unknown:
        message = f"entries are on queue {unknown[0]!r}, which does not exist"
        raise CorruptData(f"{message}: run sparkstore verify")
    details = [queue.detail for queue in defined.values()]
    names = pa.array([*defined], pa.string())
    wiring = {"queue": names, "exchange": pa.nulls(len(names), pa.string()), "detail": details}
    fresh = [pa.scalar(position, pa.int64()), pa.scalar(as_of, _TIME)]
    with connected() as connection:
        connection.register("entries", entries)
        connection.register("wiring", pa.table(wiring))
        query = queues_text([column.name for column in columns_of(Road.CURRENT)])
        rows = connection.sql(f"{query} ORDER BY queue").to_arrow_table()
    for field, value in zip(QUEUES.names[-2:], fresh, strict=True):
        rows = rows.append_column(field, pa.repeat(value, rows.num_rows))
    return rows.cast(QUEUES)


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
