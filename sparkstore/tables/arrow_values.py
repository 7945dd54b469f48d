"""Arrow columns as Python objects, a million of them in a fraction of a second.

Columns reach Python through `memoryview.tolist` (5 ns a value, `to_pylist` takes 50 times that).
"""

from __future__ import annotations

from array import array
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sparkstore.core.packed_integers import Column, Integers, Keys, pack

_OFFSETS = {pa.uint8(): "B", pa.uint16(): "H", pa.uint32(): "I"}
"""What a packed column keeps of each integer (`packed_integers`): as few bytes as they need."""


def as_list(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """Values as Python objects; integers and times (as µs) without a detour by scalars."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if column.null_count == len(column):
        return [None] * len(column)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    if pa.types.is_integer(column.type) and not column.null_count:
        buffer = column.cast(pa.int64()).buffers()[1]
        start = column.offset if column.type == pa.int64() else 0
        return memoryview(buffer).cast("q")[start : start + len(column)].tolist()
    if pa.types.is_string(column.type):
        encoded = column.dictionary_encode()
        names = [*encoded.dictionary.to_pylist(), None]
        codes = pc.fill_null(encoded.indices, len(names) - 1)
        return list(map(names.__getitem__, as_list(codes)))
    values: list[Any] = column.to_pylist()
    return values


def as_integers(column: pa.ChunkedArray) -> Integers:
    """Pack integers or times (as µs), one at least and no null, without an object for each.

    Of each above the one before it makes a `range` or `Keys`.
    """
    values = column.cast(pa.int64()).combine_chunks()
    least, largest = (end.as_py() for end in pc.min_max(values).values())
    count, span = len(values), largest - least
    kind = next((kind for kind in _OFFSETS if span < 1 << kind.bit_width), None)
    if not span:
        return Column(least, None, count)
    if kind is None:
        return pack(as_list(values))
    is_rising = pc.min(pc.pairwise_diff(values)).as_py() > 0
    if is_rising and span == count - 1:
        return range(least, largest + 1)
    offsets = array(_OFFSETS[kind])
    buffer = pc.subtract(values, least).cast(kind).buffers()[1]
    offsets.frombytes(memoryview(buffer)[: count * offsets.itemsize])
    return (Keys if is_rising else Column)(least, offsets, count)


def is_run(numbers: pa.Array, first: int) -> bool:
    """True if they are `first` and those that follow it, in order."""
    if not len(numbers):
        return True
    ends = pc.min_max(pc.pairwise_diff(numbers)).as_py()
    return numbers[0].as_py() == first and {*ends.values()} <= {1, None}
