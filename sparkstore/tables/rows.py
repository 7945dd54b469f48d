"""Records ↔ rows: Arrow columns are built once for each Delta commit, never for each group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sparkstore.core.records import Kind, MessageHeader, Record, Run
from sparkstore.tables.schema import HEADER_FIELDS, ROW

_NO_MESSAGE = (None,) * len(HEADER_FIELDS)
_KIND_COLUMN = {kind: kind.column for kind in Kind}
_KINDS = {kind.column: kind for kind in Kind}
_OFFSETS_END = 1 << 31
"""Where the offsets of a column of contents end."""
_TIMES = {field.name for field in ROW if pa.types.is_timestamp(field.type)}


def to_table(runs: Sequence[Run], *, first_position: int, epoch: int, segment: int) -> pa.Table:
    """Rows of consecutive records of one epoch, in the order of `schema.ROW`.

    A run is one value of each column here, which Arrow repeats for its rows.
    """
    of_runs = _Rows([run.rows for run in runs])
    columns: dict[str, Any] = dict(
        zip(Record._fields, zip(*[run.record for run in runs], strict=True), strict=True)
    )
    columns["kind"] = [_KIND_COLUMN[kind] for kind in columns["kind"]]
    del columns["message"], columns["body"]
    arrays = {
        name: of_runs.repeated(values, ROW.field(name).type) for name, values in columns.items()
    }
    arrays |= _contents(runs, of_runs)
    for name in ("message_id", "request"):  # of a run they rise by one
        arrays[name] = of_runs.rising(arrays[name])
    count = of_runs.count
    arrays["position"] = pa.arange(first_position, first_position + count)
    arrays["epoch"] = pa.repeat(pa.scalar(epoch, pa.int64()), count)
    arrays["segment"] = pa.repeat(pa.scalar(segment, pa.int32()), count)
    return pa.Table.from_arrays([arrays[field.name] for field in ROW], schema=ROW)


def _contents(runs: Sequence[Run], of_runs: _Rows) -> dict[str, pa.Array]:
    """The columns of headers and contents."""
    headers: list[MessageHeader | None] = []
    rows: list[int] = []
    bodies: list[bytes] = []
    sizes: list[int] = []
    for run in runs:
        own = run.bodies
        bodies += own
        sizes += map(len, own) if own else [0] * run.rows
        own_headers = run.messages or (None,)
        headers += own_headers
        rows += [1] * run.rows if len(own_headers) > 1 else [run.rows]
    have_bodies = of_runs.repeated([bool(run.bodies) for run in runs], pa.bool_())
    arrays = {"body": _joined(bodies, sizes, have_bodies)}
    if headers.count(None) == len(headers):
        nothing = {field.name: pa.nulls(of_runs.count, field.type) for field in HEADER_FIELDS}
        return arrays | nothing
    values = zip(*[header or _NO_MESSAGE for header in headers], strict=True)
    of_headers = _Rows(rows)
    for name, column in zip(MessageHeader._fields, values, strict=True):
        arrays[name] = of_headers.repeated(column, ROW.field(name).type)
    return arrays


def _joined(bodies: Sequence[bytes], sizes: Sequence[int], are_there: pa.Array) -> pa.Array:
    """Make the column of contents: a size for each row, and null where nothing is there.

    A commit of a busy store copies 20 MB here. Python's `join` lets go of the interpreter
    meanwhile, where Arrow would hold up the broker's loop for 10 to 20 ms.
    """
    kind = ROW.field("body").type
    if not bodies:
        return pa.nulls(len(sizes), kind)
    if sum(sizes) >= _OFFSETS_END:  # of one huge transaction
        left = iter(bodies)
        return pa.array([next(left) if is_one else None for is_one in are_there.to_pylist()], kind)
    offsets = pa.array([0, *accumulate(sizes)], pa.int32())
    buffers = [are_there.buffers()[1], offsets.buffers()[1], pa.py_buffer(b"".join(bodies))]
    return pa.Array.from_buffers(kind, len(sizes), buffers)


class _Rows:
    """How often a value of each run, or of each header, is repeated: once for each of its rows.

    Attributes:
        count: Rows of the table.
    """

    def __init__(self, rows: Sequence[int]) -> None:
        ends = [*accumulate(rows)]
        self.count = ends[-1] if ends else 0
        self._places: pa.Array | None = None
        if len(rows) < self.count:
            places = pa.RunEndEncodedArray.from_arrays(
                pa.array(ends, pa.int32()), pa.array(range(len(rows)), pa.int32())
            )
            self._places = pc.run_end_decode(places)
            self._starts = pa.array([0, *ends[:-1]], pa.int64())

    def repeated(self, values: Sequence[Any], kind: pa.DataType) -> pa.Array:
        """A column with each value in all rows of its own."""
        first = values[0] if values else None
        if values.count(first) < len(values) or (first is not None and pa.types.is_nested(kind)):
            column = pa.array(values, kind)
            return column if self._places is None else column.take(self._places)
        # Most columns have no value, or the same in all rows: that is cheaper.
        nothing = pa.nulls(self.count, kind)
        return nothing if first is None else pa.repeat(pa.scalar(first, kind), self.count)

    def rising(self, column: pa.Array) -> pa.Array:
        """A column whose values rise by one from row to row of a run."""
        if self._places is None or column.null_count == self.count:
            return column
        own = pc.subtract(pa.arange(0, self.count), self._starts.take(self._places))
        return pc.add(column, own)


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
