"""History's rows are written so that a queue, a message id and an hour open files of their own.

No row goes through a shuffle: one task reads a chunk, sorts it, on disk if it must, and cuts it
into files (`plans.cluster_plan`). The order of positions is not kept within a chunk; nobody needs
it, as whoever reads a range of positions goes by the statistics of each file.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import reduce

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from sparkstore.compaction import state_fold
from sparkstore.compaction.plans.cluster_plan import (
    HistoryChunk,
    HistorySegmentSize,
    mergeable,
    rows_per_file,
)
from sparkstore.tables.delta_files import newest_version
from sparkstore.tables.root import Root
from sparkstore.tables.schema import table_configuration
from sparkstore.views.spark_tables import settings, table_names

_log = logging.getLogger(__name__)

BRINGS = "kind = 'enqueued' AND protocol IS NOT NULL"
"""The rows of history that a message on a queue is joined with."""
MERGE_JOB = "cluster"
"""How a commit that changes no row calls itself."""
_STATISTICS = "delta.dataSkippingStatsColumns"
_MOST_ROWS = "maxRecordsPerFile"


def append_clustered(
    root: Root, rows: DataFrame, chunks: Iterable[HistoryChunk], last: int, most: int
) -> None:
    """Append to history in one Delta commit, up to position `last`; `most` rows in a file.

    Raises:
        Unavailable: The commit is not there afterwards.
    """
    frames = [
        _sorted(
            rows.where(
                f"position > {chunk.positions.after} AND position <= {chunk.positions.last}"
            ),
            chunk.segment,
        )
        for chunk in chunks
    ]
    moved = reduce(DataFrame.union, frames)
    options = {_MOST_ROWS: most} if most else {}
    state_fold.append_once(
        moved, root, "history", app="append", version=last, job="compact", options=options
    )
    _log.info("%s: history appended up to position %d", root.path, last)


def _sorted(rows: DataFrame, segment: int) -> DataFrame:
    """Sort a segment in one task: rows that bring content by queue, then the rest by message id."""
    brings = F.expr(BRINGS)
    keys = [~brings, F.when(brings, F.col("queue")), F.col("message_id"), F.col("position")]
    number = F.lit(segment).cast("int")
    return rows.withColumn("segment", number).coalesce(1).sortWithinPartitions(*keys)


def merge_segments(spark: SparkSession, root: Root, folded: int) -> None:
    """Put small segments that lie side by side together, in one Delta commit for each group.

    No row is changed but for its segment. A kill leaves a group as it was, or as it is to be.

    Raises:
        Unavailable: A commit is not there afterwards.
    """
    for numbers in mergeable(_sizes(root), folded=folded):
        _merge(spark, root, numbers)


def _merge(spark: SparkSession, root: Root, numbers: list[int]) -> None:
    place = f"segment IN ({', '.join(map(str, numbers))})"
    rows = spark.table(table_names(root)["history"]).where(place)
    row = rows.selectExpr("count(*) AS row_count", f"count_if({BRINGS}) AS bringing").first()
    assert row is not None
    size = sum(segment.size_bytes for segment in _sizes(root) if segment.number in numbers)
    most = rows_per_file(row.row_count, row.bringing, size, 1)
    metadata = state_fold.commit_metadata(MERGE_JOB, newest_version(root.history))
    (
        _sorted(rows, max(numbers))
        .write.format("delta")
        .mode("overwrite")
        .option("replaceWhere", place)
        .option("dataChange", "false")
        .option("userMetadata", metadata)
        .options(**({_MOST_ROWS: most} if most else {}))
        .save(root.spark_location("history"))
    )
    state_fold.check_is_newest(root, "history", metadata)
    _log.info("history: %d segments put together as %d", len(numbers), max(numbers))


def _sizes(root: Root) -> list[HistorySegmentSize]:
    actions = pa.table(DeltaTable(str(root.history)).get_add_actions(flatten=True)).to_pylist()
    sizes: dict[int, HistorySegmentSize] = {}
    for action in actions:
        number = action["partition.segment"]
        written = 1000 * int(action["modification_time"])  # Delta's log has milliseconds
        oldest, newest = (_micros(action.get(f"{end}.at"), written) for end in ("min", "max"))
        file = HistorySegmentSize(
            number, action["max.position"], action["size_bytes"], 1, (oldest, newest)
        )
        known = sizes.get(number)
        sizes[number] = file if known is None else _joined(known, file)
    return [*sizes.values()]


def _joined(one: HistorySegmentSize, other: HistorySegmentSize) -> HistorySegmentSize:
    oldest, newest = zip(one.times, other.times, strict=True)
    return HistorySegmentSize(
        one.number,
        max(one.last, other.last),
        one.size_bytes + other.size_bytes,
        one.file_count + other.file_count,
        (min(oldest), max(newest)),
    )


def _micros(value: object, otherwise: int) -> int:
    timestamp = getattr(value, "timestamp", None)
    return int(timestamp() * 1_000_000) if timestamp else otherwise


def keep_statistics(spark: SparkSession, root: Root) -> None:
    """Have Delta keep the statistics that predicates go by, in a root of a release before.

    Only files that are written from now on have them. In a bucket a root stays as it was made.

    Raises:
        Unavailable: The commit is not there afterwards.
    """
    if root.remote is not None:
        return
    for table in ("history", "state"):
        wanted = table_configuration(table)[_STATISTICS]
        if DeltaTable(str(root.table(table))).metadata().configuration.get(_STATISTICS) == wanted:
            continue
        metadata = state_fold.commit_metadata(MERGE_JOB, newest_version(root.table(table)))
        with settings(spark, {state_fold.METADATA: metadata}):
            name = table_names(root)[table]
            spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('{_STATISTICS}' = '{wanted}')")
        state_fold.check_is_newest(root, table, metadata)
