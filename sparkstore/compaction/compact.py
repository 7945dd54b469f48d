"""The compaction job: records go from `journal` to `history`, and are folded into `state`.

Under the jobs' lease: (1) append to `history` what the journal holds after its end, (2, 3) fold
what `history` holds after P into `state`, one MERGE for each step (`state_fold`). Each goes by the
end of its own table alone, and each Delta commit leaves a valid store. So a job killed anywhere
can be run again, and so can one that was not. (4) Passed segments of history lose what nobody
needs (`retention`), small files are put together and old ones deleted (`upkeep`). The journal is
not touched: the store trims it, behind its durable marks (ARCHITECTURE: Rule 5).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from sparkstore.compaction.history import extents, last_position, openings
from sparkstore.compaction.history_layout import (
    BRINGS,
    append_clustered,
    keep_statistics,
)
from sparkstore.compaction.plans.cluster_plan import chunks, rows_per_file
from sparkstore.compaction.plans.compact_plan import Limits, PositionRange, Upkeep
from sparkstore.compaction.plans.history_plan import Extent, RecordTally, counts, end_of
from sparkstore.compaction.retention import retain
from sparkstore.compaction.state_fold import Meta, fold_all, read_meta
from sparkstore.compaction.upkeep import tidy
from sparkstore.errors import CorruptData, Unavailable
from sparkstore.jobs.failpoints import Failpoint, no_failpoint
from sparkstore.jobs.report import CompactReport
from sparkstore.session import tell_hadoop
from sparkstore.storage.disk_room import check_has_room
from sparkstore.tables import healing
from sparkstore.tables.delta_files import newest_version
from sparkstore.tables.fencing import check_may_work
from sparkstore.tables.lease import jobs_lease
from sparkstore.tables.marks import mark_durable
from sparkstore.tables.root import Root, open_root
from sparkstore.views.spark_tables import statement, table_names, translated

BOUNDARIES = ("healed", "append checked", "appended", "fold started", "folded")
"""Moments between the commits of a job, in order; the last two come once for each step."""


def run(
    spark: SparkSession,
    where: Root | str | Path,
    *,
    limits: Limits | None = None,
    upkeep: Upkeep | None = None,
    at: Failpoint = no_failpoint,
    check: Callable[[Path], None] = check_may_work,
) -> CompactReport:
    """Compact a root once, up to what its journal held when this began.

    Of a root in a bucket `where` is a copy (`sparkstore.bucket.job_copy`), which publishes what was
    committed whenever `at` is called.

    Args:
        spark: A session with Delta.
        where: The root to compact, or the path of its folder.
        limits: How many records one MERGE of the fold takes; None: the default.
        upkeep: What of history is kept, and for how long.
        at: Called at each of `BOUNDARIES`, and of those of `retention` and `upkeep`.
        check: Refuses a root that no job may work on.

    Raises:
        Locked: Another job has the lease.
        Fenced: A replica took over.
        Unavailable: The journal is broken at its end, so the store must start and heal it; or
            Spark or the storage failed. Nothing is lost; run it again.
        CorruptData: Positions are missing, or there twice.
    """
    began = time.monotonic()
    root = where if isinstance(where, Root) else open_root(where)
    with jobs_lease(root.path), translated("compact"):
        check(root.path)
        healed = _prepare(spark, root)
        at("healed")
        before = read_meta(root)
        history_before = last_position(root.history)
        moved = _append(spark, root, before, history_before, at)
        # P must never survive a power cut that takes history's end: a start goes on after P.
        mark_durable(root, {"history": newest_version(root.history)})
        changed = fold_all(spark, root, moved.last, limits or Limits(), at)
        rows_dropped, files_deleted = _tidy(spark, root, upkeep or Upkeep(), at)
        meta = read_meta(root)
    return CompactReport(
        job="compact",
        root=str(root.path),
        position_before=before.position,
        position_after=meta.position,
        history_before=history_before,
        history_after=moved.last,
        records_moved=moved.last - history_before,
        entries_changed=sum(changed),
        fold_count=len(changed),
        bytes_moved=moved.size_bytes,
        tables_healed=healed,
        history_start=meta.history_start,
        rows_dropped=rows_dropped,
        files_deleted=files_deleted,
        seconds=round(time.monotonic() - began, 3),
    )


def run_in_copy(
    spark: SparkSession, root: Root, publish: Failpoint, *, limits: Limits, upkeep: Upkeep
) -> CompactReport:
    """Compact the copy of a root in a bucket (`sparkstore.bucket.job_copy`).

    Args:
        spark: A session with Delta.
        root: The copy, whose bucket was asked whether a job may work on it.
        publish: Publishes what was committed; called as `at` of `run`.
        limits: As of `run`.
        upkeep: As of `run`.

    Raises:
        StoreError: As `run` and `publish`.
    """
    if root.remote is not None:
        tell_hadoop(spark, root.remote.hadoop_settings())
    return run(spark, root, limits=limits, upkeep=upkeep, at=publish, check=lambda _: None)


def _tidy(spark: SparkSession, root: Root, upkeep: Upkeep, at: Failpoint) -> tuple[int, int]:
    """Drop rows of history that nobody needs, and files; return how many of each."""
    rows = 0
    if upkeep.history_days is not None:
        now = time.time_ns() // 1000
        rows = retain(spark, root, history_days=upkeep.history_days, now=now, at=at)
    return rows, tidy(spark, root, reader_grace_s=upkeep.reader_grace_s, at=at)


def _prepare(spark: SparkSession, root: Root) -> list[str]:
    """Heal a root, and have its tables keep the statistics that a new one has."""
    healed = _heal(root)
    keep_statistics(spark, root)
    return healed


def _heal(root: Root) -> list[str]:
    """Set aside broken ends of the tables that jobs commit to.

    Raises:
        Unavailable: The journal's end is broken; nothing was changed.
    """
    if root.remote is not None:  # in a bucket a version is whole or absent
        return []
    if healing.check(root, "journal") is not None:
        message = f"{root.path}: the journal is broken at its end: start the store, it heals it"
        raise Unavailable(message)
    return [healed.table for healed in healing.heal(root, ("history", "state"))]


class _Moved(NamedTuple):
    """The new end of history, and the size of the journal's files that held what was moved."""

    last: int
    size_bytes: int


