"""The metrics of a job, read by Prometheus' own parser."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sparkstore.jobs import textfile
from sparkstore.jobs.job_runs import JobRun

ROOT = 'ro"ot\\with\neverything ü'
BEGAN_AT = datetime(2026, 11, 21, 12, tzinfo=UTC)
DONE = JobRun(
    "1", "compact", BEGAN_AT, 2.5, "done", {"records_moved": 7, "tables_healed": ["state"]}
)
FAILED = JobRun("2", "compact", BEGAN_AT, 10.0, "failed", {}, "no room")


def metrics(text: str) -> dict[str, float]:
    """Values by name, after Prometheus' name of a metric; every sample has our labels."""
    found = {}
    for family in text_string_to_metric_families(text):
        assert family.type == "gauge"
        assert family.documentation
        (sample,) = family.samples
        assert sample.labels == {"job": "compact", "root": ROOT}
        found[family.name.removeprefix("sparkstore_job_")] = sample.value
    return found


def test_prometheus_reads_every_figure_with_the_labels_as_they_are() -> None:
    ended_s = BEGAN_AT.timestamp() + 2.5
    assert metrics(textfile.text(DONE, ROOT)) == {
        "last_run_timestamp_seconds": ended_s,
        "last_success_timestamp_seconds": ended_s,
        "success": 1,
        "seconds": 2.5,
        "records_moved": 7,
        "tables_healed_count": 1,
    }


def test_figures_that_are_no_numbers_are_left_out() -> None:
    figures = {"note": "x", "nothing": None, "share": 0.25, "is_whole": True, "by_queue": {"a": 1}}
    run = JobRun("3", "compact", BEGAN_AT, 1.0, "done", figures)
    found = metrics(textfile.text(run, ROOT))
    assert {name: found[name] for name in found if name in figures} == {
        "share": 0.25,
        "is_whole": 1,
    }


def test_a_failure_says_so_and_keeps_the_time_of_the_last_success(tmp_path: Path) -> None:
    textfile.write(tmp_path, FAILED, ROOT)
    (path,) = tmp_path.iterdir()
    assert "last_success_timestamp_seconds" not in metrics(path.read_text())
    textfile.write(tmp_path, DONE, ROOT)
    for _ in range(2):
        textfile.write(tmp_path, FAILED, ROOT)
    found = metrics(path.read_text())
    assert found["success"] == 0
    assert found["last_success_timestamp_seconds"] == BEGAN_AT.timestamp() + 2.5
    assert found["last_run_timestamp_seconds"] == BEGAN_AT.timestamp() + 10


def test_each_job_on_each_root_has_a_file_of_its_own_that_a_collector_may_read(
    tmp_path: Path,
) -> None:
    paths = {textfile.write(tmp_path, DONE, root) for root in ("a", "b", "a")}
    assert {path.suffix for path in paths} == {".prom"}
    assert {*tmp_path.iterdir()} == paths
    assert len(paths) == 2
    assert all(path.stat().st_mode & 0o777 == 0o644 for path in paths)


def test_what_is_no_file_of_ours_is_replaced_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / textfile.file_name("compact", ROOT)
    path.write_bytes(b"\xff\0 sparkstore_job_last_success_timestamp_seconds{} soon")
    textfile.write(tmp_path, FAILED, ROOT)
    assert metrics(path.read_text())["success"] == 0


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        textfile.write(tmp_path / "nowhere", DONE, ROOT)
    assert [*tmp_path.iterdir()] == []
