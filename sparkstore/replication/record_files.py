"""Records of a root's tables, read between two positions and written to few new files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from sparkstore.core.records import Kind
from sparkstore.errors import Unavailable
from sparkstore.tables.schema import ROW
from sparkstore.tables.snapshot import FileStats, columns_of, read_files

_FILE_BYTES = 64 << 20
_FILE_COLUMNS = pa.schema([field for field in ROW if field.name != "segment"])
_OPENINGS = columns_of(ROW, ["epoch", "position", "kind"])


class WrittenFile(NamedTuple):
    """A Parquet file of records: where it is, its name in the table, its entry in the log."""

    file: Path
    name: str
    add: dict[str, Any]
    positions: pa.Array


def openings(files: list[FileStats]) -> list[tuple[int, int]]:
    """Epoch and position of each `opened` in some files."""
    opened = read_files(files, _OPENINGS, ds.field("kind") == Kind.OPENED.column)
    return [*zip(opened["epoch"].to_pylist(), opened["position"].to_pylist(), strict=True)]


def rows_between(
    files: list[FileStats], after: int, last: int, opened: Iterable[tuple[int, int]]
) -> Iterator[tuple[int, pa.Table]]:
    """Segment and records of each file that count (ARCHITECTURE: Rule 3), after a position."""
    position, epoch = ds.field("position"), ds.field("epoch")
    where = (position > after) & (position <= last)
    for newer, opened_at in opened:
        where &= ~((epoch < newer) & (position >= opened_at))
    for file in files:
        if file.positions[1] > after and file.positions[0] <= last:
            yield file.partition, read_files([file], _FILE_COLUMNS, where)


def written_files(rows: Iterable[tuple[int, pa.Table]], folder: Path) -> Iterator[WrittenFile]:
    """Records in few files, each of one segment; by and by."""
    waiting: list[pa.Table] = []
    of_segment, size = 0, 0
    for segment, table in rows:
        if waiting and (segment != of_segment or size >= _FILE_BYTES):
            yield _write(waiting, of_segment, folder)
            waiting, size = [], 0
        if table.num_rows:
            waiting.append(table)
        of_segment, size = segment, size + table.nbytes
    if waiting:
        yield _write(waiting, of_segment, folder)


def _write(tables: list[pa.Table], segment: int, folder: Path) -> WrittenFile:
    rows = pa.concat_tables(tables).sort_by("position").cast(_FILE_COLUMNS)
    file = folder / f"part-{uuid4()}.snappy.parquet"
    pq.write_table(rows, file, coerce_timestamps="us")
    name = f"segment={segment}/{file.name}"
    limits = {column: pc.min_max(rows[column]).as_py() for column in ("position", "message_id")}
    stats = {
        "numRecords": rows.num_rows,
        "minValues": {c: limit["min"] for c, limit in limits.items() if limit["min"] is not None},
        "maxValues": {c: limit["max"] for c, limit in limits.items() if limit["max"] is not None},
        "nullCount": {column: rows[column].null_count for column in limits},
    }
    status = file.stat()
    add = {
        "path": name,
        "partitionValues": {"segment": str(segment)},
        "size": status.st_size,
        "modificationTime": int(status.st_mtime * 1000),
        "stats": json.dumps(stats),
    }
    return WrittenFile(file, name, add, rows["position"].combine_chunks())


def check_gapless(added: list[WrittenFile], after: int, last: int) -> None:
    """Check that no record after a position is passed over that neither table of the primary has.

    Raises:
        Unavailable: So it seems; its tables changed while they were read, or are damaged.
    """
    positions = pa.chunked_array([file.positions for file in added], pa.int64())
    positions = positions.filter(pc.greater(positions, after))
    if pc.count_distinct(positions).as_py() != max(0, last - after):
        message = (
            f"positions {after + 1} to {last} of the primary did not fit together: run it again;"
            " sparkstore verify tells if they are damaged"
        )
        raise Unavailable(message)
