"""The compaction job: records go from `journal` to `history`, and are folded into `state`.

Under the jobs' lease: (1) append to `history` what the journal holds after its end, (2, 3) fold
what `history` holds after P into `state`, one MERGE for each step (`state_fold`). Each goes by the
end of its own table alone, and each Delta commit leaves a valid store; so a job killed anywhere
can be run again, and so can one that was not. (4) Passed segments of history lose what nobody
needs (`retention`), small files are put together and old ones deleted (`upkeep`). The journal is
not touched: the store trims it, behind its durable marks (Rule 5).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import reduce
from pathlib import Path

import pyarrow.dataset as ds
from pyspark.sql import DataFrame, SparkSession

from sparkstore import healing, state_fold
from sparkstore.compact_plan import Extent, Limits, Step, Upkeep, pieces, steps
from sparkstore.delta_files import newest_version
from sparkstore.errors import CorruptData, Unavailable
from sparkstore.fencing import check_may_work
from sparkstore.lease import jobs_lease
from sparkstore.marks import mark_durable
from sparkstore.records import Kind
from sparkstore.report import CompactReport
from sparkstore.retention import retain
from sparkstore.root import Root, open_root
from sparkstore.schema import ROW
from sparkstore.snapshot import FileStats, columns_of, read_files, snapshot
from sparkstore.state_fold import Meta
from sparkstore.tables import statement, table_names, translated
from sparkstore.upkeep import tidy

_log = logging.getLogger(__name__)

At = Callable[[str], None]
BOUNDARIES = ("healed", "append checked", "appended", "fold started", "folded")
"""Moments between the commits of a job, in order; the last two come once for each step."""


def _nowhere(_boundary: str) -> None:
    """What a job does at a boundary, unless a test wants it to stop there."""


def run(
    spark: SparkSession,
    where: Root | str | Path,
    *,
    limits: Limits | None = None,
    upkeep: Upkeep | None = None,
    at: At = _nowhere,
) -> CompactReport:
    """Compact a root once, up to what its journal held when this began.

    Args:
        spark: A session with Delta.
        where: The root.
        limits: Sizes.
        upkeep: What of history is kept, and for how long.
        at: Called at each of `BOUNDARIES`, and of those of `retention` and `upkeep`.

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
        check_may_work(root.path)
        healed = _heal(root)
        at("healed")
        meta = before = state_fold.read_meta(root)
        history_before = _last_position(root)
        history_last = _append(spark, root, meta, history_before, at)
        bytes_moved = sum(file.size_bytes for file in _extents(root, history_before))
        _make_history_durable(root)
        changed = _fold(spark, root, steps(meta.position, history_last, limits or Limits()), at)
        rows_dropped, files_deleted = _tidy(spark, root, upkeep or Upkeep(), at)
        meta = state_fold.read_meta(root)
    return CompactReport(
        job="compact",
        root=str(root.path),
        position_before=before.position,
        position_after=meta.position,
        history_before=history_before,
        history_after=history_last,
        records_moved=history_last - history_before,
        entries_changed=sum(changed),
        fold_count=len(changed),
        bytes_moved=bytes_moved,
        tables_healed=healed,
        history_start=meta.history_start,
        rows_dropped=rows_dropped,
        files_deleted=files_deleted,
        seconds=round(time.monotonic() - began, 3),
    )


def _fold(spark: SparkSession, root: Root, found: list[Step], at: At) -> list[int]:
    """Fold each step; entries changed by each."""
    changed = []
    for step in found:
        at("fold started")
        changed.append(state_fold.fold(spark, root, state_fold.read_meta(root), step))
        at("folded")
    return changed


def _tidy(spark: SparkSession, root: Root, upkeep: Upkeep, at: At) -> tuple[int, int]:
    """Rows of history dropped, and files deleted."""
    rows = 0
    if upkeep.history_days is not None:
        now = time.time_ns() // 1000
        rows = retain(spark, root, history_days=upkeep.history_days, now=now, at=at)
    return rows, tidy(spark, root, reader_grace_s=upkeep.reader_grace_s, at=at)


def _make_history_durable(root: Root) -> None:
    """P must never survive a power cut that takes history's end: a start goes on after P.

    Raises:
        Unavailable: An fsync failed.
    """
    try:
        mark_durable(root, {"history": newest_version(root.history)})
    except OSError as reason:
        message = f"fsync of {root.history} failed: {reason}: look at the disk, run it again"
        raise Unavailable(message) from reason


