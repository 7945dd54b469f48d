"""A job that ends anywhere leaves a valid store, and running it again is right."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sparkstore.compaction import compact
from sparkstore.compaction.plans.compact_plan import Limits
from sparkstore.core.records import message_enqueued
from sparkstore.errors import CorruptData, Locked, Unavailable
from sparkstore.jobs.report import CompactReport
from sparkstore.tables.lease import jobs_lease
from sparkstore.tables.root import Root
from sparkstore.views import views
from tests.support.histories.histories import Row, fold_rows
from tests.support.histories.history_builder import HistoryBuilder
from tests.support.spark.killing import KILLS, Stopped, kill_a_job, stop_at
from tests.support.spark.tables import (
    HEADER,
    VIEWED,
    expected,
    journal,
    journal_rows,
    stored,
    viewed,
)

PLACES = ("append checked", "fold started", "healed", "appended", "folded")


def _history() -> list[Row]:
    builder = HistoryBuilder()
    for number in range(12):
        builder.create_queue(number, number)
        builder.publish(number, number)
        builder.acquire(number, number)
        builder.create_exchange(number, number)
        builder.bind(number, number)
    builder.destroy_queue(1, 0)
    for number in range(5):
        builder.release(number, number)
        builder.dequeue(number, number)
    return builder.history.rows


class Stop(NamedTuple):
    """What was there when a job had stopped: P, H, entries and wiring; perhaps what views said."""

    position: int
    history_last: int
    stored: tuple[Any, ...]
    viewed: tuple[Any, ...] | None


class Told(NamedTuple):
    """One root, whose jobs stopped at each boundary in turn, then ran to the end, then again."""

    rows: list[Row]
    stops: dict[str, Stop]
    report: CompactReport
    again: CompactReport


@pytest.fixture(scope="module")
def told(spark: SparkSession, module_root: Root) -> Told:
    rows = _history()
    journal_rows(module_root, rows)
    views.register(spark, module_root, VIEWED)
    stops = {}
    for boundary in compact.BOUNDARIES:
        with pytest.raises(Stopped):
            compact.run(spark, module_root, limits=_half(rows), at=stop_at(boundary))
        # At the other boundaries the tables are as they were at the one before.
        stops[boundary] = _look(spark, module_root, query=boundary in {"appended", "folded"})
    report = compact.run(spark, module_root)
    stops["the end"] = _look(spark, module_root, query=True)
    return Told(rows, stops, report, compact.run(spark, module_root))


def _half(rows: list[Row]) -> Limits:
    return Limits(len(rows) // 2 + 1)


def _look(spark: SparkSession, root: Root, *, query: bool) -> Stop:
    position, *entries_and_wiring = stored(root)
    history = DeltaTable(str(root.history)).to_pyarrow_table(columns=["position"])["position"]
    assert sorted(history.to_pylist()) == list(range(1, len(history) + 1))
    said = viewed(spark) if query else None
    return Stop(position, len(history), tuple(entries_and_wiring), said)


@pytest.mark.slow
@pytest.mark.parametrize("boundary", [*compact.BOUNDARIES, "the end"])
def test_a_job_stopped_at_any_boundary_leaves_a_state_and_views_that_are_right(
    told: Told, boundary: str
) -> None:
    stop, last = told.stops[boundary], len(told.rows)
    half = _half(told.rows).step_records
    ends = [(0, 0), (0, 0), (0, last), (0, last), (half, last)]
    places = dict(zip(compact.BOUNDARIES, ends, strict=True))
    assert (stop.position, stop.history_last) == places.get(boundary, (last, last))
    assert stop.stored == expected(fold_rows(told.rows[: stop.position]))
    if stop.viewed is not None:
        assert stop.viewed == expected(fold_rows(told.rows))


@pytest.mark.slow
def test_a_job_goes_on_where_those_that_stopped_ended(told: Told) -> None:
    half, last = _half(told.rows).step_records, len(told.rows)
    report = told.report
    assert (report.history_before, report.history_after, report.records_moved) == (last, last, 0)
    assert (report.position_before, report.position_after) == (half, last)
    assert report.fold_count == 1


@pytest.mark.slow
def test_a_job_run_twice_changes_nothing_the_second_time(told: Told) -> None:
    again = told.again
    assert (again.records_moved, again.entries_changed, again.fold_count) == (0, 0, 0)


@pytest.mark.slow
def test_other_commits_of_the_session_are_not_skipped_after_a_fold(
    spark: SparkSession, told: Told, tmp_path: Path
) -> None:
    assert told.report.fold_count > 0
    other = str(tmp_path / "other")
    for _ in range(2):
        spark.range(3).write.format("delta").mode("append").save(other)
    assert spark.read.format("delta").load(other).count() == 6


@pytest.mark.slow
def test_a_gap_in_the_journal_is_reported_and_nothing_is_moved(
    spark: SparkSession, root: Root
) -> None:
    rows = _history()
    journal_rows(root, rows)
    journal(root, [message_enqueued(1, "q", 99, HEADER, b"abc")], first=len(rows) + 2)
    with pytest.raises(CorruptData, match="some are missing"):
        compact.run(spark, root)
    assert stored(root)[0] == 0


def test_a_busy_lease_is_reported(spark: SparkSession, root: Root) -> None:
    with jobs_lease(root.path), pytest.raises(Locked):
        compact.run(spark, root)


def test_a_broken_journal_is_left_alone(spark: SparkSession, root: Root) -> None:
    journal_rows(root, _history())
    newest = max((root.journal / "_delta_log").glob("*.json"))
    newest.write_bytes(bytes(newest.stat().st_size))
    with pytest.raises(Unavailable, match="start the store"):
        compact.run(spark, root)
    assert newest.exists()


@pytest.mark.slow
def test_a_compaction_killed_again_and_again_loses_nothing(spark: SparkSession, root: Root) -> None:
    rows, dice = _history(), random.Random(7)
    journal_rows(root, rows[:2])
    views.register(spark, root, VIEWED)
    size, end = len(rows) // KILLS, 0
    for number in range(KILLS):
        begin, end = end, len(rows) if number == KILLS - 1 else end + size
        journal_rows(root, rows[max(begin, 2) : end])
        place = PLACES[number % len(PLACES)]
        kill_a_job("compact.run(spark, root, at=at)", [str(root.path)], place, dice.random())
        assert viewed(spark) == expected(fold_rows(rows[:end]))
        position, *folded = stored(root)
        assert tuple(folded) == expected(fold_rows(rows[:position]))
    compact.run(spark, root)
    assert stored(root) == (len(rows), *expected(fold_rows(rows)))
    assert viewed(spark) == expected(fold_rows(rows))
