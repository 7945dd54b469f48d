"""Read one record by its position, content included, without a JVM: to compare two roots."""

from __future__ import annotations

import hashlib
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from sparkstore.tables.root import Root
from sparkstore.tables.schema import ROW
from sparkstore.tables.snapshot import read_files, snapshot

_COLUMNS = pa.schema([field for field in ROW if field.name != "segment"])


def record_at(root: Root, position: int) -> dict[str, Any] | None:
    """The record at a position, None if it is neither in the journal nor in history.

    The journal is read first: what leaves it meanwhile is in history by then. Of several rows in
    the journal, the one of the highest epoch counts: a fenced writer's never has that.
    """
    for name in ("journal", "history"):
        files = [
            f for f in snapshot(root.table(name)) if f.positions[0] <= position <= f.positions[1]
        ]
        table = read_files(files, _COLUMNS, ds.field("position") == position)
        rows: list[dict[str, Any]] = table.to_pylist()
        if rows:
            return max(rows, key=lambda row: row["epoch"])
    return None


def fingerprint(root: Root, position: int) -> str:
    """Return a digest of the record at a position; empty if there is none, or it is gone."""
    row = record_at(root, position) if position > 0 else None
    return "" if row is None else row_fingerprint(row)


def row_fingerprint(row: dict[str, Any]) -> str:
    """Return the digest of a record, as a row of a table; its segment does not count."""
    columns = sorted((name, value) for name, value in row.items() if name != "segment")
    return hashlib.sha256(repr(columns).encode()).hexdigest()
