"""Storage that fails under an open log: what is told, what goes on, what stops."""

from __future__ import annotations

import errno
import os
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from deltalake.exceptions import CommitFailedError

from broker_shim.completion import Completion
from sparkstore.errors import Closed, Ended, Full, StoreError, Unavailable
from sparkstore.log import committer as committer_module
from sparkstore.log import journal as journal_module
from sparkstore.log import wal as wal_module
from sparkstore.log.batcher import ClosedSegment
from sparkstore.log.journal import Journal
from sparkstore.log.start import open_log
from sparkstore.log.writer import Log
from sparkstore.storage import durable_files
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
)
from tests.support.roots.storage import Storage

pytestmark = pytest.mark.system


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> Storage:
    monkeypatch.setattr(committer_module, "_LONGEST_RETRY_S", 0.05)
    return Storage(monkeypatch)


class Fired:
    """Records what completions came with, in order, each as often as it fires."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.errors: dict[int, StoreError | None] = {}

    def of(self, number: int) -> Callable[[StoreError | None], None]:
        def fire(error: StoreError | None) -> None:
            self.numbers.append(number)
            self.errors[number] = error

        return fire


def fill_up(log: Log, taken: list[Completion], *, first: int = 1) -> str:
    """Append until a call is refused; what the refusal says."""
    for number in range(first, 10_000):
        try:
            done = append(log, number, 100_000)
        except Full as refusal:
            return str(refusal)
        taken.append(done)
        until(partial(_is_settled, log, done))
    raise AssertionError("never refused")


def _is_settled(log: Log, done: Completion) -> bool:
    """True once the log thread has done with it what it can."""
    return done.is_complete or bool(log._stalled) or log._done_bytes == log._taken_bytes


# -- Delta does not answer -------------------------------------------------------------------------


def test_while_delta_commits_fail_acknowledging_goes_on_and_they_catch_up(
    tmp_path: Path, storage: Storage
) -> None:
    with opened(tmp_path / "root") as log:
        write(log, 1, 3)
        flush(log)
        storage.is_down = True
        write(log, 4, 50)
        until(lambda: log.metrics.delta_error)
        write(log, 51, 60)
        storage.is_down = False
        flush(log)
        assert facts_in(tmp_path / "root") == [*range(1, 61)]
        assert log.metrics.delta_error == ""


def test_with_every_log_file_full_calls_are_refused_until_delta_is_back(
    tmp_path: Path, storage: Storage
) -> None:
    taken: list[Completion] = []
    with opened(tmp_path / "root") as log:
        storage.is_down = True
        assert re.search(r"all 3 files wait.*did not answer.*retry later", fill_up(log, taken))
        waiting = [completion for completion in taken if not completion.is_complete]
        assert len(waiting) == 1
        storage.is_down = False
        until(lambda: not log._stalled)
        waiting[0].complete(30)
        write(log, len(taken) + 1, len(taken) + 5)
    assert facts_in(tmp_path / "root") == [*range(1, len(taken) + 6)]


def test_on_a_full_disk_no_parquet_file_is_begun_and_all_is_committed_when_there_is_room(
    tmp_path: Path, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that delta-rs cannot end makes it panic, with a trace on standard error each time."""
    with opened(tmp_path / "root") as log:
        write(log, 1, 3)
        flush(log)
        before = storage.tries
        monkeypatch.setattr(journal_module, "free_bytes", lambda _folder: 1000)
        write(log, 4, 10)
        until(lambda: "1000 bytes are free" in log.metrics.delta_error)
        assert storage.tries == before
        monkeypatch.setattr(journal_module, "free_bytes", lambda _folder: 1 << 30)
        flush(log)
    assert facts_in(tmp_path / "root") == [*range(1, 11)]


def test_on_a_full_disk_nothing_is_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path / "root") as log:
        write(log, 1, 3)
    journal = Journal(open_root(tmp_path / "root"), "merger")
    monkeypatch.setattr(journal_module, "free_bytes", lambda _folder: 1000)
    with pytest.raises(Unavailable, match="1000 bytes are free"):
        journal.merge(2, 1 << 20)
    monkeypatch.undo()
    journal.merge(2, 1 << 20)


@pytest.mark.parametrize("lands", [False, True])
def test_a_close_while_delta_is_down_leaves_the_rest_in_the_log_and_the_next_start_has_it_once(
    tmp_path: Path, storage: Storage, lands: bool
) -> None:
    log = open_log(tmp_path / "root", CONFIG).log
    storage.is_down, storage.lands = True, lands
    write(log, 1, 20)
    log.close()
    storage.is_down = False
    with opened(tmp_path / "root") as log:
        write(log, 21, 21)
    assert facts_in(tmp_path / "root") == [*range(1, 22)]


