"""The command line as a process: entry points, exit codes, pipes, Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from broker_shim.completion import Completion
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import MessageHeader, Queue
from tests.support.checkout import CHECKOUT

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
    """Two hundred messages on one queue, written by the real store."""
    path = tmp_path / "root"
    store = DeltaMessageStore(path)
    store.create(Queue("orders"), lambda _error: None)
    for number in range(200):
        body = f"order {number}".encode()
        last = Completion()
        store.enqueue(store.message(MessageHeader(), body), "orders", last.finish)
    last.complete(timeout_s=30)
    store.close()
    return path


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


@pytest.mark.spark
def test_compact_then_sql_then_verify(root: Path) -> None:
    compacted = sparkstore("compact", "--nice", "0", "--json", root)
    assert compacted.returncode == 0, compacted.stderr
    assert json.loads(compacted.stdout)["records_moved"] >= 200
    answered = sparkstore("sql", "--json", root, "SELECT queue, depth FROM queues")
    assert answered.returncode == 0, answered.stderr
    assert json.loads(answered.stdout) == {"queue": "orders", "depth": 200}
    verified = sparkstore("verify", "--deep", root)
    assert verified.returncode == 0, verified.stdout
