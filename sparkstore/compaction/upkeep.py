"""The files of history and state stay few, large and needed: OPTIMIZE and VACUUM, under the lease.

Every fold adds a few files. OPTIMIZE puts the small ones of a block of entries together, and small
segments become one (`history_layout`); nothing is shuffled. VACUUM then deletes the files that no
version names which anybody may still read: the newest one, the one before the last fold, those of
the last `reader_grace_s`. Before it runs the newest version is made durable, so a power cut cannot
bring back a version that needs what is gone (ARCHITECTURE: Rule 5).
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
from delta import tables
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sparkstore.compaction import state_fold
from sparkstore.compaction.history_layout import MERGE_JOB, merge_segments
from sparkstore.jobs.failpoints import Failpoint
from sparkstore.storage.durable_files import SyncFailed
from sparkstore.tables.delta_files import newest_version
from sparkstore.tables.delta_log_cleaning import clean_log
from sparkstore.tables.marks import mark_durable
from sparkstore.tables.root import Root
from sparkstore.views.spark_tables import delta_name, settings

_log = logging.getLogger(__name__)

BOUNDARIES = ("history optimized", "state optimized", "vacuumed")
"""Moments between the commits of this part of a job; they come even if nothing was to do."""

MOST_FILES = 8
"""So many small files a block may have."""
SMALL_BYTES = 32 << 20
_FOLDS = {"MERGE", "WRITE"}
_MARGIN_S = 60.0
_VACUUM = {
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    "spark.databricks.delta.vacuum.logging.enabled": "false",
}


def tidy(spark: SparkSession, root: Root, *, reader_grace_s: float, at: Failpoint) -> int:
    """Put small files together, delete those that nobody needs; returns how many were deleted.

    Raises:
        Unavailable: A commit is not there afterwards.
        SyncFailed: An fsync failed; the next job writes anew what it was of.
    """
    merge_segments(spark, root, state_fold.read_meta(root).position)
    at("history optimized")
    blocks = sorted(crowded(_files(root.state, "partition.block")))
    places = [f"part = 'entry' AND block = {number}" for number in blocks]
    _optimize_state(spark, root, places)
    at("state optimized")
    deleted = sum(_vacuum(spark, root, table, reader_grace_s) for table in ("history", "state"))
    for table in ("history", "state"):
        try:
            clean_log(root, table, reader_grace_s)
        except SyncFailed:
            raise
        except (OSError, pa.ArrowException) as reason:
            _log.warning("the log of %s stays as long as it is: %s", table, reason)
    at("vacuumed")
    return deleted


def crowded(files: Iterable[tuple[int | None, int]]) -> set[int]:
    """Blocks with too many small files, from the place and size of each file."""
    places = Counter(place for place, size_bytes in files if size_bytes < SMALL_BYTES)
    return {place for place, count in places.items() if place is not None and count > MOST_FILES}


def _files(table: Path, partition: str) -> list[tuple[int | None, int]]:
    actions = DeltaTable(str(table)).get_add_actions(flatten=True)
    columns = (actions.column(name).to_pylist() for name in (partition, "size_bytes"))
    return list(zip(*columns, strict=True))


def _optimize_state(spark: SparkSession, root: Root, places: list[str]) -> None:
    for place in places:
        metadata = state_fold.commit_metadata("compact", newest_version(root.state))
        with settings(spark, {state_fold.METADATA: metadata}):
            # As SQL: Delta's builder makes SQL of the path itself, and quotes no backtick in it.
            spark.sql(f"OPTIMIZE {delta_name(root.spark_location('state'))} WHERE {place}")
        state_fold.check_is_newest(root, "state", metadata)
        _log.info("state: small files of %s put together", place)


def kept_s(commits: list[dict[str, Any]], reader_grace_s: float, now_ms: int) -> float:
    """Return for how many seconds a file may still be needed after its removal.

    The version that the last fold but one left must stay whole, so files that the last one removed
    stay; those that went before may go. VACUUM counts back from when it gets to it, not from
    `now_ms`: hence the margin.

    Args:
        commits: Delta's history of a table, newest first.
        reader_grace_s: How long a query may take.
        now_ms: The time, epoch ms.
    """
    folds = [commit["timestamp"] for commit in commits if _is_fold(commit)]
    last_but_one_ms = folds[1] if len(folds) > 1 else 0
    return max(reader_grace_s, (now_ms - last_but_one_ms) / 1000 + _MARGIN_S)


def _is_fold(commit: dict[str, Any]) -> bool:
    """True for a commit that changed rows; small segments that were put together are the same."""
    is_merge = f'"{MERGE_JOB}"' in (commit.get("userMetadata") or "")
    return commit.get("operation") in _FOLDS and not is_merge


def _vacuum(spark: SparkSession, root: Root, table: str, reader_grace_s: float) -> int:
    if root.remote is not None:  # whose files `bucket.job_copy` removes
        return 0
    path = root.table(table)
    mark_durable(root, {table: newest_version(path)})
    delta = DeltaTable(str(path))
    before = _data_files(path)
    if len(before) < 2 * len(delta.file_uris()):
        return 0
    kept = kept_s(delta.history(100), reader_grace_s, time.time_ns() // 1_000_000)
    with settings(spark, _VACUUM):
        _by_spark(spark, root, table).vacuum(kept / 3600)
    deleted = len(before) - len(_data_files(path))
    _log.info("%s: %d files deleted that no reader needs", table, deleted)
    return deleted


def _by_spark(spark: SparkSession, root: Root, table: str) -> tables.DeltaTable:
    """A table as the engine that commits to it has it (ARCHITECTURE: Rule 2)."""
    return tables.DeltaTable.forPath(spark, root.spark_location(table))


def _data_files(table: Path) -> list[Path]:
    return [*table.glob("*/*.parquet"), *table.glob("*/*/*.parquet")]
