"""Whether a release can serve a root is said before it does, and nothing is changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import Queue
from sparkstore.cli.command_line import main
from tests.support.stores.calls import root_with_orders
from tests.support.stores.stores import DELTA_CONFIG, done

Ask = Callable[[Path], tuple[int, dict[str, Any]]]


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Ask:
    def ask(root: Path) -> tuple[int, dict[str, Any]]:
        code = main(["migrate", "--check", "--json", str(root)])
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        return code, {row["name"]: row for row in rows}

    return ask


def test_a_root_at_rest_of_this_release_needs_nothing(tmp_path: Path, ask: Ask) -> None:
    root = root_with_orders(tmp_path / "root", 3)
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    code, found = ask(root)
    assert code == 0
    assert {name: row["status"] for name, row in found.items()} == {
        "tables": "ok",
        "records": "ok",
        "write-ahead log": "ok",
        "in use": "ok",
    }
    assert "3 messages" in found["records"]["found"]
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before


def test_a_root_that_is_served_is_to_be_stopped_first(tmp_path: Path, ask: Ask) -> None:
    store = DeltaMessageStore(tmp_path / "root", DELTA_CONFIG)
    done(store.create, Queue("q"))
    done(store.flush)
    code, found = ask(tmp_path / "root")
    store.close()
    assert (code, found["in use"]["status"]) == (0, "warn")
    assert "stop it cleanly" in found["in use"]["advice"]


def test_a_root_of_another_version_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = root_with_orders(tmp_path / "root", 1)
    file = root / "root.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "schema_version": 99}))
    assert main(["migrate", "--check", str(root)]) == 4
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert "install a newer sparkstore" in told.err


def test_tables_that_cannot_be_read_whole_fail(tmp_path: Path, ask: Ask) -> None:
    root = root_with_orders(tmp_path / "root", 1)
    (broken := next((root / "journal").rglob("*.parquet"))).write_bytes(b"PAR1")
    code, found = ask(root)
    assert (code, found["records"]["status"]) == (1, "fail")
    assert broken.name in found["records"]["found"] or found["records"]["advice"]
