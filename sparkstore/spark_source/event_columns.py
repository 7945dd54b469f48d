"""The columns of a stream of events: those of a record, and the content of its message."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from sparkstore.content.reader import ContentReader
from sparkstore.core.records import Kind
from sparkstore.errors import InvalidRequest
from sparkstore.spark_source.columns import check_columns
from sparkstore.spark_source.stream_options import EventStreamSettings, stream_options
from sparkstore.tables.root import Root
from sparkstore.tables.schema import HEADER_FIELDS, ROW

_BYTES = "message_bytes"
_SIZES = ("header_bytes", "body_bytes")
_USUAL = (
    "position", "at", "kind", "queue", "message_id", "holder", "delivery_count", "transaction",
    "detail", _BYTES, "epoch",
)  # fmt: skip
"""The columns of a stream that names none: those of the view `message_history`."""
_OF_TABLES = "segment"
"""Where a row is stored, which is no part of the event."""
_OF_ENTRIES = {"durable", "priority", "expires_at", *_SIZES}
"""Columns of a header that each `enqueued` has, also that of a message's second queue."""
_CONTENT = ({field.name for field in HEADER_FIELDS} - _OF_ENTRIES) | {"body"}
_NEEDED = ("kind", "message_id", "protocol", "body_bytes")
"""Columns that say whether a record lacks the content of its message."""


def event_schema(options: Mapping[str, str]) -> StructType:
    """Return the columns of a stream without `.schema(…)`.

    Raises:
        InvalidRequest: An option is wrong, or a column is not there.
    """
    settings = stream_options(options)
    columns = _all_columns()
    names = columns.names if settings.columns == ("*",) else settings.columns or _USUAL
    check_event_columns(names)
    return StructType([columns[name] for name in names])


def check_event_columns(names: Iterable[str]) -> None:
    """Refuse a column that no event has.

    Raises:
        InvalidRequest: One is not there; the message lists those that are.
    """
    check_columns([*names], _all_columns(), "of events")


def has_content(names: Iterable[str]) -> bool:
    """Return whether some of the columns are of a message and not of an event."""
    return not _CONTENT.isdisjoint(names)


def stored_columns(names: Iterable[str]) -> list[str]:
    """Return the columns of the tables that the columns of a stream are made of."""
    names = [*names]
    needed = [*names, *(_SIZES if _BYTES in names else ())]
    if has_content(names):
        needed += _NEEDED
    return [name for name in dict.fromkeys(needed) if name != _BYTES]


def with_content(root: Root, rows: pa.Table, settings: EventStreamSettings) -> pa.Table:
    """Add the content of messages to rows that enqueue them and do not bring it.

    A message on several queues is brought by the first, and one in pieces by its pieces.

    Raises:
        InvalidRequest: Content is gone, and the stream fails on that.
        CorruptData, Unavailable: It cannot be read.
    """
    wanted = [name for name in rows.column_names if name in _CONTENT]
    if not wanted:
        return rows
    has_body = "body" in rows.column_names
    is_there = rows["protocol"].is_valid()
    if has_body:
        is_there = pc.and_(is_there, rows["body"].is_valid())
    lacks = pc.and_not(pc.equal(rows["kind"], Kind.ENQUEUED.column), is_there)
    if not pc.any(lacks).as_py():
        return rows
    reader = ContentReader(root)
    filled = [
        row | _content(reader, row["message_id"], settings, has_body=has_body)
        for row in rows.filter(lacks).to_pylist()
    ]
    names = rows.column_names
    added = [{name: row[name] for name in names} for row in filled]
    parts = [rows.filter(pc.invert(lacks)), pa.Table.from_pylist(added, rows.schema)]
    return pa.concat_tables(parts).sort_by("position")


def with_sizes(rows: pa.Table) -> pa.Table:
    """Add the size of a message, as the view `message_history` has it."""
    return rows.append_column(_BYTES, pc.add(rows["header_bytes"], rows["body_bytes"]))


def _content(
    reader: ContentReader, message_id: int, settings: EventStreamSettings, *, has_body: bool
) -> dict[str, object]:
    try:
        if has_body:
            header, body = reader.read(message_id)
            return {**header._asdict(), "body": body}
        return reader.headers([message_id])[message_id]._asdict()
    except (InvalidRequest, KeyError) as reason:
        if not settings.fails_on_loss:
            return {}
        message = f"the content of message {message_id} is gone, history no longer has it: set"
        raise InvalidRequest(f"{message} failOnDataLoss = false to read it as null") from reason


def _all_columns() -> StructType:
    fields = [field for field in ROW if field.name != _OF_TABLES]
    fields.append(pa.field(_BYTES, pa.int64()))
    nullable = [field.with_nullable(nullable=True) for field in fields]
    columns: StructType = from_arrow_schema(pa.schema(nullable))
    return columns
