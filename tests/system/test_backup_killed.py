"""A backup beside a broker, killed by SIGKILL: what was acknowledged before it comes back."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from proton import Message

from sparkstore.cli.command_line import main
from tests.support.system.clients import Pipelined, take
from tests.support.system.processes import StartBroker

pytestmark = [pytest.mark.system, pytest.mark.slow]

KILLED = """
import os, signal, sys
from sparkstore.cli.command_line import main
from sparkstore.storage.local import LocalStorage

writes = int(sys.argv[1])
put = LocalStorage.put_if_absent

def write(*arguments):
    global writes
    if writes == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    writes -= 1
    return put(*arguments)

LocalStorage.put_if_absent = write
main(["backup", *sys.argv[2:]])
"""
EACH = 200


def sent(url: str, numbers: Sequence[int]) -> None:
    Pipelined(url, "q", [Message(id=each, body="m", durable=True) for each in numbers]).run()


def test_what_was_acknowledged_before_a_backup_comes_back(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    root, backup, again = tmp_path / "root", tmp_path / "backup", tmp_path / "again"
    broker = start_broker(str(root), "--queue", "q")
    for turn, writes in enumerate((1, 3, 4)):
        sent(broker.url, range(turn * EACH, (turn + 1) * EACH))
        words = [sys.executable, "-c", KILLED, str(writes), str(root), str(backup)]
        run = subprocess.run(words, check=False, capture_output=True, timeout=100)
        assert run.returncode == -9
    assert main(["backup", str(root), str(backup)]) == 0
    broker.kill()
    assert main(["restore", str(backup), str(again)]) == 0
    restored = start_broker(str(again))
    found = take(restored.url, "q", 3 * EACH)
    assert [message.id for message in found] == [*range(3 * EACH)]