def test_a_commit_under_way_at_the_close_that_fails_is_tried_once_more(
    tmp_path: Path, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The storage came back in between: what was taken is to be seen after the close."""
    is_under_way, is_closing = threading.Event(), threading.Event()

    def fail_after_the_close_began(*args: Any, **named: Any) -> None:
        monkeypatch.setattr(journal_module, "write_deltalake", storage)
        is_under_way.set()
        assert is_closing.wait(TIMEOUT_S)
        raise CommitFailedError("the storage did not answer")

    log = open_log(tmp_path / "root", CONFIG).log
    monkeypatch.setattr(journal_module, "write_deltalake", fail_after_the_close_began)
    write(log, 1, 3)
    assert is_under_way.wait(TIMEOUT_S)
    closing = threading.Thread(target=log.close)
    closing.start()
    until(lambda: log._committer._is_stopping)
    is_closing.set()
    closing.join()
    assert facts_in(tmp_path / "root") == [1, 2, 3]


def test_a_close_with_every_log_file_full_ends_and_tells_what_was_not_taken(
    tmp_path: Path, storage: Storage
) -> None:
    fired = Fired()
    log = open_log(tmp_path / "root", CONFIG).log
    storage.is_down = True
    number = 0
    while not log._stalled:
        number += 1
        done = Completion()
        done.add_callback(fired.of(number))
        log.append([fact_of(number)], done.finish)
        until(lambda done=done: done.is_complete or log._stalled)
    log.close()
    assert fired.numbers == [*range(1, number + 1)]
    assert isinstance(fired.errors.pop(number), Unavailable)
    assert set(fired.errors.values()) == {None}
    storage.is_down = False
    with opened(tmp_path / "root"):
        pass
    assert facts_in(tmp_path / "root") == [*range(1, number)]


def fact_of(number: int) -> Any:
    return fact(number, 100_000)


def test_with_ack_delta_nothing_is_acknowledged_before_its_delta_commit(
    tmp_path: Path, storage: Storage
) -> None:
    with opened(f"file://{tmp_path}/root", BY_DELTA) as log:
        write(log, 1, 1)
        storage.is_down = True
        waiting = [append(log, number) for number in (2, 3)]
        until(lambda: storage.tries > 4)
        assert not any(completion.is_complete for completion in waiting)
        storage.is_down = False
        for completion in waiting:
            completion.complete(30)
        assert facts_in(tmp_path / "root") == [1, 2, 3]


def test_an_acknowledgement_by_delta_comes_after_the_mark_that_makes_it_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    mark = committer_module.mark_durable

    def spy(*args: Any, **named: Any) -> Any:
        found = mark(*args, **named)
        seen.append("marked")
        return found

    monkeypatch.setattr(committer_module, "mark_durable", spy)
    with opened(f"file://{tmp_path}/root", BY_DELTA) as log:
        done = threading.Event()

        def fire(_error: StoreError | None) -> None:
            seen.append("acknowledged")
            done.set()

        log.append([fact_of(1)], fire)
        assert done.wait(30)
    assert seen[:2] == ["marked", "acknowledged"]


# -- completions -----------------------------------------------------------------------------------


def test_completions_fire_once_in_the_order_of_the_calls(tmp_path: Path) -> None:
    fired = Fired()
    with opened(tmp_path / "root") as log:
        for number in range(300):
            if number % 3:
                log.append([fact_of(number)], fired.of(number))
            else:
                log.finish(fired.of(number), Closed("refused"))
    assert fired.numbers == [*range(300)]


def test_a_completion_does_not_fire_before_its_group_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, fired = threading.Event(), Fired()
    with opened(tmp_path / "root") as log:
        write(log, 1, 1)
        wal = log._wal
        assert wal is not None
        real, begun = wal._write, threading.Event()

        def slow(descriptor: int, buffers: list[bytes], offset: int) -> int:
            begun.set()
            assert gate.wait(30)
            return real(descriptor, buffers, offset)

        monkeypatch.setattr(wal, "_write", slow)
        log.append([fact_of(2)], fired.of(2))
        assert begun.wait(30)
        log.append([fact_of(3)], fired.of(3))
        assert fired.numbers == []
        gate.set()
        until(lambda: fired.numbers == [2, 3])


def test_every_group_of_an_open_log_is_written_with_a_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags: list[int] = []
    pwritev = os.pwritev

    def spy(descriptor: int, buffers: list[bytes], offset: int, how: int = 0) -> int:
        flags.append(how)
        return pwritev(descriptor, buffers, offset, how)

    monkeypatch.setattr(os, "pwritev", spy)
    with opened(tmp_path / "root") as log:
        write(log, 1, 3)
        assert len(flags) == 1 + log.metrics.groups
    assert all(how & os.RWF_DSYNC for how in flags)


def test_a_callback_that_fails_stops_nobody_elses(tmp_path: Path) -> None:
    def bug(_error: StoreError | None) -> None:
        raise RuntimeError("a bug of the caller")

    for where, config in ((tmp_path / "root", CONFIG), (f"file://{tmp_path}/uri", BY_DELTA)):
        with opened(where, config) as log:
            log.append([fact_of(1)], bug)
            log.finish(bug, None)
            log.flush(bug)
            write(log, 2, 3)
            flush(log)


def test_a_flush_is_complete_only_when_the_table_has_the_rows(tmp_path: Path) -> None:
    with opened(tmp_path / "root", BY_HAND) as log:
        for last in (5, 9, 30):
            for number in range(len(facts_in(tmp_path / "root")) + 1, last + 1):
                append(log, number)
            flush(log)
            assert facts_in(tmp_path / "root") == [*range(1, last + 1)]


# -- a device that lies no more --------------------------------------------------------------------


@pytest.mark.parametrize("is_written", [False, True])
def test_after_a_failed_sync_nothing_is_acknowledged_and_the_next_start_asks_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_written: bool
) -> None:
    log = open_log(tmp_path / "root", BY_HAND).log
    write(log, 1, 5)
    wal = log._wal
    assert wal is not None
    real = wal._write

    def fails(descriptor: int, buffers: list[bytes], offset: int) -> int:
        if is_written:
            real(descriptor, buffers, offset)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(wal, "_write", fails)
    error = error_of(append(log, 6))
    assert "Input/output error; nothing is acknowledged: restart the store" in str(error)
    monkeypatch.setattr(wal, "_write", real)
    for number in (7, 8):
        with pytest.raises(Ended, match="restart the store"):
            append(log, number)
    done = Completion()
    log.flush(done.finish)
    assert isinstance(error_of(done), Ended)
    log.close()
    with opened(tmp_path / "root") as log:
        write(log, 9, 9)
    expected = [1, 2, 3, 4, 5, 6, 9] if is_written else [1, 2, 3, 4, 5, 9]
    assert facts_in(tmp_path / "root") == expected


def fail_fsync(monkeypatch: pytest.MonkeyPatch, number: int, below: str) -> None:
    """Fsync of files below a folder fails from now on."""
    real = os.fsync

    def fsync(descriptor: int) -> None:
        if below in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            raise OSError(number, os.strerror(number))
        real(descriptor)

    monkeypatch.setattr(durable_files.os, "fsync", fsync)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("shared", [False, True])
def test_a_failed_sync_of_the_journal_stops_the_log_and_frees_no_log_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, shared: bool
) -> None:
    where = f"file://{tmp_path}/root" if shared else tmp_path / "root"
    fired = Fired()
    log = open_log(where, BY_DELTA if shared else CONFIG).log
    write(log, 1, 2)
    with monkeypatch.context() as patch:
        fail_fsync(patch, number, "/journal")
        log.append([fact_of(3)], fired.of(3))
        until(lambda: fired.numbers)
        log._committer._marked_at_ms = 0
        until(lambda: log.failure is not None)
        with pytest.raises(Ended, match=r"fsync failed: .*journal.*restart the store"):
            append(log, 4)
    released = [] if log._wal is None else [*log._wal._free]
    log.close()
    assert fired.numbers == [3]
    assert (fired.errors[3] is not None) == shared
    assert len(released) <= 1
    with opened(where, BY_DELTA if shared else CONFIG) as log:
        write(log, 5, 5)
    assert facts_in(tmp_path / "root") == [1, 2, 3, 5]


def test_completions_fire_once_when_maintenance_after_the_commit_stops_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flush that was told yes is not told no afterwards."""
    fired = Fired()
    log = open_log(tmp_path / "root", replace(BY_HAND, segment_records=1)).log
    for number in (1, 2):
        append(log, number).complete(30)

    def broken(*_args: Any) -> None:
        raise MemoryError("none left")

    monkeypatch.setattr(Journal, "merge", broken)
    monkeypatch.setattr(ClosedSegment, "is_worth_merging", True)
    log.flush(fired.of(1))
    until(lambda: log.failure is not None)
    log.close()
    assert fired.numbers == [1]
    assert fired.errors == {1: None}


def test_a_flush_after_the_committer_stopped_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the log thread looked for a failure just before there was one."""
    log = open_log(tmp_path / "root", BY_HAND).log
    write(log, 1, 1)

    def broken(*_args: Any) -> None:
        raise SystemExit("even so")

    monkeypatch.setattr(Journal, "append", broken)
    done = Completion()
    log.flush(done.finish)
    assert isinstance(error_of(done), Ended)
    log.failure = None
    late = Completion()
    log.flush(late.finish)
    assert isinstance(error_of(late), Ended)
    log.close()


def test_an_error_nobody_thought_of_in_the_log_thread_is_told_to_every_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path / "root", BY_HAND).log
    write(log, 1, 1)

    def broken(*_args: Any) -> None:
        raise MemoryError("none left")

    assert log._wal is not None
    monkeypatch.setattr(log._wal, "append", broken)
    waiting = [append_or_error(log, number) for number in (2, 3, 4)]
    assert all(isinstance(error, Ended) for error in waiting)
    log.close()
    monkeypatch.undo()
    with opened(tmp_path / "root"):
        pass
    assert facts_in(tmp_path / "root") == [1]


def append_or_error(log: Log, number: int) -> StoreError | None:
    try:
        return error_of(append(log, number))
    except StoreError as error:
        return error


def test_what_comes_after_the_close_is_told_so(tmp_path: Path) -> None:
    log = open_log(tmp_path / "root", CONFIG).log
    write(log, 1, 1)
    log.close()
    for late in (lambda fire: log.finish(fire, None), log.flush):
        done = Completion()
        late(done.finish)
        assert isinstance(error_of(done), Closed)


# -- a full disk -----------------------------------------------------------------------------------


class FullDisk:
    """No more bytes for new log files, marks or Delta commits while `is_full`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_full = True
        self._pwrite, self._open = os.pwrite, Path.open
        monkeypatch.setattr(wal_module.os, "pwrite", self._pwrite_or_fail)

        def open_or_fail(path: Path, mode: str = "r", *args: Any, **named: Any) -> Any:
            if "w" in mode and path.name.startswith("durable.json"):
                self._check()
            return self._open(path, mode, *args, **named)

        monkeypatch.setattr(Path, "open", open_or_fail)

    def _check(self) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _pwrite_or_fail(self, *args: Any) -> int:
        self._check()
        return self._pwrite(*args)


@pytest.mark.parametrize("shared", [False, True])
def test_a_full_disk_is_unavailable_and_service_resumes_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, storage: Storage, shared: bool
) -> None:
    where = f"file://{tmp_path}/root" if shared else tmp_path / "root"
    config = replace(BY_DELTA if shared else CONFIG, max_pending_bytes=1 << 20)
    taken: list[Completion] = []
    with opened(where, config) as log:
        write(log, 1, 1)
        flush(log)
        disk = FullDisk(monkeypatch)
        taken.append(append(log, 2))
        until(lambda: storage.tries >= 3)
        storage.is_down = True
        refusal = fill_up(log, taken, first=3)
        assert ("too much waits for its Delta commit" if shared else "No space left") in refusal
        assert log.failure is None
        disk.is_full = storage.is_down = False
        for completion in taken:
            completion.complete(30)
        write(log, len(taken) + 2, len(taken) + 4)
    assert facts_in(tmp_path / "root") == [*range(1, len(taken) + 5)]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
