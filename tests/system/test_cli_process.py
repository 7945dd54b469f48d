"""The command line as a process: entry points, exit codes, pipes. Jobs: `test_job_process`."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.support.checkout import CHECKOUT
from tests.support.stores.calls import root_with_orders
from tests.support.system.processes import StartBroker

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


def test_a_failure_is_one_json_object_where_that_is_asked_for(root: Path, tmp_path: Path) -> None:
    ended = sparkstore("browse", "--log-format=json", root, "ordres")
    assert ended.returncode == 2
    line = json.loads(ended.stderr)
    assert (line["level"], line["logger"]) == ("ERROR", "sparkstore")
    assert "ordres" in line["message"]
    ended = sparkstore("queues", "--log-format", "xml", tmp_path)
    assert ended.returncode == 2
    assert "xml" in ended.stderr


def test_each_line_of_a_broker_has_its_time_in_utc_with_the_zone(
    start_broker: StartBroker, root: Path
) -> None:
    """Another start after a clean end tells of no repair."""
    broker = start_broker(str(root))
    assert broker.terminate() == 0
    lines = broker.log.splitlines()
    assert lines
    for line in lines:
        assert datetime.fromisoformat(line.split()[0]).utcoffset() == timedelta(0), line
    assert "anew" not in broker.log


def test_each_line_of_a_broker_is_a_json_object(start_broker: StartBroker) -> None:
    broker = start_broker("--memory", "--log-format", "json", "--queue", "a\nb")
    assert broker.terminate() == 0
    lines = [json.loads(line) for line in broker.log.splitlines()]
    assert {*lines[0]} == {"time", "level", "logger", "message"}
    assert any(line["message"].startswith("stopped cleanly") for line in lines)
    at = datetime.fromisoformat(lines[-1]["time"])
    assert at.utcoffset() == timedelta(0)
    assert len(lines[-1]["time"]) == len("2026-11-27T01:02:03.123456Z")
