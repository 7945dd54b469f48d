"""History keeps what is still needed: passed segments are rewritten with only that.

A segment has passed when everything in it is folded, its newest file is older than `history_days`,
and a newer segment has begun. What is kept of it: the rows that bring the content of messages that
are on a queue now, and every `opened`. The order, each step under the jobs' lease and each a
commit of its own:

    1   `history_start` in meta is raised past the segment: from now on nobody asks for it whole
    2   that version of state is made durable, with P and the entries that say what is needed
    3   the segment is rewritten in place, positions unchanged: one commit for each segment

Why nothing that is needed is lost, wherever this is killed: 3 removes only what the durable state
of 2 does not name. An entry that comes later brings content with a higher position, in a later
segment. The exception is content that was given in pieces before and enqueued after: a message must
not take `history_days` to arrive, and that is a day at least. Between 1 and 3 history holds more
than it says. A power cut after 3 cannot bring an older state back, which would name what is gone.
The files that 3 replaced stay until VACUUM takes them (`upkeep`), so a query that has begun ends.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import NamedTuple

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sparkstore.compaction import state_fold
from sparkstore.jobs.failpoints import Failpoint
from sparkstore.tables.delta_files import newest_version
from sparkstore.tables.marks import mark_durable
from sparkstore.tables.root import Root
from sparkstore.views.spark_tables import statement, table_names

_log = logging.getLogger(__name__)

BOUNDARIES = ("history start raised", "segment rewritten")
"""Moments between the commits; the last comes once for each segment."""

_DAY_US = 86_400_000_000


class HistorySegment(NamedTuple):
    """Statistics of one segment of history, as Delta's log has them.

    Attributes:
        number: The number of the segment, a partition value of history.
        first: Least position in it.
        last: Largest position in it.
        row_count: Rows in it.
        changed_at: When its newest file was written, UTC µs.
    """

    number: int
    first: int
    last: int
    row_count: int
    changed_at: int


def passed(
    segments: Iterable[HistorySegment], *, start: int, folded: int, history_days: float, now: int
) -> int:
    """The new `history_start`: after the oldest whole segments that have passed.

    Args:
        segments: All of history.
        start: The old one.
        folded: The position up to which `state` holds the fold: what is after it must stay.
        history_days: Age at which a segment passes.
        now: The time that ages are counted from, UTC µs.
    """
    # Not the newest one: its last record is the end of history, which must not fall behind P.
    for segment in sorted(segments, key=lambda one: one.last)[:-1]:
        if segment.last < start:
            continue
        is_old = now - segment.changed_at >= history_days * _DAY_US
        if not is_old or segment.last > folded or segment.first > start:
            break
        start = segment.last + 1
    return start


def worth_rewriting(segment: HistorySegment, needed: int) -> bool:
    """True if a rewrite would at least halve it: so each row is rewritten a few times in all."""
    return 2 * needed <= segment.row_count


def retain(spark: SparkSession, root: Root, *, history_days: float, now: int, at: Failpoint) -> int:
    """Drop what passed segments hold and nobody needs; returns the number of rows dropped.

    Raises:
        Unavailable: A commit is not there afterwards.
    """
    meta = state_fold.read_meta(root)
    segments = _segments(root)
    start = passed(
        segments, start=meta.history_start, folded=meta.position, history_days=history_days, now=now
    )
    if start > meta.history_start:
        _raise_start(spark, root, start)
    at("history start raised")
    mark_durable(root, {"state": newest_version(root.state)})
    dropped = 0
    old = [segment for segment in segments if segment.last < start]
    needed = _needed(spark, root, old)
    for segment in old:
        count = needed.get(segment.number, 0)
        if worth_rewriting(segment, count):
            _rewrite(spark, root, segment)
            dropped += segment.row_count - count
            at("segment rewritten")
    return dropped


def _segments(root: Root) -> list[HistorySegment]:
    actions = DeltaTable(str(root.history)).get_add_actions(flatten=True)
    columns = ("partition.segment", "min.position", "max.position", "num_records")
    values = [actions.column(name).to_pylist() for name in (*columns, "modification_time")]
    segments: dict[int, HistorySegment] = {}
    for number, first, last, count, changed in zip(*values, strict=True):
        changed_at = 1000 * int(changed)  # Delta's log has milliseconds
        known = segments.get(number, HistorySegment(number, first, last, 0, 0))
        segments[number] = HistorySegment(
            number,
            min(first, known.first),
            max(last, known.last),
            count + known.row_count,
            max(changed_at, known.changed_at),
        )
    return [*segments.values()]


def _raise_start(spark: SparkSession, root: Root, start: int) -> None:
    metadata = state_fold.commit_metadata("compact", start)
    with state_fold.published_once(spark, "history_start", start, metadata):
        spark.sql(statement("history_start", table_names(root) | {"start": str(start)}))
    state_fold.check_is_newest(root, "state", metadata)
    _log.info("history is whole from position %d on", start)


def _needed(spark: SparkSession, root: Root, segments: list[HistorySegment]) -> dict[int, int]:
    """Count the needed rows of each segment; segments without any are left out."""
    if not segments:
        return {}
    needed = _still_needed(root, [segment.number for segment in segments])
    counts = f"SELECT segment, count(*) AS row_count FROM ({needed}) GROUP BY segment"  # noqa: S608
    return {row.segment: row.row_count for row in spark.sql(counts).collect()}


def _still_needed(root: Root, segments: list[int]) -> str:
    numbers = ", ".join(map(str, segments))
    return statement("still_needed", table_names(root) | {"segments": numbers})


def _rewrite(spark: SparkSession, root: Root, segment: HistorySegment) -> None:
    metadata = state_fold.commit_metadata("compact", segment.last)
    values = {"segment": str(segment.number), "needed": _still_needed(root, [segment.number])}
    (
        spark.sql(statement("retained", table_names(root) | values))
        .coalesce(1)
        .write.format("delta")
        .mode("overwrite")
        .option("replaceWhere", f"segment = {segment.number}")
        .option("userMetadata", metadata)
        .save(root.spark_location("history"))
    )
    state_fold.check_is_newest(root, "history", metadata)
    mark_durable(root, {"history": newest_version(root.history)})
    _log.info("history: segment %d rewritten with what is needed of it", segment.number)
