"""Rows of a Parquet file, decoded; made into headers and bodies when somebody wants them.

By columns, never by records: a batch of 1,024 rows takes some 3 µs a row. A `Record` for each
would take five times that, and a row that is passed over takes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise, repeat
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sparkstore.content.cache import Content
from sparkstore.core.records import Kind, MessageHeader
from sparkstore.tables.arrow_values import as_list
from sparkstore.tables.schema import HEADER_FIELDS, ROW

_FIELDS = [field.name for field in HEADER_FIELDS]
_IN_HEADER = {*_FIELDS}
_ZERO_IF_NULL = {"header_bytes", "body_bytes"}
_TIMES = {field.name for field in HEADER_FIELDS if pa.types.is_timestamp(field.type)}
_WITHOUT = {"header_bytes": 0, "body_bytes": 0, "durable": False, "properties": ()}
"""Values of a header where its row has none; of all others None."""
_NEAR, _FAR = 4, -1_000
"""A queue has rows so near each other where it alone is sent to, or nearly."""


class Rows:
    """Consecutive rows of a row group, with whatever columns were read.

    Attributes:
        is_ahead: What they bring was put into a cache.
        is_asked_again: Nobody asked for other rows since the last one of these.
    """

    def __init__(self, batch: pa.RecordBatch, *, is_part: bool = False) -> None:
        """Hold a batch, or a part of one that is read by itself."""
        self._batch, self._names = batch, batch.schema.names
        self.is_ahead = self.is_asked_again = False
        self._last_row = _FAR if is_part else -_NEAR

    def is_in_turn(self, row: int) -> bool:
        """True if rows are asked for one soon after the other: then all may be wanted.

        Not if others were asked for in between: consumers of many queues come for neighbours, too.
        """
        is_first, step, self._last_row = self._last_row < 0, row - self._last_row, row
        return (is_first or self.is_asked_again) and 0 < step <= _NEAR

    def serialized(self, count: int) -> list[bytes]:
        """Return the rows in parts of so many, without their schema, as Arrow reads them back."""
        parts = (self._batch.slice(at, count) for at in range(0, len(self), count))
        return [part.serialize().to_pybytes() for part in parts]

    def _column(self, name: str) -> pa.Array:
        """A column as the schema has it: engines may write other forms of the same type."""
        column, kind = self._batch.column(name), ROW.field(name).type
        return column if pa.types.is_nested(kind) or column.type == kind else column.cast(kind)

    def __len__(self) -> int:
        """The number of rows."""
        return int(self._batch.num_rows)

    @cached_property
    def positions(self) -> list[int]:
        """Return the position of each row."""
        return self._values("position")

    @cached_property
    def epochs(self) -> list[int]:
        """Return the epoch of each row."""
        return self._values("epoch")

    @cached_property
    def message_ids(self) -> list[int | None]:
        """Return the message id of each row."""
        return self._values("message_id")

    def message_id(self, row: int) -> int | None:
        """Return the message id of one row."""
        number: int | None = self._batch.column("message_id")[row].as_py()
        return number

    @cached_property
    def kinds(self) -> list[str]:
        """Return the kind of each row, as the column has it."""
        return self._values("kind")

    @cached_property
    def headers(self) -> list[MessageHeader | None]:
        """The header of each row that brings one: a row of a message's other queues cuts it."""
        protocols = self._values("protocol")
        columns = [self._header_values(name) for name in _FIELDS]
        made = map(MessageHeader._make, zip(*columns, strict=True))
        return [
            None if protocol is None else header
            for protocol, header in zip(protocols, made, strict=True)
        ]

    def header(self, row: int) -> MessageHeader | None:
        """The header that one row brings, as `headers` has it."""
        if "headers" in self.__dict__:
            return self.headers[row]
        column = self._batch.column
        values = {
            name: _value(name, column(at)[row])
            for at, name in enumerate(self._names)
            if name in _IN_HEADER
        }
        if values.get("protocol") is None:
            return None
        return MessageHeader._make([values.get(name, _WITHOUT.get(name)) for name in _FIELDS])

    def content(self, row: int) -> Content | None:
        """The message that one row brings whole; None if it does not."""
        header = self.header(row)
        if header is None or self.length(row) != header.body_bytes or not self.has_body(row):
            return None
        return header, self.part(row, 0, header.body_bytes)

    def has_body(self, row: int) -> bool:
        """True if a row brings content or a piece of it, be it of no bytes."""
        return bool(self._body_column[row].is_valid)

    def length(self, row: int) -> int:
        """Bytes of the content, or piece of it, that a row brings."""
        return self._offsets[row + 1] - self._offsets[row]

    def part(self, row: int, start: int, end: int) -> bytes:
        """A slice of what a row brings, without a copy of the rest."""
        first, last = self._offsets[row : row + 2]
        return self._bodies[min(first + start, last) : min(first + end, last)].tobytes()

    def enqueued(self) -> Iterator[tuple[int, int, int, MessageHeader]]:
        """Iterate over rows that enqueue with a header: (position, epoch, message id, header)."""
        kind_wanted = Kind.ENQUEUED.column
        rows = zip(
            self.positions, self.epochs, self.message_ids, self.kinds, self.headers, strict=True
        )
        for position, epoch, message_id, kind, header in rows:
            if header is not None and kind == kind_wanted and message_id is not None:
                yield position, epoch, message_id, header

    def whole(self) -> Iterator[tuple[int, int, int, Content]]:
        """Iterate over rows that bring a whole message: (position, epoch, message id, content)."""
        wanted, offsets, bodies = Kind.ENQUEUED.column, self._offsets, self._bodies
        is_whole = [True] * len(self)
        if self._body_column.null_count:
            is_whole = self._body_column.is_valid().to_pylist()
        rows = zip(
            self.positions,
            self.epochs,
            self.message_ids,
            self.kinds,
            self.headers,
            pairwise(offsets),
            is_whole,
            strict=True,
        )
        for position, epoch, message_id, kind, header, (start, end), has_body in rows:
            if header is None or kind != wanted or not has_body or message_id is None:
                continue
            if end - start == header.body_bytes:
                yield position, epoch, message_id, (header, bodies[start:end].tobytes())

    @cached_property
    def _body_column(self) -> pa.Array:
        if "body" not in self._names:
            return pa.nulls(len(self), pa.binary())
        return self._column("body")

    @cached_property
    def _bodies(self) -> memoryview:
        data = self._body_column.buffers()[2]
        return memoryview(b"" if data is None else data).cast("B")

    @cached_property
    def _offsets(self) -> Sequence[int]:
        return _offsets(self._body_column)

    def _values(self, name: str) -> list[Any]:
        if name not in self._names:
            return [None] * len(self)
        return _as_list(self._column(name))

    def _header_values(self, name: str) -> Any:
        if name not in self._names:
            return repeat((), len(self)) if name == "properties" else self._values(name)
        column = self._column(name)
        if name in _ZERO_IF_NULL:
            column = pc.fill_null(column, 0)
        elif name == "durable":
            column = pc.fill_null(column, fill_value=False)
        elif name == "properties":
            return _pairs(column)
        return _as_list(column)


