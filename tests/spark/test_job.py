"""The frame of a job: what a run leaves behind, and that it decides nothing."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

from sparkstore.compaction import compact
from sparkstore.core.records import queue_created
from sparkstore.errors import Locked, Unavailable
from sparkstore.jobs import job
from sparkstore.jobs.job import JobSettings
from sparkstore.jobs.report import CompactReport, JobReport
from sparkstore.tables.delta_files import log_folder, newest_version
from sparkstore.tables.lease import jobs_lease
from sparkstore.tables.root import Root
from sparkstore.views import views
from tests.support.spark.tables import journal

SETTINGS = JobSettings(nice=0, progress=False)
NOTHING = CompactReport(
    job="compact", root="", seconds=0.0, position_before=0, position_after=0, history_before=0,
    history_after=0, records_moved=0, entries_changed=0, fold_count=0, bytes_moved=0,
    tables_healed=[],
)  # fmt: skip


def compacted(root: Root, settings: JobSettings = SETTINGS) -> JobReport:
    return job.run("compact", root.path, lambda spark: compact.run(spark, root), settings)


def nothing(root: Root, settings: JobSettings = SETTINGS) -> JobReport:
    return job.run("compact", root.path, lambda _spark: NOTHING, settings)


def runs(spark: SparkSession, root: Root) -> list[Row]:
    return views.sql(spark, root, "SELECT * FROM job_runs ORDER BY began_at").collect()


def test_a_run_leaves_a_row_that_sql_can_ask_and_metrics(
    spark: SparkSession, root: Root, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    last = journal(root, [queue_created(1, "orders", "{}")])
    report = compacted(root, JobSettings(nice=0, textfile=tmp_path, progress=True))
    (row,) = runs(spark, root)
    assert (row.job, row.outcome, row.error) == ("compact", "done", None)
    assert json.loads(row.figures) == report.figures()
    assert report.figures()["records_moved"] == last
    (path,) = tmp_path.glob("*.prom")
    assert "sparkstore_job_success{" in path.read_text()
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("compact ")]
    assert any("appended up to position 1" in line for line in lines)
    assert all(line.split()[2] == "s" and float(line.split()[1]) >= 0 for line in lines)
    assert "done in" in lines[-1]


def test_the_seconds_of_a_run_begin_with_the_command_and_say_where_they_went(
    spark: SparkSession, root: Root
) -> None:
    journal(root, [queue_created(1, "orders", "{}")])
    before_s = 20.0
    began = time.monotonic() - before_s
    report = compacted(root, JobSettings(nice=0, progress=False, began=began))
    assert time.monotonic() - began > report.seconds > before_s
    parts = (report.starting_seconds, report.task_seconds, report.planning_seconds)
    assert all(part is not None and part > 0 for part in parts)
    assert before_s <= (report.starting_seconds or 0) < before_s + 5
    assert sum(part or 0 for part in parts) <= report.seconds
    assert report.waiting_seconds is not None
    (row,) = runs(spark, root)
    assert row.seconds >= report.seconds
    assert json.loads(row.figures)["planning_seconds"] == report.planning_seconds


def test_a_run_that_fails_leaves_a_row_that_says_why(
    spark: SparkSession, root: Root, tmp_path: Path
) -> None:
    journal(root, [queue_created(1, "orders", "{}")])
    (log_folder(root.journal) / f"{newest_version(root.journal):020}.json").write_bytes(b"{")
    with pytest.raises(Unavailable, match="start the store"):
        compacted(root, JobSettings(nice=0, textfile=tmp_path, progress=False))
    (row,) = spark.read.format("delta").load(str(root.table("job_runs"))).collect()
    assert (row.outcome, row.figures) == ("failed", "{}")
    assert "start the store" in row.error
    (path,) = tmp_path.glob("*.prom")
    assert 'sparkstore_job_success{job="compact"' in path.read_text()
    assert "last_success" not in path.read_text()


def test_a_bug_in_a_job_is_in_its_row_too(spark: SparkSession, root: Root) -> None:
    with pytest.raises(ZeroDivisionError):
        job.run("compact", root.path, lambda _spark: 1 // 0, SETTINGS)  # type: ignore[arg-type,return-value]
    assert [(row.outcome, row.error[:16]) for row in runs(spark, root)] == [
        ("failed", "integer division")
    ]


def test_metrics_that_cannot_be_written_are_one_line_and_the_job_is_done(
    spark: SparkSession, root: Root, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "sparkstore"):
        assert nothing(root, JobSettings(nice=0, textfile=tmp_path / "no", progress=False))
    (line,) = caplog.messages
    assert "no metrics" in line
    assert "name a folder that can be written" in line
    assert "\n" not in line
    assert [row.outcome for row in runs(spark, root)] == ["done"]


def test_a_row_that_cannot_be_written_is_one_line_and_the_job_is_done(
    spark: SparkSession, root: Root, caplog: pytest.LogCaptureFixture
) -> None:
    (root.path / "job_runs.lock").mkdir()
    with caplog.at_level(logging.WARNING, "sparkstore"):
        assert nothing(root).outcome == "done"
    (line,) = caplog.messages
    assert "no row" in line
    assert "\n" not in line


def test_a_second_start_is_no_run(spark: SparkSession, root: Root, tmp_path: Path) -> None:
    settings = JobSettings(nice=0, textfile=tmp_path, progress=False)
    with jobs_lease(root.path), pytest.raises(Locked, match="another job is at work"):
        nothing(root, settings)
    assert not root.table("job_runs").exists()
    assert [*tmp_path.glob("*.prom")] == []


def test_a_second_start_that_loses_the_lease_only_to_the_first_is_no_run(
    spark: SparkSession, root: Root
) -> None:
    def late(spark: SparkSession) -> JobReport:
        with jobs_lease(root.path):
            return compact.run(spark, root)

    with pytest.raises(Locked):
        job.run("compact", root.path, late, SETTINGS)
    assert not root.table("job_runs").exists()


def test_the_view_is_of_the_root_that_was_registered_last(
    spark: SparkSession, root: Root, module_root: Root
) -> None:
    nothing(root)
    views.register(spark, root)
    assert spark.catalog.tableExists("job_runs")
    views.register(spark, module_root)
    assert not spark.catalog.tableExists("job_runs")


def test_a_broken_log_of_runs_keeps_nobody_from_the_queues(
    spark: SparkSession, root: Root, caplog: pytest.LogCaptureFixture
) -> None:
    nothing(root)
    for path in log_folder(root.table("job_runs")).glob("*.json"):
        path.write_bytes(b"{")
    with caplog.at_level(logging.WARNING, "sparkstore"):
        views.register(spark, root)
        assert spark.table("queues").collect() == []
    assert [message for message in caplog.messages if "job_runs" in message]
    nothing(root)
    assert len(runs(spark, root)) == 1
