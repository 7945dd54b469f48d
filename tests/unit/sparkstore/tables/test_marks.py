"""A mark claims only what was synced."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path

import pytest
from deltalake import DeltaTable

from sparkstore.storage.durable_files import fsync_with_folders, replace_durably
from sparkstore.tables import marks
from sparkstore.tables.delta_files import (
    log_file,
    newest_version,
    versions,
)
from sparkstore.tables.healing import heal
from sparkstore.tables.marks import MARKS_FILE, Marks, lower_mark, mark_durable, read_marks
from sparkstore.tables.root import Root
from tests.support.histories.strategies import Row
from tests.support.roots.damage import (
    HISTORY,
    append,
    data_file,
)
from tests.support.roots.roots import append_journal


def test_without_marks_and_with_a_short_log_all_that_is_active_is_synced(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root.path / MARKS_FILE).unlink()
    DeltaTable(str(root.journal)).create_checkpoint()
    active = DeltaTable(str(root.journal)).file_uris()
    for version in versions(root.journal)[:-1]:
        log_file(root.journal, version).unlink()
    synced: list[Path] = []
    monkeypatch.setattr(marks, "fsync_with_folders", lambda paths, **_: synced.extend(paths))
    assert heal(root, ["journal"]) == []
    assert {*map(Path, active)} <= {*synced}


def test_two_tables_can_be_marked_by_two_processes(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, state = append(root, "journal"), append(root, "state")
    sync = fsync_with_folders

    def sync_while_a_job_marks(paths: list[Path], *, up_to: Path) -> None:
        sync(paths, up_to=up_to)
        monkeypatch.setattr(marks, "fsync_with_folders", sync)
        mark_durable(root, {"state": state})

    monkeypatch.setattr(marks, "fsync_with_folders", sync_while_a_job_marks)
    mark_durable(root, {"journal": journal})
    assert read_marks(root).versions.items() >= {"journal": journal, "state": state}.items()


def test_a_mark_is_set_only_after_everything_it_names_was_synced(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = append(root, "journal")
    synced: list[Path] = []

    def record(paths: list[Path], *, up_to: Path) -> None:
        assert read_marks(root).versions["journal"] == last - 1
        synced.extend([*paths, up_to])

    monkeypatch.setattr(marks, "fsync_with_folders", record)
    (marked,) = mark_durable(root, {"journal": last})
    assert {*synced} >= {
        log_file(root.journal, last),
        data_file(root, "journal", last),
        root.journal,
    }
    assert (marked.first, marked.last) == (last, last)
    assert json.loads((root.path / MARKS_FILE).read_bytes())["versions"]["journal"] == last


def test_a_failed_fsync_marks_nothing(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    last = append(root, "journal")

    def fail(_paths: list[Path], *, up_to: Path) -> None:
        raise OSError(5, "Input/output error", str(up_to))

    monkeypatch.setattr(marks, "fsync_with_folders", fail)
    with pytest.raises(OSError, match="Input/output error"):
        mark_durable(root, {"journal": last})
    assert read_marks(root).versions["journal"] == last - 1


def test_a_mark_knows_the_last_position_of_the_journal(root: Root) -> None:
    append_journal(root, [Row(1_000, 9, HISTORY.rows[0].record)], 0, 78)
    mark_durable(root, {"journal": newest_version(root.journal)})
    assert read_marks(root).last_position == 1_000


def test_a_mark_does_not_go_back(root: Root) -> None:
    before = read_marks(root)
    assert mark_durable(root, {"journal": 0}) == []
    assert read_marks(root) == before


def test_a_newer_mark_that_another_process_set_meanwhile_stays(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    older, newer = append(root, "history"), append(root, "history")

    def overtaken(*arguments: object, **more: object) -> None:
        monkeypatch.setattr(marks, "fsync_with_folders", fsync_with_folders)
        mark_durable(root, {"history": newer})

    monkeypatch.setattr(marks, "fsync_with_folders", overtaken)
    mark_durable(root, {"history": older})
    assert read_marks(root).versions["history"] == newer


def test_marks_are_read_again_and_written_by_one_at_a_time(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else whoever writes later takes back what another has marked since he read."""
    last = append(root, "journal")
    held: list[tuple[str, bool]] = []

    def read(of: Root) -> Marks:
        held.append(("read", is_locked(root)))
        return read_marks(of)

    def replace(path: Path, content: bytes) -> None:
        held.append(("write", is_locked(root)))
        replace_durably(path, content)

    monkeypatch.setattr(marks, "read_marks", read)
    monkeypatch.setattr(marks, "replace_durably", replace)
    mark_durable(root, {"journal": last})
    assert held == [("read", False), ("read", True), ("write", True)]
    held.clear()
    lower_mark(root, "journal", last - 1)
    assert held == [("read", True), ("write", True)]


def is_locked(root: Root) -> bool:
    """Whether somebody else would have to wait now."""
    with (root.path / "durable.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False
