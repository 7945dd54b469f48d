"""Headers of many messages at once, read from journal and history by columns. No body moves.

For a broker that starts and wants every header, and for tables of messages (`current`): a read by
message id (`content.reader`) costs a lookup each, this one a pass over the files, whose statistics
leave out what cannot hold a wanted message.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from sparkstore.core.records import MessageHeader
from sparkstore.errors import CorruptData
from sparkstore.recovery.recorded_rows import read_again, rows_now
from sparkstore.tables.root import Root
from sparkstore.tables.schema import HEADER_FIELDS, ROW
from sparkstore.tables.snapshot import columns_of

_IDS = 200_000
"""Message ids looked for in one pass: their headers are in memory together."""
_OF_RECORDS = ["position", "epoch", "kind"]
"""What tells whether a row counts."""
_ROWS = columns_of(ROW, ["message_id", "protocol", "header", "body_bytes"])
TYPED = pa.schema(
    [ROW.field("message_id"), *(field for field in HEADER_FIELDS if field.name != "header")]
)
"""Columns of `typed_headers`."""


class Headers(NamedTuple):
    """Columns of some messages.

    Attributes:
        message_ids: Ids of the messages, each larger than the one before.
        header_lengths: In bytes, -1 for a message without one.
        headers: One after the other.
        body_bytes: Length of each content.
        protocols: One for each; or a single one, of all.
    """

    message_ids: array[int]
    header_lengths: array[int]
    headers: bytes
    body_bytes: array[int]
    protocols: list[str]


def message_headers(
    root: Root, message_ids: Sequence[int], volatile: Mapping[int, MessageHeader], count: int
) -> Iterator[Headers]:
    """Headers of messages as their protocols encode them, `count` messages at a time.

    Args:
        root: Where; all that is wanted of it must be in a Delta commit.
        message_ids: Ids of the messages, each larger than the one before.
        volatile: Headers of those that are not in the root.
        count: Messages in one part, but for the last of some.

    Raises:
        CorruptData: The header of a message is in neither table.
        Unavailable: Storage did not answer, again and again.
    """
    for start in range(0, len(message_ids), _IDS):
        wanted = message_ids[start : start + _IDS]
        kept = [number for number in wanted if number not in volatile] if volatile else wanted
        rows = _header_rows(root, kept, _ROWS)
        if len(kept) < len(wanted):
            others = {n: volatile[n] for n in wanted if n in volatile}
            rows = pa.concat_tables([rows, _table_of(others)]).sort_by("message_id")
        for first in range(0, rows.num_rows, count):
            yield _columns(rows.slice(first, count).combine_chunks())


def typed_headers(root: Root, message_ids: Sequence[int]) -> pa.Table:
    """The columns `TYPED` of messages, by message id: all of their headers but the encoded form.

    Args:
        root: Where; all that is wanted of it must be in a Delta commit.
        message_ids: Ids of the messages, each larger than the one before.

    Raises:
        CorruptData: The header of a message is in neither table.
        Unavailable: Storage did not answer, again and again.
    """
    return _header_rows(root, message_ids, TYPED)


def _header_rows(root: Root, wanted: Sequence[int], columns: pa.Schema) -> pa.Table:
    """Read messages' headers; look again for those that a job or a merge moved meanwhile."""
    if not wanted:
        return columns.empty_table()
    between, message_id = (wanted[0], wanted[-1]), ds.field("message_id")
    where = (
        (message_id >= between[0]) & (message_id <= between[1]) & ds.field("protocol").is_valid()
    )
    read = columns_of(ROW, [*_OF_RECORDS, *columns.names])
    ids = pa.array(wanted, pa.int64())

    def rows_of_all() -> pa.Table:
        rows = rows_now(root, read, where, between).select(columns.names)
        rows = _once(rows.filter(pc.is_in(rows["message_id"], ids)).sort_by("message_id"))
        if rows.num_rows < len(wanted):
            present = set(rows["message_id"].to_pylist())
            missing = next(number for number in wanted if number not in present)
            message = f"the header of message {missing} is in neither table: run sparkstore verify"
            raise CorruptData(message)
        return rows

    return read_again(rows_of_all)


def _once(rows: pa.Table) -> pa.Table:
    """Keep one row for each message id, by which they are sorted: a staged one has two."""
    if rows.num_rows < 2:
        return rows
    ids = rows["message_id"].combine_chunks()
    is_new = pc.not_equal(ids.slice(1), ids.slice(0, len(ids) - 1))
    return rows.filter(pa.concat_arrays([pa.array([True]), is_new]))


def _table_of(headers: Mapping[int, MessageHeader]) -> pa.Table:
    rows = [
        (number, header.protocol or "raw", header.header, header.body_bytes)
        for number, header in headers.items()
    ]
    return pa.table([pa.array(column) for column in zip(*rows, strict=True)], schema=_ROWS)


def _columns(rows: pa.Table) -> Headers:
    ids, protocols, headers, body_bytes = (rows[name].combine_chunks() for name in _ROWS.names)
    lengths = pc.fill_null(pc.cast(pc.binary_length(headers), pa.int32()), -1)
    kinds = pc.unique(protocols).to_pylist()
    return Headers(
        _values("q", ids),
        _values("i", lengths),
        b"".join(header for header in headers.to_pylist() if header is not None),
        _values("q", pc.fill_null(body_bytes, 0)),
        kinds if len(kinds) == 1 else protocols.to_pylist(),
    )


def _values(kind: str, column: pa.Array) -> array[int]:
    """The values of a column without nulls."""
    size = array(kind).itemsize
    buffer = column.buffers()[1]
    start = column.offset * size
    values = array(kind)
    values.frombytes(memoryview(buffer)[start : start + len(column) * size])
    return values
