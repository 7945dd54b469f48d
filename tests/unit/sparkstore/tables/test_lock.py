"""One writer per root on one machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sparkstore.errors import Locked
from sparkstore.tables.lock import FileLock, is_held

HOLD = """
import sys, time
from pathlib import Path
from sparkstore.tables.lock import FileLock
FileLock(Path(sys.argv[1]), "root")
print("held", flush=True)
sys.stdin.read()
"""


def test_a_second_opener_in_the_same_process_is_refused_with_who_has_it(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock", "root r")
    with pytest.raises(Locked, match=rf"root r is in use .*pid {os.getpid()}"):
        FileLock(tmp_path / "lock", "root r")
    lock.release()


def test_released_it_can_be_taken_again_and_release_may_be_called_twice(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock", "root")
    lock.release()
    lock.release()
    FileLock(tmp_path / "lock", "root").release()


def test_a_refused_opener_does_not_disturb_the_holder(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock", "root")
    for _ in range(3):
        with pytest.raises(Locked):
            FileLock(tmp_path / "lock", "root")
    assert (tmp_path / "lock").read_text() == f"pid {os.getpid()}\n"
    lock.release()


def test_who_asks_whether_it_is_held_takes_nothing(tmp_path: Path) -> None:
    assert is_held(tmp_path / "lock") is False
    lock = FileLock(tmp_path / "lock", "root")
    assert is_held(tmp_path / "lock") is True
    lock.release()
    assert is_held(tmp_path / "lock") is False


@pytest.mark.system
def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(Locked, match=f"pid {holder.pid}"):
            FileLock(tmp_path / "lock", "root")
        holder.kill()
        holder.wait()
        FileLock(tmp_path / "lock", "root").release()


def test_a_symbolic_link_in_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("keep me")
    (tmp_path / "lock").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="symbolic"):
        FileLock(tmp_path / "lock", "root")
    assert (tmp_path / "precious").read_text() == "keep me"
