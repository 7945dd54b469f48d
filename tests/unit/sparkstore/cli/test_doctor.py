"""`sparkstore doctor`: what it says of a machine, a disk and a root."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from broker_shim.store.delta import DeltaMessageStore
from sparkstore.cli.command_line import main
from sparkstore.cli.health import diagnosis
from sparkstore.cli.health.machine_health import python_build
from sparkstore.cli.health.root_health import file_system_of
from sparkstore.tables.delta_files import log_file, newest_version
from tests.support.stores.stores import DELTA_CONFIG

MIB = 1 << 20


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root that a store made and left."""
    DeltaMessageStore(tmp_path / "root", DELTA_CONFIG).close()
    return tmp_path / "root"


def lines(capsys: pytest.CaptureFixture[str], *argv: str | Path) -> dict[str, dict[str, Any]]:
    code = main(["doctor", "--json", *map(str, argv)])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert code == (1 if any(row["status"] == "fail" for row in rows) else 0)
    return {row["name"]: row for row in rows}


def test_a_root_that_is_well_is_told_so(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(root.iterdir())
    found = lines(capsys, root)
    for name in ("python", "deltalake", "permissions", "owner", "root", "tables"):
        assert found[name]["status"] == "ok", found[name]
    assert {"clock", "open files", "file system", "fsync", "free disk"} <= found.keys()
    assert "no store is seen to run" in found["root"]["found"]
    assert sorted(root.iterdir()) == before


def test_how_python_was_built_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.base_prefix", "/opt/python")
    for flags, how in (("'--enable-optimizations'", "with"), ("", "without")):
        monkeypatch.setattr("sysconfig.get_config_var", {"CONFIG_ARGS": flags}.get)
        assert f", {how} profile-guided optimisation" in python_build()
    monkeypatch.setattr("sys.base_prefix", "/usr")
    assert ", with profile-guided optimisation" in python_build()


def test_what_is_wrong_with_a_root_is_told_with_what_to_do(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root.chmod(0o755)
    journal = root / "journal"
    log_file(journal, newest_version(journal) + 1).write_bytes(bytes(100))  # as power loss leaves
    found = lines(capsys, root)
    assert (found["permissions"]["status"], found["tables"]["status"]) == ("warn", "warn")
    assert found["permissions"]["advice"].endswith(f"chmod 700 {root}")
    assert "a heal is due: journal" in found["tables"]["found"]
    log_file(journal, newest_version(journal)).unlink()
    an_hour_ago = time.time() - 3600
    monkeypatch.setattr("sparkstore.cli.health.root_health.time.time", lambda: an_hour_ago)
    assert "in the future" in lines(capsys, root)["times of commits"]["found"]
    (root / "root.json").write_text("{")
    assert lines(capsys, root)["root"]["status"] == "fail"


def test_a_place_for_a_root_is_looked_at_before_there_is_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "makes it" in lines(capsys, tmp_path / "new" / "root")["root"]["found"]
    assert [*tmp_path.iterdir()] == []
    (tmp_path / "letter").write_text("dear")
    assert lines(capsys, tmp_path)["root"]["status"] == "fail"
    assert "root" not in lines(capsys)
    assert main(["doctor", str(tmp_path / "a%20b")]) == 2
    assert "misread" in capsys.readouterr().err


def test_a_cycle_of_dead_letters_is_told(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert lines(capsys, root)["queues"]["status"] == "ok"
    for queue, other in (("a", "b"), ("b", "a")):
        given = ["--set", "message_ttl_ms=100", "--set", f"dead_letter_queue={other}"]
        assert main(["queue", "create", str(root), queue, *given]) == 0
    assert "dead letters go round from" in capsys.readouterr().out
    found = lines(capsys, root)["queues"]
    assert found["status"] == "warn"
    assert found["found"].startswith("dead letters go round from 'a' to 'b' to 'a'")


def test_people_get_a_line_each(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor", str(root)])
    told = capsys.readouterr().out.splitlines()
    assert all(line[:6].strip() in {"ok", "warn", "fail"} for line in told)


@pytest.mark.parametrize(
    ("found", "status", "advice"),
    [
        (diagnosis.of_file_system("ext4", "/srv"), "ok", ""),
        (diagnosis.of_file_system("tmpfs", "/srv"), "fail", "put the root on a disk"),
        (diagnosis.of_file_system("overlay", "/srv"), "fail", "put the root on a volume"),
        (diagnosis.of_file_system("nfs4", "/srv"), "warn", "is not known here"),
        (diagnosis.of_sync_time(0.3), "ok", ""),
        (diagnosis.of_sync_time(0.002), "warn", "before it is written"),
        (diagnosis.of_sync_time(45), "warn", "wal_dir"),
        (diagnosis.of_open_files(65536), "ok", ""),
        (diagnosis.of_open_files(-1), "ok", ""),
        (diagnosis.of_open_files(1024), "warn", "LimitNOFILE"),
        (diagnosis.of_room(9000 * MIB, 9999 * MIB, 128 * MIB), "ok", ""),
        (diagnosis.of_room(400 * MIB, 9999 * MIB, 128 * MIB), "warn", "make room"),
        (diagnosis.of_room(100 * MIB, 9999 * MIB, 128 * MIB), "fail", "run compact"),
        (diagnosis.of_version("a", "1.6.9", "<1.7,>=1.6.6"), "ok", ""),
        (diagnosis.of_version("a", "1.10", "<1.7,>=1.6.6"), "fail", "'a<1.7,>=1.6.6'"),
        (diagnosis.of_version("a", "4.4.1", "==4.4.0"), "fail", "'a==4.4.0'"),
        (diagnosis.of_version("a", "4.4.0.post1", "==4.4.0"), "ok", ""),
        (diagnosis.of_version("a", None, ">=1"), "fail", "pip install"),
    ],
)
def test_each_finding_is_judged(found: diagnosis.Diagnosis, status: str, advice: str) -> None:
    assert found.status == status
    assert advice in found.advice
    assert bool(found.advice) is (status != "ok")


def test_the_kernel_tells_the_file_system() -> None:
    assert file_system_of(Path("/proc/self")) == "proc"