def _value(name: str, value: pa.Scalar) -> Any:
    if not value.is_valid:
        return _WITHOUT.get(name)
    if name in _TIMES:
        return value.cast(ROW.field(name).type).value
    return tuple(value.as_py()) if name == "properties" else value.as_py()


def _as_list(column: pa.Array) -> list[Any]:
    if pa.types.is_binary(column.type) and column.null_count < len(column):
        return _bytes_list(column)
    if pa.types.is_boolean(column.type) and not column.null_count:
        return [*map(bool, as_list(column.cast(pa.int64())))]
    return as_list(column)


def _bytes_list(column: pa.Array) -> list[bytes | None]:
    data = column.buffers()[2]
    content = b"" if data is None else memoryview(data).cast("B")
    offsets = _offsets(column)
    values: list[bytes | None] = [bytes(content[start:end]) for start, end in pairwise(offsets)]
    if column.null_count:
        for row in as_list(pc.indices_nonzero(column.is_null())):
            values[row] = None
    return values


def _pairs(column: pa.Array) -> Any:
    """Return the map of each row as a tuple of pairs."""
    if column.null_count == len(column):
        return repeat((), len(column))
    offsets = as_list(column.offsets)
    first, count = offsets[0], offsets[-1] - offsets[0]
    keys, items = column.keys.slice(first, count), column.items.slice(first, count)
    pairs = [*zip(as_list(keys), as_list(items), strict=True)]
    return [tuple(pairs[start - first : end - first]) for start, end in pairwise(offsets)]


def _offsets(column: pa.Array) -> Sequence[int]:
    """Return the offset of each value of a binary column in its data, and the end of the last."""
    buffer = column.buffers()[1]
    if buffer is None or not len(column):
        return [0] * (len(column) + 1)
    return memoryview(buffer).cast("i")[column.offset : column.offset + len(column) + 1]
