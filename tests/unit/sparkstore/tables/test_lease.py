"""The jobs' lease."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkstore.errors import Locked
from sparkstore.tables.lease import check_free, jobs_lease


def test_a_second_job_is_told_at_once_that_the_lease_is_taken(tmp_path: Path) -> None:
    with (
        jobs_lease(tmp_path),
        pytest.raises(Locked, match="another job is at work"),
        jobs_lease(tmp_path),
    ):
        pass


def test_the_lease_is_free_again_after_a_job_ended_or_failed(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), jobs_lease(tmp_path):
            raise ZeroDivisionError
    with jobs_lease(tmp_path):
        assert (tmp_path / "jobs.lock").exists()


def test_a_lease_that_is_taken_is_seen_without_taking_it(tmp_path: Path) -> None:
    check_free(tmp_path)
    assert [*tmp_path.iterdir()] == []
    with jobs_lease(tmp_path):
        with pytest.raises(Locked, match="another job is at work"):
            check_free(tmp_path)
        (tmp_path / "other").mkdir()
        with jobs_lease(tmp_path / "other"):  # of another root
            pass
        check_free(tmp_path / "other")
    check_free(tmp_path)
