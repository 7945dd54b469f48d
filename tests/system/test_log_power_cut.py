"""After a power cut: whatever was not synced is zeroed, cut or gone, and nothing acknowledged is.

The image of the disk is taken while Delta is made to stand still; then every file that no mark
covers is damaged. What holds the records must then be the write-ahead log.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from deltalake import write_deltalake
from deltalake.exceptions import CommitFailedError

from sparkstore.errors import CorruptData
from sparkstore.log import committer as committer_module
from sparkstore.log import journal as journal_module
from sparkstore.log.start import open_log
from sparkstore.log.wal import Wal
from sparkstore.tables.delta_files import checkpoints, newest_version, read_version
from sparkstore.tables.marks import mark_durable, read_marks
from sparkstore.tables.root import Root, open_root
from tests.support.roots.logs import (
    CONFIG,
    facts_in,
    flush,
    image_of,
    opened,
    unsynced_files,
    until,
    write,
    zero,
)

pytestmark = pytest.mark.system

FACT_BYTES = 50_000


@pytest.fixture
def pull_plug(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Root]:
    """Write so many facts, let Delta stand still at some moment, take the image of the disk."""

    def pull(tmp_path: Path, last: int, *, still_from: int, name: str = "image") -> Root:
        storage = Storage(monkeypatch)
        with opened(tmp_path / f"live {name}") as log:
            for number in range(1, last + 1):
                if number == still_from - 4:
                    flush(log)
                    storage.is_slow = True
                if number == still_from:
                    flush(log)
                    storage.is_down = True
                write(log, number, number, FACT_BYTES)
                if number % 4 == 0 and number < still_from:
                    flush(log)
            until(lambda: log.metrics.delta_error)
            image = image_of(tmp_path / f"live {name}", tmp_path / name)
            storage.is_down = storage.is_slow = False
        return open_root(image)

    return pull


class Storage:
    """Takes Delta commits but marks none while `is_slow`, nothing at all while `is_down`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_slow = self.is_down = False
        monkeypatch.setattr(journal_module, "write_deltalake", self)
        monkeypatch.setattr(committer_module, "mark_durable", self.mark)

    def mark(self, *args: Any, **named: Any) -> object:
        if self.is_slow:
            raise OSError("not yet")
        return mark_durable(*args, **named)

    def __call__(self, *args: Any, **named: Any) -> None:
        if self.is_down:
            raise CommitFailedError("it stands still")
        write_deltalake(*args, **named)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


DAMAGE = {"zeroed": zero, "cut": cut, "emptied": empty, "gone": Path.unlink}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_with_every_unsynced_file_damaged_nothing_acknowledged_is_lost(
    tmp_path: Path, pull_plug: Callable[..., Root], damage: Callable[[Path], object]
) -> None:
    """The log files have been reused several times: 10 MB went through 3 MB of them."""
    root = pull_plug(tmp_path, 200, still_from=180)
    unsynced = unsynced_files(root)
    assert unsynced
    for path in unsynced:
        damage(path)
    with opened(root.path) as log:
        write(log, 201, 202)
    assert facts_in(root.path) == [*range(1, 203)]


@pytest.mark.parametrize("seed", range(6))
def test_with_any_of_the_unsynced_files_damaged_nothing_acknowledged_is_lost(
    tmp_path: Path, pull_plug: Callable[..., Root], seed: int
) -> None:
    dice = random.Random(seed)
    root = pull_plug(tmp_path, 60, still_from=dice.randrange(5, 58))
    for path in unsynced_files(root):
        if dice.random() < 0.5:
            dice.choice([zero, cut, empty])(path)
    for _ in range(2):
        with opened(root.path):
            pass
    assert facts_in(root.path) == [*range(1, 61)]


def test_a_checkpoint_that_no_mark_covers_is_set_aside_and_nothing_is_lost(
    tmp_path: Path, pull_plug: Callable[..., Root], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "_CHECKPOINT_EVERY", 4)
    root = pull_plug(tmp_path, 80, still_from=75)
    found = checkpoints(root.journal)
    assert found
    newest = found[max(found)]
    pointer = root.journal / "_delta_log" / "_last_checkpoint"
    for path in {*newest, pointer, *unsynced_files(root)}:
        zero(path)
    with opened(root.path):
        pass
    assert facts_in(root.path) == [*range(1, 81)]


