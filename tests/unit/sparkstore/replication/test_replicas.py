"""What may not be primary and replica is told before a JVM is started, and nothing is changed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import write_deltalake

from sparkstore.cli.command_line import main
from sparkstore.core.records import opened
from sparkstore.errors import InvalidRequest, Locked, StoreError
from sparkstore.replication.replicas import check, paired
from sparkstore.storage.storage import Storage
from sparkstore.tables.fencing import change_stored_identity
from sparkstore.tables.lease import jobs_lease
from sparkstore.tables.root import Identity, Root, open_or_create_root, open_root
from sparkstore.tables.rows import to_table
from tests.support.checkout import CHECKOUT
from tests.support.roots.replicas import files_below, replica_of, role_of

Prepare = Callable[[Path, Path], tuple[Path, Path]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A primary and a replica of it, for copying: they take a while to make."""
    folder = tmp_path_factory.mktemp("made")
    replica_of(open_or_create_root(folder / "primary"), folder / "replica")
    return folder


@pytest.fixture
def roots(made: Path, tmp_path: Path) -> tuple[Path, Path]:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    say(tmp_path / "primary", replicas=[str(tmp_path / "replica")])
    return tmp_path / "primary", tmp_path / "replica"


def say(root: Path, **changes: object) -> None:
    file = root / "root.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def the_primary_itself(primary: Path, _: Path) -> tuple[Path, Path]:
    return primary, primary


def the_primary_by_a_link(primary: Path, replica: Path) -> tuple[Path, Path]:
    link = replica.with_name("link")
    link.symlink_to(primary)
    return primary, link


def a_folder_in_the_primary(primary: Path, _: Path) -> tuple[Path, Path]:
    return primary, primary / "replica"


def another_primary(primary: Path, replica: Path) -> tuple[Path, Path]:
    return primary, open_or_create_root(replica.with_name("other")).path


def a_replica_of_another_store(primary: Path, replica: Path) -> tuple[Path, Path]:
    other = open_or_create_root(replica.with_name("other"))
    return primary, replica_of(other, replica.with_name("its replica")).path


def a_folder_with_other_things(primary: Path, replica: Path) -> tuple[Path, Path]:
    folder = replica.with_name("papers")
    folder.mkdir()
    (folder / "thesis.tex").write_text("years of work")
    return primary, folder


def a_file(primary: Path, replica: Path) -> tuple[Path, Path]:
    replica.with_name("file").touch()
    return primary, replica.with_name("file")


def a_replica_that_lost_root_json(primary: Path, replica: Path) -> tuple[Path, Path]:
    rows = to_table([opened(1, "w")], first_position=1, epoch=1, segment=1)
    write_deltalake(str(replica / "history"), rows, mode="append")
    (replica / "root.json").unlink()
    return primary, replica


def no_primary(primary: Path, replica: Path) -> tuple[Path, Path]:
    return primary.with_name("nowhere"), replica


def a_replica_of_a_replica(primary: Path, replica: Path) -> tuple[Path, Path]:
    return replica, primary.with_name("new")


def a_newer_primary(primary: Path, replica: Path) -> tuple[Path, Path]:
    say(primary, schema_version=99)
    return primary, replica


def a_newer_replica(primary: Path, replica: Path) -> tuple[Path, Path]:
    say(replica, schema_version=99)
    return primary, replica


def an_older_generation(primary: Path, replica: Path) -> tuple[Path, Path]:
    say(primary, generation=2)
    return primary, replica


def a_promoted_replica(primary: Path, replica: Path) -> tuple[Path, Path]:
    say(replica, generation=2, role="primary")
    return primary, replica


def a_promoted_sibling(primary: Path, replica: Path) -> tuple[Path, Path]:
    say(replica, generation=2, role="primary")
    return primary, primary.with_name("new")


def a_fenced_primary(primary: Path, replica: Path) -> tuple[Path, Path]:
    say(primary, role="fenced", successor="/elsewhere")
    return primary, replica


def a_fenced_replica(primary: Path, replica: Path) -> tuple[Path, Path]:
    say(replica, role="fenced")
    return primary, replica


BAD: list[tuple[Prepare, str, int]] = [
    (the_primary_itself, "is the primary itself", 2),
    (the_primary_by_a_link, "is the primary itself", 2),
    (a_folder_in_the_primary, "lie one in the other", 2),
    (another_primary, "is a primary, not a replica: choose another folder", 2),
    (a_replica_of_another_store, "holds another store's data", 2),
    (a_folder_with_other_things, "it holds 'thesis.tex'", 2),
    (a_file, "is a file", 2),
    (a_replica_that_lost_root_json, "history but no root.json", 4),
    (no_primary, "is not a sparkstore root", 2),
    (a_replica_of_a_replica, "is a replica: replicate from its primary", 2),
    (a_newer_primary, "has schema version 99", 4),
    (a_newer_replica, "has schema version 99", 4),
    (an_older_generation, "has generation 1, its primary has 2: empty", 2),
    (a_promoted_replica, "it was promoted; use it instead", 3),
    (a_promoted_sibling, "was promoted to 2", 3),
    (a_fenced_primary, "is fenced: /elsewhere took over", 3),
    (a_fenced_replica, "is a fenced, not a replica", 2),
]


