"""A job that ends anywhere leaves a valid store, and running it again is right."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sparkstore import compact, views
from sparkstore.compact_plan import Limits
from sparkstore.errors import CorruptData, Locked, Unavailable
from sparkstore.lease import jobs_lease
from sparkstore.records import message_enqueued
from sparkstore.root import Root
from tests.histories import Row, fold_rows
from tests.history_builder import HistoryBuilder
from tests.spark.support import HEADER, expected, journal, journal_rows, stored, viewed

TOP = Path(__file__).parents[2]


class _Stopped(Exception):
    pass


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


@pytest.mark.slow
@pytest.mark.parametrize("boundary", compact.BOUNDARIES)
def test_a_job_stopped_at_any_boundary_leaves_right_views_and_can_be_run_again(
    spark: SparkSession, root: Root, boundary: str
) -> None:
    rows = _history()
    state = expected(fold_rows(rows))
    journal_rows(root, rows)
    views.register(spark, root)

    def stop(reached: str) -> None:
        if reached == boundary:
            raise _Stopped

    with pytest.raises(_Stopped):
        compact.run(spark, root, limits=Limits(len(rows) // 2 + 1), at=stop)
    assert viewed(spark) == state
    report = compact.run(spark, root)
    assert report.position_after == report.history_after == len(rows)
    assert stored(root) == (len(rows), *state)
    assert viewed(spark) == state


@pytest.mark.slow
def test_a_job_run_twice_changes_nothing_the_second_time(spark: SparkSession, root: Root) -> None:
    journal_rows(root, _history())
    compact.run(spark, root)
    again = compact.run(spark, root)
    assert (again.records_moved, again.entries_changed, again.fold_count) == (0, 0, 0)


@pytest.mark.slow
def test_other_commits_of_the_session_are_not_skipped_after_a_fold(
    spark: SparkSession, root: Root, tmp_path: Path
) -> None:
    journal_rows(root, _history())
    compact.run(spark, root)
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
@pytest.mark.parametrize("boundary", ["append checked", "fold started"])
def test_a_killed_process_leaves_a_valid_store(
    spark: SparkSession, root: Root, boundary: str
) -> None:
    rows = _history()
    journal_rows(root, rows)
    job = (
        "import sys\n"
        "from sparkstore.session import local_session\n"
        "from sparkstore.compact import run\n"
        "def at(boundary):\n"
        "    print(boundary, flush=True)\n"
        "run(local_session('killed', heap='1g'), sys.argv[1], at=at)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", job, str(root.path)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=TOP,
        env={**os.environ, "PYTHONPATH": str(TOP)},
    )
    assert process.stdout is not None
    # The kill comes somewhere in the commit that follows the boundary.
    for line in process.stdout:
        if line.strip() == boundary:
            break
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=60)
    process.stdout.close()
    views.register(spark, root)
    assert viewed(spark) == expected(fold_rows(rows))
    compact.run(spark, root)
    assert stored(root) == (len(rows), *expected(fold_rows(rows)))