def test_a_small_file_system_that_is_full_is_unavailable_and_resumes_with_room(
    tmp_path: Path,
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = f"mount -t tmpfs -o size=6m tmpfs {disk}"
    if os.system(f"{mount} 2>/dev/null"):
        pytest.skip("no mount here")
    try:
        _fill_up_and_go_on(disk)
    finally:
        os.system(f"umount {disk}")


def _fill_up_and_go_on(disk: Path) -> None:
    taken: list[Completion] = []
    ballast = disk / "ballast"
    with opened(disk / "root") as log:
        ballast.write_bytes(bytes(3_000_000))
        assert "retry later" in fill_up(log, taken)
        ballast.unlink()
        for completion in taken:
            completion.complete(30)
        write(log, len(taken) + 1, len(taken) + 2)
    assert facts_in(disk / "root") == [*range(1, len(taken) + 3)]


def test_no_room_ends_as_soon_as_delta_has_caught_up(tmp_path: Path) -> None:
    """Many small groups fill a log file with padding long before their bytes are a commit's."""
    with opened(tmp_path / "root", replace(CONFIG, max_wal_files=2)) as log:
        write(log, 1, 6000)
        flush(log)
        assert log.metrics.groups == 6000


def test_the_image_of_a_killed_store_can_be_opened(tmp_path: Path) -> None:
    with opened(tmp_path / "live", BY_HAND) as log:
        write(log, 1, 7)
        image = image_of(tmp_path / "live", tmp_path / "image")
    with opened(image):
        pass
    assert facts_in(image) == [*range(1, 8)]