def test_power_cuts_one_after_the_other_lose_nothing(
    tmp_path: Path, pull_plug: Callable[..., Root], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one hits the start that was healing the first."""
    root = pull_plug(tmp_path, 40, still_from=20)
    for step in ("mark_durable", "recover", "Wal"):
        for path in unsynced_files(root):
            zero(path)
        with monkeypatch.context() as patch:
            patch.setattr(f"sparkstore.log.start.{step}", _interrupted)
            with pytest.raises(KeyboardInterrupt):
                open_log(root.path, CONFIG)
    for path in unsynced_files(root):
        zero(path)
    with opened(root.path):
        pass
    assert facts_in(root.path) == [*range(1, 41)]


def _interrupted(*_args: Any, **_named: Any) -> None:
    raise KeyboardInterrupt


@contextmanager
def fsyncs(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """Files and folders that were fsynced."""
    synced: set[str] = set()
    real = os.fsync

    def fsync(descriptor: int) -> None:
        real(descriptor)
        synced.add(str(Path(f"/proc/self/fd/{descriptor}").readlink()))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        yield synced


def test_before_a_log_file_is_freed_all_that_delta_needs_of_it_was_fsynced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data files, versions, and each folder that names them (ARCHITECTURE: Rule 5)."""
    freed: list[int] = []
    missing: set[str] = set()
    release = Wal.release
    table = tmp_path / "root" / "journal"

    with fsyncs(monkeypatch) as synced:

        def checked(wal: Wal, position: int) -> int:
            count = release(wal, position)
            if count:
                freed.append(count)
                needed = {str(table), str(table / "_delta_log")}
                for version in range(1, newest_version(table) + 1):
                    found = read_version(table, version)
                    if int(found.metadata.get("sparkstore.last_position", 0)) <= position:
                        files = [table / file.path for file in found.adds]
                        needed |= {str(path) for path in files}
                        needed |= {str(path.parent) for path in files}
                        needed.add(str(table / "_delta_log" / f"{version:020d}.json"))
                missing.update(needed - synced)
            return count

        monkeypatch.setattr(Wal, "release", checked)
        with opened(tmp_path / "root") as log:
            write(log, 1, 120, FACT_BYTES)
            flush(log)
    assert sum(freed) >= 2
    assert missing == set()


def test_the_mark_is_past_every_position_whose_log_file_was_freed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = Wal.release
    unmarked: list[tuple[int, int]] = []

    def checked(wal: Wal, position: int) -> int:
        marked = read_marks(open_root(tmp_path / "root")).last_position
        if marked < position:
            unmarked.append((marked, position))
        return release(wal, position)

    monkeypatch.setattr(Wal, "release", checked)
    with opened(tmp_path / "root") as log:
        write(log, 1, 100, FACT_BYTES)
        flush(log)
    assert unmarked == []


def test_an_opening_is_durable_before_the_first_group_of_its_epoch_is_written(
    tmp_path: Path, pull_plug: Callable[..., Root]
) -> None:
    """Else a power cut could leave a log of an epoch that the journal does not know."""
    root = pull_plug(tmp_path, 6, still_from=2)
    for path in unsynced_files(root):
        zero(path)
    again = image_of(root.path, tmp_path / "again")
    with opened(again):
        assert unsynced_files(open_root(again)) == []


def test_a_durable_version_that_a_disk_lost_is_not_passed_over(tmp_path: Path) -> None:
    with opened(tmp_path / "root") as log:
        write(log, 1, 3)
        flush(log)
        write(log, 4, 5)
    root = open_root(tmp_path / "root")
    for path in (root.path / "wal").glob("*.wal"):
        path.unlink()
    newest = newest_version(root.journal)
    for file in read_version(root.journal, newest).adds:
        zero(root.journal / file.path)
    with pytest.raises(CorruptData, match="was on disk"):
        open_log(root.path, CONFIG)
