"""Write messages to a file or a stream: header, properties, body; the store is not touched.

Content is read by message id, in the order of the queue, and written as it comes.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sparkstore.cli.output import body_as_json, time_of
from sparkstore.content.reader import ContentReader
from sparkstore.core.records import MessageHeader
from sparkstore.tables.schema import HEADER_FIELDS

_MEMBERS = {"header", "properties", "protocol"}
_TIMES = {"created_at", "expires_at"}
_ROW_GROUP_BYTES = 32 << 20
_ROW_GROUP_ROWS = 10_000

SCHEMA = pa.schema(
    [pa.field("message_id", pa.int64()), *HEADER_FIELDS, pa.field("body", pa.binary())]
)
"""Columns of an exported Parquet file."""

Content = tuple[int, MessageHeader, bytes]


def contents(reader: ContentReader, message_ids: Iterable[int]) -> Iterator[Content]:
    """Message id, header and body of each.

    Raises:
        CorruptData: The content of one is not whole.
        StoreError: It cannot be read.
    """
    for message_id in message_ids:
        header, body = reader.read(message_id)
        yield message_id, header, body


def as_json(found: Iterable[Content]) -> Iterator[dict[str, Any]]:
    """An object for each message: what is UTF-8 as text, other bytes in base64."""
    for message_id, header, body in found:
        typed = {
            name: time_of(value) if name in _TIMES else value
            for name, value in header._asdict().items()
            if name not in _MEMBERS and value is not None
        }
        yield {
            "message_id": message_id,
            "protocol": header.protocol,
            "header": typed,
            "header_base64": b64encode(header.header or b"").decode("ascii"),
            "properties": dict(header.properties),
            **body_as_json(body),
        }


def write_parquet(found: Iterable[Content], path: Path) -> int:
    """Write a Parquet file; it is there when it is whole. Returns the number of messages.

    Raises:
        OSError: It cannot be written.
    """
    scratch = path.with_name(path.name + ".new")
    count = 0
    try:
        with pq.ParquetWriter(scratch, SCHEMA) as writer:
            for rows in _row_groups(found):
                writer.write_table(pa.Table.from_pylist(rows, SCHEMA))
                count += len(rows)
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)
    return count


def _row_groups(found: Iterable[Content]) -> Iterator[list[dict[str, Any]]]:
    rows: list[dict[str, Any]] = []
    size = 0
    for message_id, header, body in found:
        rows.append({"message_id": message_id, **header._asdict(), "body": body})
        size += len(body) + header.header_bytes
        if size >= _ROW_GROUP_BYTES or len(rows) == _ROW_GROUP_ROWS:
            yield rows
            rows, size = [], 0
    if rows:
        yield rows
