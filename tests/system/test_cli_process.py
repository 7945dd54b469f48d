"""The command line as a process: entry points, exit codes, pipes. Jobs: `test_job_process`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.checkout import CHECKOUT
from tests.support.stores.calls import root_with_orders

pytestmark = [pytest.mark.system, pytest.mark.slow]


def sparkstore(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sparkstore", *map(str, arguments)],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return root_with_orders(tmp_path / "root", 200)


def test_queues_reads_what_a_store_wrote(root: Path) -> None:
    ended = sparkstore("queues", "--json", root)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["depth"] == 200


def test_a_pipe_that_is_closed_early_is_no_error(root: Path) -> None:
    command = (
        f"'{sys.executable}' -m sparkstore browse --limit 0 --body '{root}' orders | head -n 1"
    )
    ended = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 0
    assert ended.stdout.startswith("message ")
    assert ended.stderr == ""


def test_serve_is_found_by_its_entry_point_and_parses_its_own_arguments() -> None:
    ended = sparkstore("serve", "--help")
    assert ended.returncode == 0
    assert "--listen" in ended.stdout


def test_serve_is_listed_in_the_help() -> None:
    assert "serve" in sparkstore("--help").stdout


def test_verify_passes_on_what_a_store_wrote(root: Path) -> None:
    ended = sparkstore("verify", "--deep", root)
    assert ended.returncode == 0, ended.stdout
