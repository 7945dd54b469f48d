"""Records ↔ rows: Arrow columns are built once for each Delta commit, never for each group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from sparkstore.core.records import Kind, MessageHeader, Record
from sparkstore.tables.schema import HEADER_FIELDS, ROW

_NO_MESSAGE = (None,) * len(HEADER_FIELDS)
_KIND_COLUMN = {kind: kind.column for kind in Kind}
_KINDS = {kind.column: kind for kind in Kind}
_TIMES = {field.name for field in ROW if pa.types.is_timestamp(field.type)}


def to_table(
    records: Sequence[Record], *, first_position: int, epoch: int, segment: int
) -> pa.Table:
    """Rows of consecutive records of one epoch, in the order of `schema.ROW`."""
    count = len(records)
    columns: dict[str, Any] = dict(zip(Record._fields, zip(*records, strict=True), strict=True))
    messages = columns.pop("message")
    if messages.count(None) < count:
        headers = (_NO_MESSAGE if message is None else message for message in messages)
        columns.update(zip(MessageHeader._fields, zip(*headers, strict=True), strict=True))
    columns["kind"] = [_KIND_COLUMN[kind] for kind in columns["kind"]]
    columns["position"] = pa.array(range(first_position, first_position + count), pa.int64())
    columns["epoch"] = pa.repeat(pa.scalar(epoch, pa.int64()), count)
    columns["segment"] = pa.repeat(pa.scalar(segment, pa.int32()), count)
    return pa.Table.from_arrays(
        [_array(columns.get(field.name), field.type, count) for field in ROW], schema=ROW
    )


def _array(values: Any, kind: pa.DataType, count: int) -> pa.Array:
    """A column of the values; of most kinds of records most columns have none, which is cheaper."""
    if isinstance(values, pa.Array):
        return values
    if values is None or values.count(None) == count:
        return pa.nulls(count, kind)
    return pa.array(values, kind)


def to_records(table: pa.Table) -> Iterator[tuple[int, int, Record]]:
    """Iterate over rows in order, as (position, epoch, record); columns not read are None."""
    columns = {
        name: table.column(name).cast(pa.int64()) if name in _TIMES else table.column(name)
        for name in table.column_names
    }
    lists = {name: column.to_pylist() for name, column in columns.items()}
    nothing = [None] * table.num_rows
    headers = zip(*(lists.get(field.name, nothing) for field in HEADER_FIELDS), strict=True)
    plain = zip(
        *(lists.get(name, nothing) for name in Record._fields if name not in {"kind", "message"}),
        strict=True,
    )
    kinds = map(_KINDS.__getitem__, lists["kind"])
    epochs = lists.get("epoch", [0] * table.num_rows)
    for position, epoch, kind, header, rest in zip(
        lists["position"], epochs, kinds, headers, plain, strict=True
    ):
        yield position, epoch, _record(kind, header, rest)


def _record(kind: Kind, header: tuple[Any, ...], rest: tuple[Any, ...]) -> Record:
    at = Record._fields.index("message") - 1
    return Record._make((kind, *rest[:at], _header(kind, header), *rest[at:]))


def _header(kind: Kind, values: tuple[Any, ...]) -> MessageHeader | None:
    if kind is not Kind.ENQUEUED and (kind is not Kind.CONTENT or values[0] is None):
        return None  # a piece of content brings a header only if it says its protocol
    header = MessageHeader(*values)
    return header._replace(
        durable=bool(header.durable),
        header_bytes=header.header_bytes or 0,
        body_bytes=header.body_bytes or 0,
        properties=tuple(header.properties or ()),
    )
