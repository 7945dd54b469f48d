"""What may not be reconciled is refused in one line, before a JVM starts; nothing is changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sparkstore.cli.command_line import main
from sparkstore.reconcile.comparable_roots import check_roots
from sparkstore.tables.root import Identity, open_or_create_root
from tests.support.roots.damage import files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A primary, a replica of it, a replica of another store, and a folder that is no root."""
    primary = open_or_create_root(tmp_path / "primary")
    for name, primary_id in (("replica", primary.identity.root_id), ("stranger", "of another")):
        new = Identity(name, role="replica", primary_id=primary_id, primary="somewhere")
        open_or_create_root(tmp_path / name, new)
    (tmp_path / "nothing").mkdir()
    return tmp_path


def from_the_future(folder: Path) -> None:
    file = folder / "primary" / "root.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"schema_version": 99}))


def fenced(folder: Path) -> None:
    file = folder / "primary" / "root.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"role": "fenced"}))


def untouched(_folder: Path) -> None:
    pass


@pytest.mark.parametrize(
    ("change", "words", "code", "told"),
    [
        (untouched, ["nothing"], 2, "is not a sparkstore root"),
        (untouched, ["absent"], 2, "is not a sparkstore root"),
        (untouched, ["--replica", "nothing", "primary"], 2, "is not a sparkstore root"),
        (untouched, ["--replica", "absent", "primary"], 2, "is not a sparkstore root"),
        (untouched, ["--replica", "primary", "primary"], 2, "primary"),
        (untouched, ["--replica", "stranger", "primary"], 2, "another store's data"),
        (from_the_future, ["primary"], 4, "install a newer sparkstore"),
        (fenced, ["--replica", "replica", "primary"], 3, "fenced"),
    ],
)
def test_bad_input_is_one_line_and_changes_nothing(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[Path], None],
    words: list[str],
    code: int,
    told: str,
) -> None:
    change(folder)
    monkeypatch.chdir(folder)
    before = files(folder)
    assert main(["reconcile", *words]) == code
    said = capsys.readouterr().err.strip()
    assert said.count("\n") == 0
    assert told in said
    assert files(folder) == before


def test_a_root_and_its_replica_may_be_compared(folder: Path) -> None:
    roots = check_roots(folder / "primary", folder / "replica")
    assert roots.replica is not None
    assert roots.replica.identity.role == "replica"


def test_a_replica_may_be_reconciled_by_itself(folder: Path) -> None:
    assert check_roots(folder / "replica").replica is None
