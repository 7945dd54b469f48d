"""Read the primary for a replication: versions that fit together, counted and compared.

Nothing here changes anything, and nothing is locked: the primary serves, compacts and trims.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from sparkstore.compaction import state_fold
from sparkstore.compaction.history import extents, openings
from sparkstore.compaction.plans.history_plan import Extent, RecordTally, counts, end_of
from sparkstore.errors import CorruptData, Unavailable
from sparkstore.replication.record_at import record_at
from sparkstore.replication.replicas import Pair
from sparkstore.replication.replicate_plan import AGAIN, check_not_ahead, check_reach
from sparkstore.tables.delta_files import newest_version
from sparkstore.tables.root import Root
from sparkstore.views.spark_tables import statement, table_names

_TRIES = 3


class ReplicationSource(NamedTuple):
    """The primary's tables at versions that fit together, and what is new in them.

    Attributes:
        rows: Every record after the replica's end that counts.
        tally: The same, counted; of a sparse history only from where it is gapless.
        row_count: How many `rows` are.
        meta: The meta row of `state` at its version.
        state: Version of `state`.
        files: The files that hold `rows`.
        end: Largest position that the primary has, a ghost's perhaps.
    """

    rows: DataFrame
    tally: RecordTally
    row_count: int
    meta: state_fold.Meta
    state: int
    files: list[Extent]
    end: int


def whole(spark: SparkSession, pair: Pair, after: int) -> tuple[ReplicationSource, int]:
    """Return the records to copy, and the position of the last.

    Raises:
        InvalidRequest: The replica is behind what the primary keeps.
        CorruptData: It is ahead.
        Unavailable: There is a gap, however often one looks.
    """
    for _ in range(_TRIES):
        source = _look(spark, pair.primary, after)
        check_reach(pair.replica.path, after, source.meta.history_start)
        check_not_ahead(pair.replica.path, after, source.end)
        last = end_of(source.tally, max(after, source.meta.history_start - 1))
        if last is not None:
            return source, last
    message = (
        f"{pair.primary.path} has {source.tally.row_count} records after position {after} up to"
        f" {source.tally.last}: some are missing; run it again, or sparkstore verify"
    )
    raise Unavailable(message)


def _look(spark: SparkSession, primary: Root, after: int) -> ReplicationSource:
    # In this order: records leave the journal for history, and history when state has them.
    state, meta = _state(primary)
    journal, history = newest_version(primary.journal), newest_version(primary.history)
    moved_files = extents(primary.history, history)
    moved = max((file.last for file in moved_files), default=0)
    new_files = [file for file in extents(primary.journal, journal) if file.last > moved]
    names = table_names(primary)
    values = {
        "history": f"{names['history']} VERSION AS OF {history}",
        "journal": f"{names['journal']} VERSION AS OF {journal}",
        "after": str(after),
        "moved": str(moved),
        "counts": counts(openings(spark, primary, meta), max(after, moved)),
    }
    rows = spark.sql(statement("unreplicated", values))
    gapless = f"position >= {meta.history_start}"
    row = rows.selectExpr(
        "count(*) AS row_count",
        f"count_if({gapless}) AS gapless_count",
        f"coalesce(sum(position) FILTER (WHERE {gapless}), 0) AS total",
        "max(position) AS last",
    ).first()
    assert row is not None
    tally = RecordTally(row.gapless_count, int(row.total), row.last)
    files = [file for file in (*moved_files, *new_files) if file.last > after]
    end = max([moved, meta.position, *(file.last for file in new_files)])
    return ReplicationSource(rows, tally, row.row_count, meta, state, files, end)


def _state(primary: Root) -> tuple[int, state_fold.Meta]:
    """Version of `state`, and the meta row of that version."""
    for _ in range(_TRIES):
        version = newest_version(primary.state)
        meta = state_fold.read_meta(primary)
        if newest_version(primary.state) == version:
            return version, meta
    message = f"{primary.state} changes faster than it can be read: run it again"
    raise Unavailable(message)


def check_same(pair: Pair, position: int) -> None:
    """Compare the record at the replica's end.

    Raises:
        CorruptData: It is another one, so the two went apart before it.
    """
    if position and record_at(pair.primary, position) != record_at(pair.replica, position):
        message = (
            f"{pair.replica.path} has another record at position {position} than its primary: the"
            f" two went apart; keep one of them, and {AGAIN}"
        )
        raise CorruptData(message)


def lag(primary: Root, last: int) -> tuple[int, float]:
    """Return how many records the primary committed after `last`, and the oldest's age in seconds.

    It goes by the journal's statistics: new records come there, and are in no hurry to leave.
    """
    journal = extents(primary.journal, newest_version(primary.journal))
    count = max(0, max((file.last for file in journal), default=0) - last)
    oldest = record_at(primary, last + 1) if count else None
    if oldest is None:
        return count, 0.0
    return count, round(max(0.0, time.time() - oldest["at"].timestamp()), 3)
