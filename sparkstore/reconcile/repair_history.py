"""Repair of `history`: lost files, gaps and repeated positions, in one commit of whole segments.

What is missing is copied back from the journal, or from a replica that agrees with the primary
wherever both have a record. Segments that change are written anew with `replaceWhere`, which names
them without reading them: so a file that is lost goes, too. Why nothing is lost: if one position
can be found nowhere, nothing is changed at all, and the table still names the file that is gone.
The commit is atomic, and what it replaces stays on disk until a VACUUM.
"""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from sparkstore.compaction.state_fold import check_is_newest, commit_metadata
from sparkstore.errors import CorruptData
from sparkstore.reconcile.inspection import Look, digests
from sparkstore.reconcile.lost_files import parts_of, whole_files
from sparkstore.reconcile.table_copies import record_digest
from sparkstore.tables.delta_files import newest_version
from sparkstore.tables.marks import mark_durable
from sparkstore.tables.schema import ROW
from sparkstore.tables.snapshot import snapshot
from sparkstore.views.spark_tables import delta_name, statement


class _Plan(NamedTuple):
    """The content of the new segments, or why there can be none.

    Attributes:
        copied: Rows to bring back.
        dropped: Rows to leave out: file and index of each.
        segments: Those that are written anew.
        summary: What this is, in words.
    """

    copied: DataFrame
    dropped: DataFrame
    segments: list[int]
    summary: str


def mend(seen: Look, replica: Look | None) -> str:
    """Write the broken segments of history anew; what was done, empty if nothing had to be.

    Args:
        seen: The root, under the jobs' lease.
        replica: A replica that agrees with it as far as both go, or None.

    Raises:
        CorruptData: Something cannot be found anywhere; nothing was changed.
        Unavailable: The commit is not there afterwards.
    """
    plan = _plan(seen, replica)
    if not plan.segments:
        return ""
    names = ", ".join(str(segment) for segment in plan.segments)
    metadata = commit_metadata("reconcile", seen.end)
    (
        _kept(seen, plan.dropped)
        .where(f"segment IN ({names})")
        .select(*ROW.names)
        .unionByName(plan.copied.select(*ROW.names))
        .write.format("delta")
        .mode("overwrite")
        .option("replaceWhere", f"segment IN ({names})")
        .option("userMetadata", metadata)
        .save(str(seen.root.history))
    )
    check_is_newest(seen.root, "history", metadata)
    mark_durable(seen.root, {"history": newest_version(seen.root.history)})
    return f"history: {plan.summary}; segments written anew: {names}"


def _plan(seen: Look, replica: Look | None) -> _Plan:
    names, spark = seen.names, seen.names.spark
    known = (file.positions[1] for file in snapshot(seen.root.history) if file.row_count >= 0)
    last = max([seen.history_end, seen.meta.position, *known])
    wanted = spark.range(seen.start, last + 1).withColumnRenamed("id", "position")
    missing = wanted.join(spark.table(seen.side.history), "position", "left_anti")
    missing = spark.table(names.keep("missing", missing))
    copied, sources = _copied(seen, replica, missing)
    twice = spark.table(names.keep("twice", _twice(seen, replica)))
    counts = missing.count(), copied.count(), twice.where("is_dropped").count()
    if counts[0] != counts[1]:
        ends = missing.agg(F.min("position"), F.max("position")).collect()[0]
        message = (
            f"of {counts[0]} positions between {ends[0]} and {ends[1]} that history lost,"
            f" {counts[0] - counts[1]} are not in {sources}: restore it from a backup"
        )
        raise CorruptData(message)
    unknown = twice.where("NOT is_known").agg(F.min("position")).collect()[0][0]
    if unknown is not None:
        message = (
            f"position {unknown} is in history with different content, and it is not in {sources}:"
            " compare with a backup"
        )
        raise CorruptData(message)
    changed = copied.select("segment").union(twice.where("is_dropped").select("segment"))
    segments = {row.segment for row in changed.distinct().collect()}
    lost = parts_of(seen.root.history, seen.lost["history"])
    _check_not_retained(seen, lost)
    segments |= lost
    sentence = f"{counts[1]} records copied back from {sources}, {counts[2]} repeated ones dropped"
    return _Plan(copied, twice.where("is_dropped"), sorted(segments), sentence)


def _check_not_retained(seen: Look, segments: set[int]) -> None:
    """Refuse to write over a file from before `history_start`: nothing tells what it held.

    Raises:
        CorruptData: A file of such a segment is lost.
    """
    for file in snapshot(seen.root.history):
        if file.partition in segments and file.positions[0] < seen.start:
            message = (
                f"a file of segment {file.partition} of history is lost, which holds only what was"
                f" needed from before position {seen.start}: restore the file from a backup"
            )
            raise CorruptData(message)


def _copied(seen: Look, replica: Look | None, missing: DataFrame) -> tuple[DataFrame, str]:
    """Whole rows for positions that are missing, and where they were looked for.

    The few positions go to the rows, no body to a shuffle.
    """
    spark = seen.names.spark
    counts = spark.table(seen.counting).select("position", "epoch").join(missing, "position")
    journal = spark.sql(f"SELECT * FROM {delta_name(seen.root.journal)}")  # noqa: S608
    records = journal.join(F.broadcast(counts), ["position", "epoch"], "left_semi")
    if replica is None:
        return records, "the journal"
    rest = missing.join(counts, "position", "left_anti")
    other = spark.table(replica.side.history).join(F.broadcast(rest), "position", "left_semi")
    return records.unionByName(other.select(*records.columns)), "the journal or the replica"


def _rows(seen: Look) -> DataFrame:
    """Rows of history from the files that are there, with where each lies."""
    files = whole_files(seen.names.spark, seen.root, "history", seen.lost["history"])
    return files.select(
        "*",
        F.col("_metadata.file_path").alias("file"),
        F.col("_metadata.row_index").alias("row_index"),
    )


def _kept(seen: Look, dropped: DataFrame) -> DataFrame:
    return _rows(seen).join(
        F.broadcast(dropped.select("file", "row_index")), ["file", "row_index"], "left_anti"
    )


def _twice(seen: Look, replica: Look | None) -> DataFrame:
    names, spark = seen.names, seen.names.spark
    narrow = _rows(seen).select(
        "position", "segment", "file", "row_index", record_digest().alias("digest")
    )
    known = spark.table(seen.counting).select("position", "digest")
    if replica is not None:
        other = digests(spark, replica.side.history)
        known = known.union(other.join(known, "position", "left_anti"))
    values = {
        "rows": names.keep("placed", narrow.where(f"position >= {seen.start}")),
        "known": names.add("known", known),
    }
    return spark.sql(statement("reconcile_twice", values))
