"""The log of the jobs' runs: a row each, few files, and a broken one never stops a job."""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from sparkstore.jobs import job_runs
from sparkstore.jobs.job_runs import JobRun, record
from sparkstore.tables.delta_files import log_folder, newest_version
from sparkstore.tables.marks import read_marks
from sparkstore.tables.root import Root, open_or_create_root
from tests.support.checkout import CHECKOUT
from tests.support.roots.damage import DAMAGES, Damage

BEGAN_AT = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return open_or_create_root(tmp_path / "root")


def run(number: int, job: str = "compact") -> JobRun:
    began_at = BEGAN_AT + timedelta(minutes=number)
    return JobRun(f"{number:04d}", job, began_at, 1.5, "done", {"records_moved": number})


def numbers(root: Root) -> list[int]:
    rows = DeltaTable(str(root.table("job_runs"))).to_pyarrow_table().to_pylist()
    return sorted(int(row["run_id"]) for row in rows)


def test_a_row_tells_the_run_and_its_figures_as_json(root: Root) -> None:
    record(root, run(7))
    record(root, JobRun("8", "replicate", BEGAN_AT, 0.5, "failed", {}, "no room: make some"))
    rows = DeltaTable(str(root.table("job_runs"))).to_pyarrow_table().to_pylist()
    by_job = {row["job"]: row for row in rows}
    done, failed = by_job["compact"], by_job["replicate"]
    assert json.loads(done["figures"]) == {"records_moved": 7}
    assert (done["outcome"], done["error"], done["seconds"]) == ("done", None, 1.5)
    assert done["began_at"] == BEGAN_AT + timedelta(minutes=7)
    assert (failed["outcome"], failed["error"]) == ("failed", "no room: make some")


def test_a_row_is_on_disk_and_marked_when_it_is_told(root: Root) -> None:
    record(root, run(1))
    assert read_marks(root).versions["job_runs"] == newest_version(root.table("job_runs"))


def test_a_table_without_rows_can_be_made_first_and_one_that_is_there_stays(root: Root) -> None:
    job_runs.create(root)
    assert numbers(root) == []
    assert read_marks(root).versions["job_runs"] == 0
    record(root, run(1))
    job_runs.create(root)
    assert numbers(root) == [1]


@pytest.mark.slow
def test_the_table_keeps_the_newest_rows_in_few_files(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_runs, "KEPT_RUNS", 20)
    monkeypatch.setattr(job_runs, "TIDY_EVERY", 10)
    monkeypatch.setattr(job_runs, "_READER_HOURS", 0)
    monkeypatch.setattr("sparkstore.tables.delta_log_cleaning.READER_S", 0.0)
    for number in range(100):
        record(root, run(number, ("compact", "replicate")[number % 2]))
    found = numbers(root)
    assert found[-20:] == [*range(80, 100)]
    assert len(found) <= 30
    table = root.table("job_runs")
    assert len([*table.rglob("*.parquet")]) <= 2 + 10 + 3  # kept, since then, checkpoints
    assert len([*log_folder(table).iterdir()]) <= 3 * (10 + 3)


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_a_power_cut_took_of_the_newest_rows_is_set_aside(root: Root, damage: Damage) -> None:
    record(root, run(1))
    mark = (root.path / "durable.json").read_bytes()
    record(root, run(2))
    (root.path / "durable.json").write_bytes(mark)  # the cut came before the fsync
    table = root.table("job_runs")
    newest = newest_version(table)
    damage(log_folder(table) / f"{newest:020}.json")
    record(root, run(3))
    assert {1, 3} <= {*numbers(root)} <= {1, 2, 3}
    if damage.__name__ != "lost":
        assert [*(root.path / "set-aside" / "job_runs").rglob(f"{newest:020}.json")]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_table_that_lost_rows_is_begun_anew_before_it_grows_for_ever(
    root: Root, damage: Damage, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(root, run(1))
    (rows,) = root.table("job_runs").rglob("*.parquet")
    record(root, run(2))
    damage(rows)  # not of the newest version, which each run checks
    monkeypatch.setattr(job_runs, "TIDY_EVERY", 1)
    record(root, run(3))
    assert numbers(root) == [3]
    record(root, run(4))
    assert numbers(root) == [3, 4]


def break_the_first_version(table: Path) -> None:
    (log_folder(table) / f"{0:020}.json").write_bytes(b"{")


def remove_it(table: Path) -> None:
    shutil.rmtree(table)


def remove_its_log(table: Path) -> None:
    shutil.rmtree(log_folder(table))


def put_a_file_in_its_place(table: Path) -> None:
    shutil.rmtree(table)
    table.write_text("not a table")


@pytest.mark.parametrize(
    "break_", [break_the_first_version, remove_it, remove_its_log, put_a_file_in_its_place]
)
def test_a_table_that_cannot_be_read_is_set_aside_and_begun_anew(
    root: Root, break_: Callable[[Path], None]
) -> None:
    for number in (1, 2):
        record(root, run(number))
    break_(root.table("job_runs"))
    for number in (3, 4):
        record(root, run(number))
    assert numbers(root) == [3, 4]


def test_a_broken_table_is_told_in_one_line(root: Root, caplog: pytest.LogCaptureFixture) -> None:
    record(root, run(1))
    break_the_first_version(root.table("job_runs"))
    with caplog.at_level(logging.WARNING):
        record(root, run(2))
    (told,) = [message for message in caplog.messages if "begun anew" in message]
    assert "\n" not in told


@pytest.mark.slow
def test_runs_that_end_at_the_same_moment_all_have_their_rows(root: Root) -> None:
    program = (
        "import sys; from pathlib import Path; from sparkstore.tables.root import open_root;"
        "from sparkstore.jobs.job_runs import record;"
        "from tests.unit.sparkstore.jobs.test_job_runs import run\n"
        "root, first = open_root(Path(sys.argv[1])), int(sys.argv[2])\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "for number in range(first, first + 10): record(root, run(number))"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(root.path), str(first)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=CHECKOUT,
        )
        for first in (0, 10, 20)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.communicate("go\n", timeout=60)
        assert process.returncode == 0
    assert numbers(root) == [*range(30)]