def _append(spark: SparkSession, root: Root, meta: Meta, after: int, at: Failpoint) -> _Moved:
    """Append to `history` what counts in the journal after its end.

    The journal's version is looked up once, before the openings that fence its rows; what lands
    later is for the next run.

    Raises:
        CorruptData: The journal does not go on where `history` ends.
        Unavailable: The commit is not there afterwards; there is no room for it.
    """
    version = newest_version(root.journal)
    files = [file for file in extents(root.journal, version) if file.last > after]
    if root.remote is None:  # the copy of a bucket may have the logs alone
        check_has_room(root.path, sum(file.size_bytes for file in files))
    values = {
        "journal": f"{table_names(root)['journal']} VERSION AS OF {version}",
        "after": str(after),
        "counts": counts(openings(spark, root, meta), after),
    }
    rows = spark.sql(statement("journal_rows", values))
    counted = _counted(rows, after)
    last = counted.last
    at("append checked")
    if last > after:
        _append_rows(root, rows, PositionRange(after, last), files, counted.bringing)
    at("appended")
    return _Moved(last, sum(file.size_bytes for file in files))


def _append_rows(
    root: Root, rows: DataFrame, moved: PositionRange, files: list[Extent], bringing: int
) -> None:
    pieces = chunks(moved.after, moved.last, files)
    size_bytes = sum(file.size_bytes for file in files)
    most = rows_per_file(moved.last - moved.after, bringing, size_bytes, len(pieces))
    append_clustered(root, rows, pieces, moved.last, most)


class _Counted(NamedTuple):
    """The end of what is to be moved, and how many of its rows bring content."""

    last: int
    bringing: int


def _counted(rows: DataFrame, after: int) -> _Counted:
    row = rows.selectExpr(
        "count(*) AS row_count",
        "coalesce(sum(position), 0) AS total",
        "max(position) AS last",
        f"count_if({BRINGS}) AS bringing",
    ).first()
    assert row is not None
    tally = RecordTally(row.row_count, int(row.total), row.last)
    last = end_of(tally, after)
    if last is None:
        message = (
            f"the journal has {tally.row_count} records after position {after} up to {tally.last},"
            f" not {(tally.last or after) - after}: some are missing or there twice; call the"
            " operator"
        )
        raise CorruptData(message)
    return _Counted(last, row.bringing)
