"""The table `history`: where it ends, what of a journal counts, and the append that jobs share."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import reduce
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from sparkstore.compaction.plans.compact_plan import PositionRange
from sparkstore.compaction.plans.history_plan import Extent, Opening
from sparkstore.compaction.state_fold import Meta, append_once
from sparkstore.core.records import Kind
from sparkstore.errors import CorruptData
from sparkstore.tables.delta_files import newest_version
from sparkstore.tables.root import Root
from sparkstore.tables.schema import ROW
from sparkstore.tables.snapshot import columns_of, read_files, snapshot
from sparkstore.views.spark_tables import statement, table_names

_log = logging.getLogger(__name__)


def extents(table: Path, version: int) -> list[Extent]:
    """Files of a version of a journal or a history.

    Raises:
        CorruptData: One has no statistics, so that its records would be passed over.
    """
    actions = pa.table(DeltaTable(str(table), version=version).get_add_actions(flatten=True))
    columns = ("max.position", "size_bytes", "partition.segment")
    values = (actions[name].to_pylist() for name in columns)
    files = [Extent(*file) for file in zip(*values, strict=True)]
    if any(file.last is None for file in files):
        message = f"{table} has files without statistics: call the operator"
        raise CorruptData(message)
    return files


def last_position(history: Path) -> int:
    """The end of a `history`, from statistics; 0 if it is empty."""
    files = extents(history, newest_version(history))
    return max((file.last for file in files), default=0)


def openings(spark: SparkSession, root: Root, meta: Meta) -> list[Opening]:
    """Every `opened` that may fence rows of the journal: those after P, and the last before.

    Look it up after the journal's version: one that landed since fences nothing that counted then.
    """
    if root.remote is not None:
        epochs = spark.sql(statement("epochs", table_names(root))).collect()
        return [Opening(row.position, row.epoch) for row in epochs]
    journal = snapshot(root.journal)
    history = [file for file in snapshot(root.history) if file.positions[1] > meta.position]
    where = ds.field("kind") == Kind.OPENED.column
    columns = columns_of(ROW, ["epoch", "position", "kind"])
    epochs = read_files([*history, *journal], columns, where)
    rows = zip(epochs["position"].to_pylist(), epochs["epoch"].to_pylist(), strict=True)
    return [Opening(meta.position, meta.epoch), *(Opening(*row) for row in rows)]


def append(
    root: Root, rows: DataFrame, pieces: Iterable[PositionRange], *, last: int, job: str
) -> None:
    """Append rows up to position `last`, in one Delta commit.

    A file for each piece, by one task, in the order of positions: no row goes through a shuffle,
    and the files' statistics tell ranges that do not overlap.

    Raises:
        Unavailable: The commit is not there afterwards.
    """
    files = [
        rows.where(f"position > {piece.after} AND position <= {piece.last}").coalesce(1)
        for piece in pieces
    ]
    moved = reduce(DataFrame.union, files)
    append_once(moved, root, "history", app="append", version=last, job=job)
    _log.info("%s: history appended up to position %d", root.path, last)