def _heal(root: Root) -> list[str]:
    """Set aside broken ends of the tables that jobs commit to.

    Raises:
        Unavailable: The journal's end is broken; nothing was changed.
    """
    if healing.check(root, "journal") is not None:
        message = f"{root.path}: the journal is broken at its end: start the store, it heals it"
        raise Unavailable(message)
    return [found.table for found in healing.heal(root, ("history", "state"))]


def _last_position(root: Root) -> int:
    """The end of `history`, from the statistics in its log; 0 if it is empty.

    Raises:
        CorruptData: A file of it has none.
    """
    files = snapshot(root.history)
    if any(file.row_count < 0 for file in files):
        message = f"{root.history} has files without statistics: restore it from a replica"
        raise CorruptData(message)
    return max((file.positions[1] for file in files), default=0)


def _append(spark: SparkSession, root: Root, meta: Meta, after: int, at: At) -> int:
    """Append to `history` what counts in the journal after its end; returns the new end.

    One file for each piece, each by one task, in the order of positions: no row is shuffled, and
    the files' statistics tell ranges that do not overlap.

    Raises:
        CorruptData: The journal does not go on where `history` ends.
        Unavailable: The commit is not there afterwards.
    """
    with _openings(spark, root, meta):
        last = _checked_end(spark, root, after)
        at("append checked")
        if last > after:
            metadata = state_fold.commit_metadata("compact", last)
            moved = [
                spark.sql(_unmoved(root, piece.after, piece.last)).coalesce(1)
                for piece in pieces(after, last, _extents(root, after))
            ]
            (
                reduce(DataFrame.union, moved)
                .write.format("delta")
                .mode("append")
                .option("txnAppId", "append")
                .option("txnVersion", last)
                .option("userMetadata", metadata)
                .save(str(root.history))
            )
            state_fold.check_is_newest(root, "history", metadata)
            _log.info("history: records after position %d up to %d appended", after, last)
    at("appended")
    return last


@contextmanager
def _openings(spark: SparkSession, root: Root, meta: Meta) -> Iterator[None]:
    """Look up once, for the statements that read the journal, every `opened` that may fence a row.

    The journal is looked at before history: a row moves the other way.
    """
    found = [*_opened(snapshot(root.journal), 0), *_opened(snapshot(root.history), meta.position)]
    values = ", ".join(
        f"({epoch}L, {position}L)" for epoch, position in [(meta.epoch, meta.position), *found]
    )
    rows = spark.sql(f"SELECT * FROM VALUES {values} AS opening(epoch, position)")  # noqa: S608
    rows.createOrReplaceTempView(_OPENINGS_VIEW)
    try:
        yield
    finally:
        spark.catalog.dropTempView(_OPENINGS_VIEW)


def _opened(files: Iterable[FileStats], after: int) -> list[tuple[int, int]]:
    where = (ds.field("kind") == Kind.OPENED.column) & (ds.field("position") > after)
    columns = columns_of(ROW, ["epoch", "position", "kind"])
    rows = read_files((file for file in files if file.positions[1] > after), columns, where)
    return list(zip(rows["epoch"].to_pylist(), rows["position"].to_pylist(), strict=True))


def _checked_end(spark: SparkSession, root: Root, after: int) -> int:
    unmoved = _unmoved(root, after, _ANY)
    found = spark.sql(
        "SELECT count(*) AS row_count, coalesce(sum(position), 0) AS total,"  # noqa: S608
        f" max(position) AS last FROM ({unmoved})"
    ).first()
    assert found is not None
    last: int = after if found.last is None else found.last
    length = last - after
    if (found.row_count, found.total) != (length, length * (last + after + 1) // 2):
        message = (
            f"the journal has {found.row_count} records after position {after} up to {last},"
            f" not {length}: some are missing or there twice; call the operator"
        )
        raise CorruptData(message)
    return last


_ANY = (1 << 63) - 1
_OPENINGS_VIEW = "sparkstore_compact_openings"


def _unmoved(root: Root, after: int, last: int) -> str:
    numbers = {"openings": _OPENINGS_VIEW, "after": str(after), "last": str(last)}
    return statement("unmoved", table_names(root) | numbers)


def _extents(root: Root, after: int) -> list[Extent]:
    """The journal's files that hold positions after `after`."""
    return [
        Extent(*file.positions, file.size_bytes)
        for file in snapshot(root.journal)
        if file.positions[1] > after
    ]
