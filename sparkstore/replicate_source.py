"""What a replication reads of the primary: versions that fit together, counted, compared.

Nothing here changes anything, and nothing is locked: the primary serves, compacts and trims.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from sparkstore import state_fold
from sparkstore.delta_files import newest_version
from sparkstore.errors import CorruptData, Unavailable
from sparkstore.record_at import record_at
from sparkstore.recovery import journal_tail
from sparkstore.replicas import Pair
from sparkstore.replicate_plan import (
    AGAIN,
    Extent,
    Found,
    check_not_ahead,
    check_reach,
    end_of,
)
from sparkstore.root import Root
from sparkstore.tables import statement, table_names

_TRIES = 3
_OPENINGS_VIEW = "sparkstore_replicate_openings"


class Source(NamedTuple):
    """The primary's tables at versions that fit together, and what is new in them.

    Attributes:
        rows: Every record after the replica's end that counts.
        found: The same, counted; of a sparse history only from where it is gapless.
        row_count: How many `rows` are.
        meta: Of `state` at its version.
        state: Version of `state`.
        files: The files that hold `rows`.
        end: Largest position that the primary has, a ghost's perhaps.
    """

    rows: DataFrame
    found: Found
    row_count: int
    meta: state_fold.Meta
    state: int
    files: list[Extent]
    end: int


def whole(spark: SparkSession, pair: Pair, after: int) -> tuple[Source, int]:
    """What to copy, and its last position.

    Raises:
        InvalidRequest: The replica is behind what the primary keeps.
        CorruptData: It is ahead.
        Unavailable: There is a gap, however often one looks.
    """
    for _ in range(_TRIES):
        source = _look(spark, pair.primary, after)
        check_reach(pair.replica.path, after, source.meta.history_start)
        check_not_ahead(pair.replica.path, after, source.end)
        last = end_of(source.found, max(after, source.meta.history_start - 1))
        if last is not None:
            return source, last
    message = (
        f"{pair.primary.path} has {source.found.row_count} records after position {after} up to"
        f" {source.found.last}: some are missing; run it again, or sparkstore verify"
    )
    raise Unavailable(message)


def _look(spark: SparkSession, primary: Root, after: int) -> Source:
    # In this order: records leave the journal for history, and history when state has them.
    state = newest_version(primary.state)
    meta = state_fold.read_meta(primary)
    pinned = {"state": state, "journal": newest_version(primary.journal)}
    pinned["history"] = newest_version(primary.history)
    names = {
        name: f"{table} VERSION AS OF {pinned[name]}"
        for name, table in table_names(primary).items()
    }
    moved = last_position(spark, names["history"])
    rows = _rows(spark, names, after=after, moved=moved, folded=meta.position)
    counted = f"position >= {meta.history_start}"
    row = rows.selectExpr(
        "count(*) AS row_count",
        f"count_if({counted}) AS gapless_count",
        f"coalesce(sum(position) FILTER (WHERE {counted}), 0) AS total",
        "max(position) AS last",
    ).first()
    assert row is not None
    found = Found(row.gapless_count, int(row.total), row.last)
    history = _extents(primary.history, pinned["history"])
    journal = [file for file in _extents(primary.journal, pinned["journal"]) if file.last > moved]
    end = max([moved, meta.position, *(file.last for file in journal)])
    files = [file for file in (*history, *journal) if file.last > after]
    return Source(rows, found, row.row_count, meta, state, files, end)


def _rows(
    spark: SparkSession, names: Mapping[str, str], *, after: int, moved: int, folded: int
) -> DataFrame:
    """The records to copy, pinned; the openings are looked up once, however often it is read."""
    found = spark.sql(statement("unreplicated_openings", {**names, "folded": str(folded)}))
    openings = spark.createDataFrame(found.collect(), found.schema)
    openings.createOrReplaceTempView(_OPENINGS_VIEW)
    try:
        numbers = {"after": str(after), "moved": str(moved), "openings": _OPENINGS_VIEW}
        return spark.sql(statement("unreplicated", {**names, **numbers}))
    finally:
        spark.catalog.dropTempView(_OPENINGS_VIEW)


def _extents(table: Path, version: int) -> list[Extent]:
    """Files of a version that hold positions."""
    actions = pa.table(DeltaTable(str(table), version=version).get_add_actions(flatten=True))
    files = zip(actions["max.position"].to_pylist(), actions["size_bytes"].to_pylist(), strict=True)
    return [Extent(last, size) for last, size in files if last is not None]


def last_position(spark: SparkSession, history: str) -> int:
    """The end of a `history`, by its name in SQL, from statistics; 0 if it is empty."""
    found = spark.sql(f"SELECT max(position) FROM {history}").first()  # noqa: S608
    return 0 if found is None or found[0] is None else int(found[0])


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
    """What the primary has committed after `last`, and how old the oldest of it is in seconds."""
    count = max(0, journal_tail(primary).last_position - last)
    oldest = record_at(primary, last + 1) if count else None
    if oldest is None:
        return count, 0.0
    return count, round(max(0.0, time.time() - oldest["at"].timestamp()), 3)
