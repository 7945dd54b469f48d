"""What the views say by DuckDB, in the values that the oracle's fold is brought to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from sparkstore.embedded.answers import answer
from sparkstore.recovery.point_in_time import AsOf
from sparkstore.tables.root import Root


def rows(root: Root, statement: str, as_of: AsOf | None = None) -> list[dict[str, Any]]:
    """Rows of an answer; times are UTC µs, maps are dictionaries."""
    table = answer(root, statement, as_of=as_of).table
    for at, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            column = table.column(at).cast(pa.timestamp("us", "UTC")).cast(pa.int64())
            table = table.set_column(at, field.name, column)
    maps = {field.name for field in table.schema if pa.types.is_map(field.type)}
    return [
        {name: plain(value) if name in maps else value for name, value in row.items()}
        for row in table.to_pylist()
    ]


def plain(pairs: list[tuple[str, Any]] | Mapping[str, Any] | None) -> dict[str, Any] | None:
    """A map as a dictionary, however it came."""
    return None if pairs is None else dict(pairs)
