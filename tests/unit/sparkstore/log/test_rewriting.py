"""What an fsync may have failed on is written anew by the next start, not fsynced again.

The disk is this one, but it forgets: a file whose fsync failed once stays clean for the kernel, so
a later fsync of it says yes; `power_cut` then leaves of each file what an fsync truly saved.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from sparkstore.errors import Ended, Unavailable
from sparkstore.log.start import open_log
from sparkstore.storage import durable_files
from sparkstore.storage.durable_files import SyncFailed
from sparkstore.tables.delta_files import log_file, newest_version, read_version
from sparkstore.tables.healing import heal
from sparkstore.tables.marks import mark_durable, read_marks
from sparkstore.tables.root import Root, open_root
from tests.support.roots.damage import ALL, append, rows
from tests.support.roots.logs import BY_HAND, CONFIG, facts_in, flush, until, write, zero


class Disk:
    """Fsyncs as a kernel does that could not write back one file, once.

    Attributes:
        fails: Whether the fsync of a path fails, the first time.
        lost: Inodes whose bytes never got to the disk, though every later fsync says yes.
    """

    def __init__(self) -> None:
        self.fails: Callable[[str], bool] = lambda _name: False
        self.lost: set[int] = set()
        self._real = os.fsync

    def fsync(self, descriptor: int) -> None:
        """What `os.fsync` is now."""
        name = str(Path(f"/proc/self/fd/{descriptor}").readlink())
        if self.fails(name):
            self.fails = lambda _name: False
            os.dup(descriptor)  # so that no other file gets its inode
            self.lost.add(os.fstat(descriptor).st_ino)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._real(descriptor)

    def power_cut(self, root: Path) -> list[Path]:
        """Zero what is under a name and was lost; which files."""
        gone = [p for p in root.rglob("*") if p.is_file() and p.stat().st_ino in self.lost]
        for path in gone:
            zero(path)
        return gone


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    """The disk of this process."""
    made = Disk()
    monkeypatch.setattr(durable_files.os, "fsync", made.fsync)
    return made


@pytest.mark.parametrize("suffix", [".parquet", ".json"])
def test_one_failed_fsync_a_restart_and_a_power_cut_lose_nothing(
    tmp_path: Path, disk: Disk, suffix: str
) -> None:
    where = tmp_path / "root"
    log = open_log(where, CONFIG).log
    write(log, 1, 5)
    flush(log)
    disk.fails = lambda name: "/journal/" in name and name.endswith(suffix)
    log._committer._marked_at_ms = 0
    may_be_missing = set()
    try:
        write(log, 6, 6)
    except Ended:  # the commit came before the log's own fsync, so nobody was told of it
        may_be_missing = {6}
    until(lambda: isinstance(log.failure, Ended))
    log.close()
    assert disk.lost
    # The second life fsyncs what it found, says so, and uses the log's files again.
    log = open_log(where, replace(CONFIG, max_wal_files=2)).log
    write(log, 7, 40, 100_000)
    log.close()
    disk.power_cut(where)
    open_log(where, CONFIG).log.close()
    facts = facts_in(where)
    assert facts == [each for each in range(1, 41) if each in facts or each not in may_be_missing]


def test_the_commit_of_opened_whose_fsync_failed_is_not_believed_by_the_next_start(
    tmp_path: Path, disk: Disk
) -> None:
    where = tmp_path / "root"
    log = open_log(where, BY_HAND).log
    write(log, 1, 3)
    log.close()
    opened_at = newest_version(open_root(where).journal) + 1
    disk.fails = lambda name: name.endswith(f"{opened_at:020d}.json")
    with pytest.raises(Unavailable, match="Input/output error"):
        open_log(where, BY_HAND)
    assert disk.lost
    log = open_log(where, BY_HAND).log
    write(log, 4, 4)
    log.close()
    disk.power_cut(where)
    open_log(where, BY_HAND).log.close()
    assert facts_in(where) == [1, 2, 3, 4]


@pytest.mark.parametrize("table", ALL)
@pytest.mark.parametrize("part", ["version", "data"])
def test_what_an_fsync_failed_on_is_written_anew_by_the_next_healing(
    root: Root, disk: Disk, table: str, part: str
) -> None:
    """Also what a job left of history and state."""
    last = append(root, table)
    before = rows(root, table)
    path = log_file(root.table(table), last)
    if part == "data":
        path = root.table(table) / read_version(root.table(table), last).adds[0].path
    disk.fails = lambda name: name == str(path)
    with pytest.raises(SyncFailed):
        mark_durable(root, {table: last})
    assert heal(root, [table]) == []
    assert read_marks(root).versions[table] == last
    assert disk.power_cut(root.path) == []
    assert rows(root, table) == before
    assert [*root.path.glob("rewriting-*")] == []


def test_a_file_written_anew_has_no_name_before_it_is_on_disk(root: Root, disk: Disk) -> None:
    last = append(root, "journal")
    disk.fails = lambda name: "/rewriting-" in name
    with pytest.raises(SyncFailed):
        heal(root, ["journal"])
    assert disk.power_cut(root.path) == []
    assert read_marks(root).versions["journal"] == last - 1
    (root.path / "rewriting-journal-left").write_text("by a start that was killed")
    assert heal(root, ["journal"]) == []
    assert read_marks(root).versions["journal"] == last
    assert [*root.path.glob("rewriting-*")] == []


def test_two_openers_of_a_shared_root_write_anew_at_once(root: Root, disk: Disk) -> None:
    """No lock holds them off each other: one takes the other's file for one that a kill left."""
    last = append(root, "journal")
    before = rows(root, "journal")

    def is_in_the_way(name: str) -> bool:
        if "/rewriting-" in name:
            disk.fails = lambda _name: False
            assert heal(root, ["journal"]) == []
        return False

    disk.fails = is_in_the_way
    mark_durable(root, {"journal": -1})
    assert heal(root, ["journal"]) == []
    assert read_marks(root).versions["journal"] == last
    assert rows(root, "journal") == before
    assert [*root.path.glob("rewriting-*")] == []


def test_the_name_of_what_was_written_anew_is_on_disk_also_if_no_mark_is_set(
    root: Root, calls: list[str]
) -> None:
    """A checkpoint of the marked version: no mark is moved, which would sync the folders again."""
    DeltaTable(str(root.journal)).create_checkpoint()
    calls.clear()
    assert heal(root, ["journal"]) == []
    renamed = max(at for at, call in enumerate(calls) if call.startswith("rename rewriting-"))
    assert calls[-2:] == ["fsync _delta_log", "fsync journal"]
    assert renamed < len(calls) - 2
