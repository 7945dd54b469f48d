from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import MessageHeader, Queue
from sparkstore.cli.command_line import main
from sparkstore.config import StoreConfig
from sparkstore.errors import Fenced, InvalidRequest, Locked
from sparkstore.replication import promote as promoting
from sparkstore.replication.promote import promote
from sparkstore.tables.delta_files import newest_version
from sparkstore.tables.fencing import change_identity
from sparkstore.tables.lease import jobs_lease
from sparkstore.tables.lock import FileLock
from sparkstore.tables.marks import read_marks
from sparkstore.tables.root import TABLES, open_or_create_root, open_root
from tests.support.roots.replicas import files_below, replica_of, role_of
from tests.support.stores.stores import done

MESSAGES = 5
PRIMARY, FENCED, REPLICA = ("primary", 1), ("fenced", 1), ("replica", 1)
PROMOTED = ("primary", 2)


class _Stopped(Exception):
    pass


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A primary with a few messages, and a replica of it."""
    folder = tmp_path_factory.mktemp("made")
    store = DeltaMessageStore(folder / "primary")
    done(store.create, Queue("q"))
    for number in range(MESSAGES):
        done(store.enqueue, store.message(MessageHeader(), b"%d" % number), "q")
    store.close()
    replica_of(open_root(folder / "primary"), folder / "replica")
    return folder


@pytest.fixture
def roots(made: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Where a primary and its replica are; each names the other."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    primary, replica = tmp_path / "primary", tmp_path / "replica"
    change_identity(open_root(primary), lambda _: {"replicas": [str(replica)]})
    change_identity(open_root(replica), lambda _: {"primary": str(primary)})
    return primary, replica


def test_a_promoted_replica_serves_every_message_with_its_content(
    roots: tuple[Path, Path],
) -> None:
    primary, replica = roots
    promotion = promote(replica)
    assert (promotion.messages, promotion.queues, promotion.generation) == (MESSAGES, 1, 2)
    assert (promotion.old_primary, promotion.old_fenced) == (str(primary), True)
    assert (role_of(primary), role_of(replica)) == (FENCED, PROMOTED)
    store = DeltaMessageStore(replica)
    entries = store.recover().entries["q"]
    assert [store.load(number).body for number in entries] == [b"%d" % n for n in range(MESSAGES)]
    new = store.message(MessageHeader(), b"new")
    assert new.message_id not in entries
    done(store.enqueue, new, "q")
    store.close()
    again = DeltaMessageStore(replica)
    assert len(again.recover().entries["q"]) == MESSAGES + 1
    again.close()


def test_everything_is_marked_durable_before_the_role_changes(roots: tuple[Path, Path]) -> None:
    _, replica = roots

    def look(boundary: str) -> None:
        marked = read_marks(open_root(replica)).versions
        assert marked == {name: newest_version(replica / name) for name in TABLES}
        assert role_of(replica) == (REPLICA if boundary != "promoted" else PROMOTED)

    promote(replica, at=look)


@pytest.mark.parametrize(
    ("boundary", "old"), [("checked", PRIMARY), ("old fenced", FENCED), ("promoted", FENCED)]
)
def test_a_promotion_that_was_killed_is_finished_by_the_next(
    roots: tuple[Path, Path], boundary: str, old: tuple[str, int]
) -> None:
    primary, replica = roots

    def stop(reached: str) -> None:
        if reached == boundary:
            raise _Stopped

    with pytest.raises(_Stopped):
        promote(replica, at=stop)
    assert role_of(primary) == old
    if boundary == "promoted":
        with pytest.raises(InvalidRequest, match=r"a primary already \(generation 2\): serve it"):
            promote(replica)
    else:
        assert role_of(replica) == REPLICA
        promote(replica)
    assert (role_of(primary), role_of(replica)) == (FENCED, PROMOTED)


def test_an_old_primary_that_is_not_there_is_no_hindrance(roots: tuple[Path, Path]) -> None:
    primary, replica = roots
    shutil.rmtree(primary)
    assert promote(replica).old_fenced is False
    assert role_of(replica) == PROMOTED


def test_an_old_primary_that_was_moved_is_fenced_where_it_is_now(
    roots: tuple[Path, Path], tmp_path: Path
) -> None:
    primary, replica = roots
    moved = primary.rename(tmp_path / "moved")
    assert promote(replica, primary=moved).old_fenced is True
    assert role_of(moved) == FENCED


def test_another_store_where_the_primary_was_is_left_alone(roots: tuple[Path, Path]) -> None:
    primary, replica = roots
    shutil.rmtree(primary)
    open_or_create_root(primary)
    assert promote(replica).old_fenced is False
    assert role_of(primary) == PRIMARY


def test_a_second_replica_is_not_promoted_after_the_first(
    roots: tuple[Path, Path], tmp_path: Path
) -> None:
    primary, replica = roots
    second = replica_of(open_root(primary), tmp_path / "second").path
    promote(replica)
    with pytest.raises(Fenced, match="was promoted before, to generation 2"):
        promote(second)
    assert role_of(second) == REPLICA


def test_a_running_primary_stops_acknowledging_and_says_why(roots: tuple[Path, Path]) -> None:
    primary, replica = roots
    store = DeltaMessageStore(primary, StoreConfig(fence_check_s=0.01))
    promote(replica, accept_loss=True)
    with pytest.raises(Fenced, match="took over"):
        send_for_ever(store)
    store.close()
    with pytest.raises(Fenced):
        DeltaMessageStore(primary)


def test_a_replica_behind_a_primary_that_can_be_read_is_refused(roots: tuple[Path, Path]) -> None:
    primary, replica = roots
    store = DeltaMessageStore(primary)
    done(store.enqueue, store.message(MessageHeader(), b"late"), "q")
    store.close()
    with pytest.raises(InvalidRequest, match="holds 3 records"):
        promote(replica)
    assert (role_of(primary), role_of(replica)) == (("primary", 1), REPLICA)
    assert promote(replica, accept_loss=True).old_fenced is True


def send_for_ever(store: DeltaMessageStore) -> None:
    while True:
        done(store.enqueue, store.message(MessageHeader(), b"late"), "q")


def test_opening_a_replica_changes_nothing(roots: tuple[Path, Path]) -> None:
    before = files_below(*roots)
    with pytest.raises(Fenced, match="promote it"):
        DeltaMessageStore(roots[1])
    assert files_below(*roots) == before


def a_primary(primary: Path, _replica: Path) -> list[str]:
    return [str(primary)]


def no_root(primary: Path, _replica: Path) -> list[str]:
    return [str(primary.parent)]


def a_fenced_root(primary: Path, _replica: Path) -> list[str]:
    change_identity(open_root(primary), lambda _: {"role": "fenced", "successor": "/elsewhere"})
    return [str(primary)]


def a_newer_schema(_primary: Path, replica: Path) -> list[str]:
    file = replica / "root.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"schema_version": 99}))
    return [str(replica)]


def another_primary(primary: Path, replica: Path) -> list[str]:
    other = open_or_create_root(primary.parent / "other")
    return ["--primary", str(other.path), str(replica)]


def a_primary_that_is_not_there(primary: Path, replica: Path) -> list[str]:
    return ["--primary", str(primary.parent / "nowhere"), str(replica)]


def a_replica_without_its_end(_primary: Path, replica: Path) -> list[str]:
    """A bootstrap that was cut off, from a history that begins late."""
    from deltalake import DeltaTable  # noqa: PLC0415

    DeltaTable(str(replica / "history")).delete("position < 4")
    return [str(replica)]


def an_empty_replica(_primary: Path, replica: Path) -> list[str]:
    """Its first run was killed before it copied anything."""
    identity = open_root(replica).identity
    shutil.rmtree(replica)
    open_or_create_root(replica, identity)
    return [str(replica)]


@pytest.mark.parametrize(
    ("prepare", "said", "code"),
    [
        (a_primary, "is a primary already (generation 1): serve it", 2),
        (no_root, "is not a sparkstore root", 2),
        (a_fenced_root, "is fenced, not a replica: /elsewhere took over", 2),
        (a_newer_schema, "has schema version 99", 4),
        (another_primary, "is not the primary that", 2),
        (a_primary_that_is_not_there, "is not a sparkstore root", 2),
        (a_replica_without_its_end, "are missing", 4),
        (an_empty_replica, "holds nothing yet", 2),
    ],
)
def test_what_cannot_be_promoted_is_told_in_one_line_and_left_as_it_is(
    roots: tuple[Path, Path],
    capsys: pytest.CaptureFixture[str],
    prepare: Callable[[Path, Path], list[str]],
    said: str,
    code: int,
) -> None:
    arguments = prepare(*roots)
    before = files_below(*roots)
    assert main(["promote", *arguments]) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("sparkstore: ")
    assert said in line
    after = files_below(*roots)
    ours = {"jobs.lock", "writer.lock", "durable.json", "durable.lock"}
    assert {name: content for name, content in after.items() if Path(name).name not in ours} == {
        name: content for name, content in before.items() if Path(name).name not in ours
    }


def test_a_replica_that_somebody_works_on_is_not_promoted(roots: tuple[Path, Path]) -> None:
    _, replica = roots
    with jobs_lease(replica), pytest.raises(Locked, match="another job"):
        promote(replica)
    lock = FileLock(replica / "writer.lock", "x")
    with pytest.raises(Locked):
        promote(replica)
    lock.release()
    assert role_of(replica) == REPLICA
    assert promote(replica).generation == 2


def test_boundaries_are_passed_in_their_order(roots: tuple[Path, Path]) -> None:
    passed: list[str] = []
    promote(roots[1], at=passed.append)
    assert tuple(passed) == promoting.BOUNDARIES
