"""The newest version of a table as a list of files with their statistics, and reading of some.

Both engines keep, per file, the least and largest position, message id, time and queue
(`SKIPPING_COLUMNS`), so that a reader opens only the files that can hold what it wants. A file
without statistics may hold anything. Partition columns are not in the files; they come from the
log. Engines shorten what they keep: times to a millisecond, texts to 32 characters at least. So
times are taken a millisecond wider, and of longer names nothing is believed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable
from pyarrow.fs import LocalFileSystem

from sparkstore.errors import CorruptData
from sparkstore.storage.data_paths import data_path

PARQUET = ds.ParquetFileFormat(read_options=ds.ParquetReadOptions(coerce_int96_timestamp_unit="us"))
"""Spark writes its old INT96 times unless told otherwise."""
ANY = (0, (1 << 63) - 1)
_POSITION = pa.schema([("position", pa.int64())])
_BATCH_ROWS = 1 << 16
_WIDER = timedelta(milliseconds=1)
_WHOLE_TEXT = 32
"""A text that is shorter was not shortened."""


RESTORE = "put it back, or restore the root from a replica (sparkstore promote) or a backup"
"""What to do about a file or a table that is gone."""


class FileStats(NamedTuple):
    """Statistics of one active data file.

    Attributes:
        path: Where it is.
        partition: Value of the first partition column: the segment, or the part of `state`.
        positions: Least and largest position in it; everything if unknown.
        message_ids: Least and largest message id in it; everything if unknown.
        row_count: Rows in it, -1 if unknown.
        size_bytes: Size of the file.
        times: No `at` in it is before the first or after the second; None if unknown.
        queues: The same of names of queues; rows without a queue may be in it, too.
    """

    path: Path
    partition: Any
    positions: tuple[int, int]
    message_ids: tuple[int, int]
    row_count: int
    size_bytes: int
    times: tuple[datetime, datetime] | None = None
    queues: tuple[str, str] | None = None

    @property
    def has_statistics(self) -> bool:
        """Tell whether the log says which positions are in a file."""
        return self.positions != ANY


def snapshot(table: Path, version: int | None = None) -> list[FileStats]:
    """Active files of the newest version, or of another one, by least position."""
    return newest(table, version)[1]


def newest(table: Path, version: int | None = None) -> tuple[int, list[FileStats]]:
    """Look the newest version up, or another one: its number, and its files by least position."""
    opened = DeltaTable(str(table), version)
    return opened.version(), _files(table, opened)


def last_position(files: Iterable[FileStats]) -> int:
    """Return the largest position in some files, 0 if there is none.

    A file without statistics is opened.
    """
    files = list(files)
    unknown = [file for file in files if not file.has_statistics]
    read = pc.max(read_files(unknown, _POSITION)["position"]).as_py() or 0
    return max([read, *(file.positions[1] for file in files if file.has_statistics)])


def read_files(
    files: Iterable[FileStats],
    schema: pa.Schema,
    where: ds.Expression | None = None,
) -> pa.Table:
    """The columns of `schema` from some files, in their order; a column not in a file is null.

    Raises:
        CorruptData: A file is not there: lost, or merged into another meanwhile.
    """
    paths = [str(file.path) for file in files]
    nullable = pa.schema([field.with_nullable(nullable=True) for field in schema])
    if not paths:
        return nullable.empty_table()
    try:
        dataset = ds.dataset(paths, nullable, format=PARQUET, filesystem=LocalFileSystem())
        batches = dataset.to_batches(filter=where, batch_size=_BATCH_ROWS)
        return pa.Table.from_batches(map(_with_shared_nulls, batches), nullable)
    except FileNotFoundError as reason:
        lost = next((path for path in paths if not Path(path).exists()), str(reason))
        message = f"{lost} is gone, and its table names it: {RESTORE}"
        raise CorruptData(message) from reason


def _with_shared_nulls(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with its columns of nothing but nulls in memory that they share.

    A record has some thirty columns, of which its kind fills ten: a third of what a start reads.
    """
    columns = [
        _nulls(column.type).slice(0, len(column)) if column.null_count == len(column) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


@cache
def _nulls(kind: pa.DataType) -> pa.Array:
    return pa.nulls(_BATCH_ROWS, kind)


def columns_of(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """Part of a schema, in the order of `names`."""
    return pa.schema([schema.field(name) for name in names])


def _files(table: Path, opened: DeltaTable) -> list[FileStats]:
    actions = pa.table(opened.get_add_actions(flatten=True)).to_pylist()
    return sorted((_stats(table, action) for action in actions), key=lambda file: file.positions)


def _stats(table: Path, action: dict[str, Any]) -> FileStats:
    partition = action.get("partition.segment", action.get("partition.part"))
    rows = action.get("num_records")
    return FileStats(
        table / data_path(action["path"], f"{table}/_delta_log"),
        partition,
        _range(action, "position"),
        _range(action, "message_id"),
        -1 if rows is None else rows,
        action["size_bytes"],
        _times(action),
        _queues(action),
    )


def _times(action: dict[str, Any]) -> tuple[datetime, datetime] | None:
    least, largest = action.get("min.at"), action.get("max.at")
    try:
        return None if least is None or largest is None else (least - _WIDER, largest + _WIDER)
    except OverflowError:
        return None


def _queues(action: dict[str, Any]) -> tuple[str, str] | None:
    """Return the least queue name of a file, and the largest where statistics have it whole."""
    least, largest = action.get("min.queue"), action.get("max.queue")
    if least is None or largest is None or len(largest) >= _WHOLE_TEXT:
        return None
    return least, largest


def _range(action: dict[str, Any], column: str) -> tuple[int, int]:
    least, largest = action.get(f"min.{column}"), action.get(f"max.{column}")
    return ANY if least is None or largest is None else (least, largest)