@pytest.mark.parametrize(("prepare", "said", "code"), BAD)
def test_what_may_not_be_primary_and_replica_is_told_in_one_line_and_left_as_it_is(
    roots: tuple[Path, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    prepare: Prepare,
    said: str,
    code: int,
) -> None:
    primary, replica = prepare(*roots)
    before = files_below(tmp_path)
    assert main(["replicate", str(primary), str(replica)]) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("sparkstore: ")
    assert said in line
    assert files_below(tmp_path) == before
    with pytest.raises(StoreError), paired(primary, replica):
        pytest.fail("it was taken for a pair")
    assert files_below(tmp_path) == before


def test_a_uri_of_another_kind_is_refused(roots: tuple[Path, Path]) -> None:
    with pytest.raises(InvalidRequest, match="only a folder or file:// URI can be the root here"):
        check(roots[0], "s3://bucket/replica")


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv to be less than root")
@pytest.mark.slow
@pytest.mark.parametrize("what", ["parent", "replica", "primary"])
def test_a_folder_that_this_user_may_not_write_is_told_and_nothing_is_changed(
    roots: tuple[Path, Path], tmp_path: Path, what: str
) -> None:
    primary, new = roots[0], tmp_path / "new"
    if what == "replica":
        new.mkdir()
    say(primary, replicas=[])
    forbidden = {"parent": tmp_path, "replica": new, "primary": primary}[what]
    forbidden.chmod(0o555)
    before = files_below(tmp_path)
    command = [sys.executable, "-m", "sparkstore", "replicate", str(primary), str(new)]
    rights = "-dac_override,-dac_read_search"
    prefix = ["setpriv", f"--bounding-set={rights}"] if os.geteuid() == 0 else []
    ended = subprocess.run(
        [*prefix, *command], cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    forbidden.chmod(0o755)
    assert ended.returncode == 2, ended.stderr
    (line,) = ended.stderr.splitlines()
    assert "cannot be written: give this user the right to" in line
    assert files_below(tmp_path) == before


def test_a_first_pairing_registers_and_creates(roots: tuple[Path, Path], tmp_path: Path) -> None:
    primary, new = roots[0], tmp_path / "new"
    with paired(primary, new) as pair:
        assert pair.replica.identity.primary_id == pair.primary.identity.root_id
        with pytest.raises(Locked), jobs_lease(new):
            pass
    assert role_of(new) == ("replica", 1)
    assert open_root(primary).identity.replicas == [str(roots[1]), str(new)]
    before = files_below(primary)
    with paired(primary, new) as again:
        assert again.replica == pair.replica
    assert files_below(primary) == before


def test_a_replica_keeps_its_primarys_generation(roots: tuple[Path, Path], tmp_path: Path) -> None:
    say(roots[0], generation=5, replicas=[])
    with paired(roots[0], tmp_path / "new"):
        pass
    assert role_of(tmp_path / "new") == ("replica", 5)


def test_a_primary_that_forgot_its_replica_is_told_again(roots: tuple[Path, Path]) -> None:
    """Its root.json was restored from a backup."""
    say(roots[0], replicas=[])
    with paired(*roots):
        pass
    assert open_root(roots[0]).identity.replicas == [str(roots[1])]


def test_a_creation_that_was_cut_off_is_finished(roots: tuple[Path, Path], tmp_path: Path) -> None:
    new = tmp_path / "new"
    with paired(roots[0], new):
        pass
    (new / "root.json").unlink()
    shutil.rmtree(new / "state")
    with paired(roots[0], new) as pair:
        assert isinstance(pair.replica, Root)
    assert role_of(new) == ("replica", 1)


def test_a_root_that_was_created_there_meanwhile_is_not_taken(
    roots: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store opened the empty folder after the first look."""
    new = tmp_path / "new"

    def create_first(root: Storage, change: Callable[[Identity], dict[str, Any]]) -> Identity:
        open_or_create_root(new)
        return change_stored_identity(root, change)

    monkeypatch.setattr("sparkstore.replication.primary.change_stored_identity", create_first)
    with pytest.raises(InvalidRequest, match="is a primary"), paired(roots[0], new):
        pytest.fail("it was taken for a pair")
    assert role_of(new) == ("primary", 1)
