"""What an open log does in which order, and what it refuses, in this process."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from broker_shim.completion import Completion
from sparkstore.errors import Fenced, Full
from sparkstore.log import start
from sparkstore.log.trim import Trimmer
from sparkstore.log.wal import SyncWrite, sync_write
from sparkstore.log.wal_format import BLOCK_BYTES
from sparkstore.log.writer import Log
from sparkstore.tables.delta_files import newest_version
from sparkstore.tables.fencing import change_identity
from sparkstore.tables.marks import read_marks
from sparkstore.tables.root import open_root
from tests.support.roots.logs import (
    BY_DELTA,
    BY_HAND,
    CONFIG,
    TIMEOUT_S,
    append,
    error_of,
    fact,
    facts_in,
    flush,
    image_of,
    opened,
    until,
    write,
    zero,
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
    monkeypatch.setattr(start, "sync_write", written)
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
    with pytest.raises(Full, match=f"^{why}$"):
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
    hold = start._hold

    def promoted_first(*arguments: object) -> None:
        change_identity(root, lambda _: {"role": "fenced", "successor": "there"})
        hold(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(start, "_hold", promoted_first)
    with pytest.raises(Fenced, match="there took over"), opened(where):
        pass
    assert newest_version(root.journal) == before


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root whose process was killed in its second life: 3 to 5 are in Delta, 6 is not."""
    where = tmp_path_factory.mktemp("killed")
    with opened(where / "live", BY_HAND) as log:
        write(log, 1, 2)
    with opened(where / "live", BY_HAND) as log:
        write(log, 3, 5)
        flush(log)
        write(log, 6, 6)
        return image_of(where / "live", where / "root")


def to_its_header(path: Path) -> None:
    os.truncate(path, BLOCK_BYTES)


def to_nothing(path: Path) -> None:
    os.truncate(path, 0)


def by_half(path: Path) -> None:
    """Positions 1 to 3 and 7 are the two starts' and the first life's; 4 is the first group."""
    os.truncate(path, 2 * BLOCK_BYTES)


@pytest.mark.parametrize("damage", [to_its_header, to_nothing, by_half, zero])
def test_a_log_that_ends_before_delta_does_is_told(
    killed: Path, tmp_path: Path, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    root = Path(shutil.copytree(killed, tmp_path / "root"))
    for path in (root / "wal").glob("*.wal"):
        damage(path)
    with opened(root):
        pass
    assert "wal was truncated or zeroed, or is not the log" in caplog.text
    assert facts_in(root) == [1, 2, 3, 4, 5]
    caplog.clear()
    with opened(root):
        pass
    assert caplog.text == "", "told once"


def test_no_whole_log_is_told_of_after_any_end(
    killed: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A kill, a clean end, a kill before anything was written, a log of its own beside it."""
    root = Path(shutil.copytree(killed, tmp_path / "root"))
    elsewhere = replace(BY_HAND, wal_dir=str(tmp_path / "elsewhere"))
    for life in range(4):
        with opened(root, BY_HAND) as log:
            image = image_of(root, tmp_path / f"idle {life}")
            write(log, 10 + life, 10 + life)
            flush(log)
            also = image_of(root, tmp_path / f"flushed {life}")
        for copy in (image, also):
            with opened(copy, elsewhere if life % 2 else BY_HAND):
                pass
    assert "was truncated" not in caplog.text


def test_a_record_that_was_checked_before_the_log_handed_over_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "root") as log:
        runs = [fact(1)]
        packed, outcome = log.pack(runs), Completion()
        log.check()
        log.hand_over()  # on another thread, in between
        log.append_packed(runs, packed, outcome.finish)
        assert "hands over to the other one" in str(error_of(outcome))
    assert facts_in(tmp_path / "root") == []
