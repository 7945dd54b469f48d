"""The replication job: the primary's records go to the replica's `history` and `state`.

Under the replica's lease:

1. append to the replica's `history` what the primary's history and journal hold after its end
2. give a new replica the primary's `state` as it is
3. fold what `history` holds after P into `state`, as a compaction does

The primary serves, compacts and trims
meanwhile: nothing there is locked, and nothing but its list of replicas is changed.

Why each record comes once, whenever this is killed: the append is one Delta commit, its
transaction number is the last position in it. The next run goes on after the largest position
that is there. A run decides by versions of the primary's tables that it looks up once, state before
journal before history. Records move the other way, so what a later version of one table no longer
has is in the next. The positions are counted before the append reads the same versions again.

Why promotion finds a whole store: P says less than `history` holds, because history is fsynced
and marked before a fold, and the fold is one commit. Only a bootstrap that was cut off between its
append and its copy of `state` cannot be promoted; `promote` looks first.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession

from sparkstore.compaction.history import append, last_position
from sparkstore.compaction.plans.compact_plan import Limits
from sparkstore.compaction.plans.history_plan import cuts
from sparkstore.compaction.state_fold import append_once, fold_all, read_meta
from sparkstore.errors import Unavailable
from sparkstore.jobs.failpoints import Failpoint, no_failpoint
from sparkstore.jobs.report import JobReport
from sparkstore.replication.replicas import Pair, paired
from sparkstore.replication.replicate_source import ReplicationSource, check_same, lag, whole
from sparkstore.tables import healing
from sparkstore.tables.delta_files import newest_version
from sparkstore.tables.marks import mark_durable
from sparkstore.tables.root import Root
from sparkstore.views.spark_tables import translated

BOUNDARIES = (
    "created",
    "healed",
    "append checked",
    "appended",
    "state copied",
    "fold started",
    "folded",
)
"""Moments between the commits of a job, in order; the last two come once for each step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicateReport(JobReport):
    """Figures of one replication; `root` is the replica.

    Attributes:
        primary: The root it copied from.
        generation: The generation that primary and replica have in common.
        is_bootstrap: The replica's `state` was empty, and copied.
        position_before: The last position that the replica's history held before.
        position_after: The same, afterwards.
        records_copied: Records appended to the replica's history.
        entries_changed: Entries that folds put, changed or dropped in the replica's state.
        fold_count: Delta commits of folds.
        tables_healed: Tables of the replica whose broken end was set aside first.
        lag_records: Records that the primary committed to Delta while this ran, and that the next
            run will copy. What it had committed when this began is here: of that the lag is 0.
        lag_seconds: How old the oldest of those is, in a bucket at most; 0 without any.
    """

    primary: str
    generation: int
    is_bootstrap: bool
    position_before: int
    position_after: int
    records_copied: int
    entries_changed: int
    fold_count: int
    tables_healed: list[str]
    lag_records: int
    lag_seconds: float


def run(
    spark: SparkSession,
    primary: str | Path,
    replica: str | Path,
    *,
    limits: Limits | None = None,
    at: Failpoint = no_failpoint,
) -> ReplicateReport:
    """Bring a replica up to what the primary had committed to Delta when this began, or later.

    Args:
        spark: A session with Delta.
        primary: Folder of the root to copy, or where it is in a bucket.
        replica: Folder of its copy; created if it is absent or empty.
        limits: How many records one MERGE of the fold takes; None: the default.
        at: Called at each of `BOUNDARIES`.

    Raises:
        Locked: Another job has the replica's lease.
        Unavailable: The primary's journal is broken at its end, or its tables did not fit
            together; or Spark or the storage failed. Nothing is lost; run it again.
        InvalidRequest: The two may not be primary and replica; nothing was changed.
        Fenced: The primary was superseded; nothing was changed.
        CorruptData: The replica holds other records than the primary; nothing was changed.
    """
    began = time.monotonic()
    with paired(primary, replica) as pair, translated("replicate"):
        at("created")
        healed = [table.table for table in healing.heal(pair.replica, ("history", "state"))]
        at("healed")
        before = last_position(pair.replica.history)
        copied = _copy(spark, pair, before, at)
        changed = fold_all(spark, pair.replica, copied.last, limits or Limits(), at)
        _make_durable(pair.replica, "history", "state")
        lag_records, lag_seconds = _lag(pair, copied.last, began)
    return ReplicateReport(
        job="replicate",
        root=str(pair.replica.path),
        primary=pair.source.location,
        generation=pair.replica.identity.generation,
        is_bootstrap=copied.is_bootstrap,
        position_before=before,
        position_after=copied.last,
        records_copied=copied.row_count,
        entries_changed=sum(changed),
        fold_count=len(changed),
        tables_healed=healed,
        lag_records=lag_records,
        lag_seconds=lag_seconds,
        seconds=round(time.monotonic() - began, 3),
    )


def _lag(pair: Pair, last: int, began: float) -> tuple[int, float]:
    """Return the lag that arose meanwhile; a bucket's copy is as old as this run."""
    if pair.source.folder is not None:
        return lag(pair.primary, last)
    count = pair.source.lag(pair.primary, last)
    return count, round(time.monotonic() - began, 3) if count else 0.0


class _Copied(NamedTuple):
    """The end of the replica's history, what was appended, whether `state` was copied."""

    last: int
    row_count: int
    is_bootstrap: bool


def _copy(spark: SparkSession, pair: Pair, after: int, at: Failpoint) -> _Copied:
    """Append to the replica's history; give a new replica its state."""
    if healing.check(pair.primary, "journal") is not None:
        message = f"{pair.source.location}: the journal is broken at its end: start the store"
        raise Unavailable(message)
    source, last = whole(spark, pair, after)
    check_same(pair, after)
    at("append checked")
    if last > after:
        _append(pair, source, after, last)
    at("appended")
    _make_durable(pair.replica, "history")
    is_bootstrap = read_meta(pair.replica).position == 0 < source.meta.position
    if is_bootstrap:
        _copy_state(spark, pair, source)
    at("state copied")
    return _Copied(last, source.row_count, is_bootstrap)


def _append(pair: Pair, source: ReplicationSource, after: int, last: int) -> None:
    cores = source.rows.sparkSession.sparkContext.defaultParallelism
    pieces = cuts(after, last, source.files, cores=cores)
    append(pair.replica, source.rows, pieces, last=last, job="replicate")


def _copy_state(spark: SparkSession, pair: Pair, source: ReplicationSource) -> None:
    """Copy the primary's state at the version that was looked at, in one commit.

    A replica cannot fold it from history where history is no longer gapless. A block comes whole to
    one task, so that it is one file.
    """
    reader = spark.read.format("delta").option("versionAsOf", source.state)
    rows = reader.load(str(pair.primary.state)).repartitionByRange("part", "block")
    position = source.meta.position
    append_once(rows, pair.replica, "state", app="fold", version=position, job="replicate")


def _make_durable(root: Root, *tables: str) -> None:
    """Mark a replica's tables as durable, as no store does."""
    mark_durable(root, {name: newest_version(root.table(name)) for name in tables})
