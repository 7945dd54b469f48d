from __future__ import annotations

import json
import shutil
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sparkstore.errors import CorruptData, Fenced, StoreError
from sparkstore.tables.fencing import FenceWatch, change_identity, check_may_serve, check_may_work
from sparkstore.tables.root import Identity, Root, open_or_create_root, open_root
from tests.support.roots.logs import until
from tests.support.roots.replicas import replica_of, role_of


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A primary and a replica of it, for copying: they take a while to make."""
    folder = tmp_path_factory.mktemp("made")
    replica_of(open_or_create_root(folder / "primary"), folder / "replica")
    return folder


@pytest.fixture
def pair(made: Path, tmp_path: Path) -> tuple[Root, Root]:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    primary, replica = open_root(tmp_path / "primary"), open_root(tmp_path / "replica")
    change_identity(primary, lambda _: {"replicas": [str(replica.path)]})
    return primary, replica


def say(root: Root, **changes: object) -> Identity:
    return change_identity(root, lambda _: changes)


def test_a_primary_may_be_served_and_its_replica_may_not(pair: tuple[Root, Root]) -> None:
    primary, replica = pair
    check_may_serve(primary.path)
    with pytest.raises(Fenced, match=f"is a replica of .*{primary.path.name}: .*promote it"):
        check_may_serve(replica.path)
    check_may_work(primary.path)
    check_may_work(replica.path)


def test_a_fenced_root_may_neither_be_served_nor_worked_on(pair: tuple[Root, Root]) -> None:
    primary, replica = pair
    say(primary, role="fenced", successor=str(replica.path))
    for check in (check_may_serve, check_may_work):
        with pytest.raises(Fenced, match=f"{replica.path} took over"):
            check(primary.path)


def test_a_promoted_replica_fences_its_primary(pair: tuple[Root, Root]) -> None:
    primary, replica = pair
    say(replica, role="primary", generation=2)
    for check in (check_may_serve, check_may_work):
        with pytest.raises(Fenced, match=r"replica .* was promoted to 2"):
            check(primary.path)
    check_may_serve(replica.path)


def test_a_root_of_another_store_where_a_replica_was_fences_nobody(
    pair: tuple[Root, Root],
) -> None:
    primary, replica = pair
    say(replica, role="primary", generation=7, primary_id="somebody")
    check_may_serve(primary.path)


@pytest.mark.parametrize("content", [None, b"", b"{}", b"\0" * 50])
def test_a_replica_that_cannot_be_read_fences_nobody(
    pair: tuple[Root, Root], content: bytes | None
) -> None:
    primary, replica = pair
    file = replica.path / "root.json"
    if content is None:
        shutil.rmtree(replica.path)
    else:
        file.write_bytes(content)
    check_may_serve(primary.path)


def test_a_role_that_is_not_known_is_not_served(pair: tuple[Root, Root]) -> None:
    say(pair[0], role="observer")
    with pytest.raises(Fenced):
        check_may_serve(pair[0].path)


def test_a_change_keeps_what_a_newer_writer_added(pair: tuple[Root, Root]) -> None:
    file = pair[0].path / "root.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"colour": "blue"}))
    assert say(pair[0], generation=4).generation == 4
    assert json.loads(file.read_text())["colour"] == "blue"
    assert json.loads(file.read_text())["root_id"] == pair[0].identity.root_id


def test_a_change_is_on_disk_before_it_has_the_name_and_the_name_before_it_is_told(
    pair: tuple[Root, Root], calls: list[str]
) -> None:
    """A power cut, or a reader, finds the old `root.json` or the new one, whole."""
    say(pair[0], generation=4)
    assert calls == [
        "fsync root.json.new",
        "rename root.json.new root.json",
        f"fsync {pair[0].path.name}",
    ]


def test_a_change_that_is_refused_leaves_the_file(pair: tuple[Root, Root]) -> None:
    file = pair[0].path / "root.json"
    before = file.read_bytes()

    def refuse(_: Identity) -> dict[str, Any]:
        raise Fenced("no")

    with pytest.raises(Fenced):
        change_identity(pair[0], refuse)
    assert file.read_bytes() == before
    file.write_bytes(b"{")
    with pytest.raises(CorruptData):
        say(pair[0], role="primary")
    assert file.read_bytes() == b"{"


def test_changes_at_the_same_time_lose_none(pair: tuple[Root, Root]) -> None:
    def register(first: int) -> None:
        for number in range(first, first + 20):
            change_identity(
                pair[0], lambda known, name=str(number): {"replicas": [*known.replicas, name]}
            )

    threads = [threading.Thread(target=register, args=(first,)) for first in (0, 20, 40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    known = open_root(pair[0].path).identity.replicas
    assert sorted(map(int, known[1:])) == [*range(60)]


def test_a_watch_tells_once_and_ends(pair: tuple[Root, Root]) -> None:
    told: list[StoreError] = []
    watch = FenceWatch(partial(check_may_serve, pair[0].path), 0.001, told.append)
    say(pair[1], role="primary", generation=2)
    until(lambda: told)
    until(lambda: "fence" not in {thread.name for thread in threading.enumerate()})
    assert [type(error) for error in told] == [Fenced]
    watch.stop()


def test_a_watch_that_cannot_read_says_so_and_goes_on(
    pair: tuple[Root, Root], caplog: pytest.LogCaptureFixture
) -> None:
    told: list[StoreError] = []
    (pair[0].path / "root.json").rename(pair[0].path / "away")
    watch = FenceWatch(partial(check_may_serve, pair[0].path), 0.001, told.append)
    until(lambda: "not known whether a replica took over" in caplog.text)
    (pair[0].path / "away").rename(pair[0].path / "root.json")
    say(pair[0], role="fenced")
    until(lambda: told)
    watch.stop()
    assert caplog.text.count("not known whether") == 1


def test_a_watch_that_was_stopped_ends(pair: tuple[Root, Root]) -> None:
    watch = FenceWatch(partial(check_may_serve, pair[0].path), 3600, lambda _: None)
    watch.stop()
    until(lambda: "fence" not in {thread.name for thread in threading.enumerate()})
    assert role_of(pair[0].path) == ("primary", 1)
