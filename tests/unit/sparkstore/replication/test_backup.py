"""Backups: what comes back is what was acknowledged, whatever was killed, or nothing is made."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import MessageHeader, Queue
from sparkstore.cli.command_line import main
from sparkstore.errors import InvalidRequest
from sparkstore.reconcile.invariants import check
from sparkstore.replication.backup import back_up, restore
from sparkstore.storage.local import LocalStorage
from sparkstore.tables.root import open_root
from tests.support.stores.stores import DELTA_CONFIG, done


class Killed(BaseException):
    """The process ends in the middle of a backup."""


def put(store: DeltaMessageStore, count: int) -> None:
    for number in range(count):
        done(store.enqueue, store.message(MessageHeader(), b"body %d" % number), "q")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    store = DeltaMessageStore(tmp_path / "root", DELTA_CONFIG)
    done(store.create, Queue("q", arguments={"max_depth": 99}))
    put(store, 3)
    store.close()
    return tmp_path / "root"


def more(root: Path, count: int) -> None:
    store = DeltaMessageStore(root, DELTA_CONFIG)
    store.recover()
    put(store, count)
    store.close()


def bodies(root: Path) -> int:
    """The messages of a root that is whole in every invariant, and that a store opens."""
    broken = [each for each in check(open_root(root), deep=True) if not each.holds]
    assert broken == []
    store = DeltaMessageStore(root, DELTA_CONFIG)
    found = store.recover()
    store.close()
    return len(found.entries["q"])


def test_a_backup_is_incremental_and_can_be_restored_again(root: Path, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    first = back_up(root, backup)
    assert first.position_before == 0
    assert restore(backup, tmp_path / "first").messages == 3
    more(root, 4)
    second = back_up(root, backup)
    assert second.position_before == first.position_after
    assert back_up(root, backup).files_copied == 0
    told = restore(backup, tmp_path / "second")
    assert (told.messages, told.generation) == (7, 2)
    assert bodies(tmp_path / "second") == 7
    assert bodies(tmp_path / "first") == 3
    more(root, 1)  # a restore fences nobody
    assert back_up(root, backup).position_after > second.position_after


@pytest.mark.parametrize("left", ["backup", "root.json", "probe-0a"])
def test_a_first_backup_that_was_killed_within_a_write_is_made_by_the_next(
    root: Path, tmp_path: Path, left: str
) -> None:
    backup = tmp_path / "backup"
    backup.mkdir(mode=0o700)
    (backup / f"{left}.{'0a' * 16}.new").touch()
    back_up(root, backup)
    assert restore(backup, tmp_path / "again").messages == 3


def test_a_folder_with_a_file_of_somebody_else_is_no_place_for_a_backup(
    root: Path, tmp_path: Path
) -> None:
    backup = tmp_path / "backup"
    backup.mkdir(mode=0o700)
    (backup / "backup.tar").touch()
    with pytest.raises(InvalidRequest, match=r"backup\.tar"):
        back_up(root, backup)


def test_the_messages_of_a_serving_store_are_backed_up(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = DeltaMessageStore(root, DELTA_CONFIG)
    store.recover()
    put(store, 5)
    done(store.flush)
    assert main(["backup", str(root), str(tmp_path / "b"), "--json"]) == 0
    store.close()
    assert json.loads(capsys.readouterr().out)["job"] == "backup"
    assert main(["restore", str(tmp_path / "b"), str(tmp_path / "again"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["messages"] == 8


def test_a_backup_that_is_killed_at_any_write_goes_on(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each write of it: a restore makes a root that is whole, or none; the next run ends."""
    backup, left = tmp_path / "backup", [0]
    back_up(root, backup)
    more(root, 4)

    def dying(write: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any) -> Any:
            if left[0] == 0:
                raise Killed
            left[0] -= 1
            return write(*arguments)

        return wrapped

    for name in ("put_if_absent", "replace_if_unchanged", "upload", "delete"):
        monkeypatch.setattr(LocalStorage, name, dying(getattr(LocalStorage, name)))
    for writes in range(40):
        left[0] = writes
        copy = shutil.copytree(backup, tmp_path / f"copy{writes}")
        try:
            back_up(root, copy)
        except Killed:
            left[0] = -1
            assert restore(copy, tmp_path / f"killed{writes}").messages in {3, 7}
            back_up(root, copy)
            assert restore(copy, tmp_path / f"again{writes}").messages == 7
        else:
            break
    assert writes > 3, "the backup was cut off at several writes"
    left[0] = -1
    assert bodies(tmp_path / "again1") == 7


def test_a_restore_that_is_killed_leaves_no_root(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    back_up(root, tmp_path / "backup")

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("sparkstore.replication.backup.become_root", die)
        with pytest.raises(Killed):
            restore(tmp_path / "backup", tmp_path / "new")
    assert not (tmp_path / "new").exists()
    assert restore(tmp_path / "backup", tmp_path / "new").messages == 3


def test_a_root_that_is_served_is_no_place_for_another(root: Path, tmp_path: Path) -> None:
    back_up(root, tmp_path / "backup")
    store = DeltaMessageStore(root, DELTA_CONFIG)
    store.recover()
    with pytest.raises(InvalidRequest, match="is a sparkstore root: name a folder that is absent"):
        restore(tmp_path / "backup", root)
    put(store, 1)
    store.close()
    assert bodies(root) == 4


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["restore", "BACKUP", "ROOT"], "is a sparkstore root: name a folder that is absent"),
        (["restore", "BACKUP", "."], "is not empty"),
        (["restore", "nothing", "new"], "is not a sparkstore root"),
        (["restore", "ROOT", "new"], "not a backup"),
        (["backup", "ROOT", "ROOT"], "not a backup: name another folder"),
        (["backup", "ROOT", "ROOT/inside"], "inside"),
        (["backup", "ROOT", "."], "choose another"),
        (["backup", "nothing", "new"], "is not a sparkstore root"),
        (["backup", "OTHER", "BACKUP"], "another"),
        (["replicate", "ROOT", "BACKUP"], "is a backup"),
        (["promote", "BACKUP"], "is a backup: sparkstore restore"),
    ],
)
def test_what_would_do_harm_is_refused_and_nothing_is_done(
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    argv: list[str],
    said: str,
) -> None:
    backup, other = tmp_path / "backup", tmp_path / "other"
    back_up(root, backup)
    DeltaMessageStore(other, DELTA_CONFIG).close()
    monkeypatch.chdir(tmp_path)
    names = {"BACKUP": backup, "ROOT": root, "ROOT/inside": root / "inside", "OTHER": other}
    assert main([str(names.get(word, word)) for word in argv]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "new" / "root.json").exists()
    assert bodies(root) == 3
