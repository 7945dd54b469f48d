"""What `forking_parent` forks is a process like any other, whoever asks for it."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import psutil
import pytest

from tests.support.system.forked import ForkedProcess, forking_parent
from tests.support.system.processes import StartBroker

pytestmark = pytest.mark.system


def test_it_ends_with_its_own_exit_code_and_writes_where_it_was_told(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as out, (tmp_path / "err").open("w") as err:
        there = ForkedProcess(
            "broker_shim.serve.command", "--no-such", stdout=out.fileno(), stderr=err.fileno()
        )
        assert there.wait(30) == 2
    assert "unrecognized arguments: --no-such" in Path(err.name).read_text()
    assert Path(out.name).read_text() == ""


def test_it_sees_its_own_environment_and_folder(
    start_broker: StartBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ONLY_THIS", "one")
    broker = start_broker("--memory")
    process = psutil.Process(broker.pid)
    assert process.cwd() == str(tmp_path)
    broker.kill()
    assert not psutil.pid_exists(broker.pid)


def test_one_that_sends_no_descriptors_reads_what_it_writes_and_its_end() -> None:
    request = {
        "module": "broker_shim.serve.command",
        "arguments": ["--help"],
        "cwd": "/",
        "environment": {"COLUMNS": "80"},
    }
    with socket.socket(socket.AF_UNIX) as parent:
        parent.connect(str(forking_parent()))
        parent.sendall(json.dumps(request).encode() + b"\n")
        with parent.makefile("r") as lines:
            process, *said, end = lines.read().splitlines()
    assert int(process) > 0
    assert said[0].startswith("usage:")
    assert end == "exit 0"
