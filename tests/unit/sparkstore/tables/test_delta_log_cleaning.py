"""Log files of a table go only once checkpoints that stand for them were synced and read back."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from sparkstore.log.journal import Journal
from sparkstore.storage import durable_files
from sparkstore.storage.durable_files import SyncFailed
from sparkstore.tables import delta_log_cleaning
from sparkstore.tables.delta_files import checkpoints, newest_version, versions
from sparkstore.tables.delta_log_cleaning import clean_log
from sparkstore.tables.marks import mark_durable
from sparkstore.tables.root import Root
from tests.support.roots.damage import append, cut_short, zeroed


@pytest.fixture(autouse=True)
def no_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is on the way to a file that he has listed."""
    monkeypatch.setattr(delta_log_cleaning, "READER_S", -1.0)


@pytest.fixture
def journal(root: Root) -> Path:
    """Two checkpoints, and a mark past both."""
    for _ in range(2):
        append(root, "journal")
        DeltaTable(str(root.journal)).create_checkpoint()
    mark_durable(root, {"journal": newest_version(root.journal)})
    return root.journal


def fail_fsync(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    """Of files with a part of a name."""
    real = os.fsync

    def fsync(descriptor: int) -> None:
        if part in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(descriptor)

    monkeypatch.setattr(durable_files.os, "fsync", fsync)


def test_versions_before_the_newest_checkpoint_but_one_go(root: Root, journal: Path) -> None:
    keep_from = min(checkpoints(journal))
    assert clean_log(root, "journal", 0.0) == keep_from
    assert min(versions(journal)) == keep_from


@pytest.mark.parametrize("nth", [0, 1])
@pytest.mark.parametrize("damage", [zeroed, cut_short])
def test_nothing_goes_if_a_checkpoint_cannot_be_read_back(
    root: Root, journal: Path, damage: object, nth: int
) -> None:
    before = versions(journal)
    (broken,) = [*checkpoints(journal).values()][nth]
    assert callable(damage)
    damage(broken)
    with pytest.raises((OSError, pa.ArrowException)):
        clean_log(root, "journal", 0.0)
    assert versions(journal) == before


@pytest.mark.parametrize("part", [".checkpoint.", "_last_checkpoint"])
def test_nothing_goes_if_a_checkpoint_cannot_be_synced(
    root: Root, journal: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """It is no failure of maintenance that may be tried again: the next sync would be believed."""
    before = versions(journal)
    fail_fsync(monkeypatch, part)
    with pytest.raises(SyncFailed):
        clean_log(root, "journal", 0.0)
    with pytest.raises(SyncFailed):
        Journal(root, "writer").checkpoint()
    assert versions(journal) == before
