"""What an open log does in which order, and what it refuses, in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sparkstore.delta_files import newest_version
from sparkstore.errors import Fenced, Unavailable
from sparkstore.fencing import change_identity
from sparkstore.log import opening
from sparkstore.log.trim import Trimmer
from sparkstore.log.wal import SyncWrite, sync_write
from sparkstore.log.writer import Log
from sparkstore.marks import read_marks
from sparkstore.root import open_root
from tests.logs import (
    BY_DELTA,
    BY_HAND,
    CONFIG,
    TIMEOUT_S,
    append,
    facts_in,
    flush,
    opened,
    until,
    write,
)


def test_the_trimmer_runs_behind_the_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It vacuums files that the marked version names, and a power cut goes back to that one."""
    seen: list[tuple[int, int]] = []

    def run(trimmer: Trimmer, _open_segment: int, *, now_s: float) -> None:
        root = trimmer._root
        seen.append((read_marks(root).versions["journal"], newest_version(root.journal)))

    monkeypatch.setattr(Trimmer, "run", run)
    with opened(tmp_path / "root", CONFIG) as log:
        write(log, 1, 1)
        flush(log)
    assert seen
    assert all(marked == newest for marked, newest in seen)


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Set, and no write of a log that is opened now takes long."""
    free = threading.Event()
    free.set()

    def write_when_free(descriptor: int, buffers: list[bytes], offset: int) -> int:
        assert free.wait(TIMEOUT_S)
        return sync_write(descriptor, buffers, offset)

    written: SyncWrite = write_when_free
    monkeypatch.setattr(opening, "sync_write", written)
    yield free
    free.set()


def test_what_waits_for_the_log_is_bounded_and_what_was_taken_is_kept(
    tmp_path: Path, stuck: threading.Event
) -> None:
    with opened(tmp_path / "root", replace(BY_HAND, max_pending_bytes=1_000)) as log:
        stuck.clear()
        taken = append(log, 1, 2_000)
        refused(log, "too much waits for the write-ahead log: retry later")
        stuck.set()
        taken.complete(TIMEOUT_S)
        until(lambda: log.backlog.unsynced_bytes == 0)
        write(log, 2, 2)
    assert facts_in(tmp_path / "root") == [1, 2]


def test_what_waits_for_delta_is_bounded_where_there_is_no_log(tmp_path: Path) -> None:
    by_delta = replace(BY_DELTA, commit_interval_ms=3_600_000, max_pending_bytes=1_000)
    with opened(f"file://{tmp_path}/root", by_delta) as log:
        taken = append(log, 1, 2_000)
        until(lambda: log.backlog.uncommitted_bytes)
        refused(log, "too much waits for its Delta commit: busy; retry later")
        flush(log)
        taken.complete(TIMEOUT_S)
        log.check()
    assert facts_in(tmp_path / "root") == [1]


def refused(log: Log, why: str) -> None:
    with pytest.raises(Unavailable, match=f"^{why}$"):
        append(log, 99)


def test_a_promotion_between_the_first_look_and_the_lock_is_seen_under_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds the writer's lock while it changes the role, and then lets go."""
    where = tmp_path / "root"
    with opened(where):
        pass
    root = open_root(where)
    before = newest_version(root.journal)
    hold = opening._hold

    def promoted_first(*arguments: object) -> None:
        change_identity(root, lambda _: {"role": "fenced", "successor": "there"})
        hold(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(opening, "_hold", promoted_first)
    with pytest.raises(Fenced, match="there took over"), opened(where):
        pass
    assert newest_version(root.journal) == before
