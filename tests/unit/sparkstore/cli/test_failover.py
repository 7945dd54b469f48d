"""`sparkstore failover` shows what the witness says, and pauses take-overs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparkstore.cli.command_line import main
from sparkstore.tables.fencing import change_identity
from sparkstore.tables.root import open_or_create_root
from sparkstore.witness.folder import FolderPlace
from sparkstore.witness.lease import Witness


def test_a_take_over_is_paused_over_renewals_and_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "witness"
    place.mkdir()
    root = open_or_create_root(tmp_path / "root")
    change_identity(root, lambda _: {"witness": str(place)})
    lease = Witness(FolderPlace(place), root.identity, str(root.path), 10.0)
    lease.claim(is_new=True)

    def shown(command: str) -> tuple[int, dict[str, object]]:
        code = main(["failover", command, "--json", str(root.path)])
        row: dict[str, object] = json.loads(capsys.readouterr().out)
        return code, row

    code, row = shown("status")
    assert (code, row["standby_in_step"], row["serves"]) == (1, "", row["served_last"])
    lease.name_in_step("b" * 32)
    assert shown("status")[0] == 0
    shown("pause")
    lease.renew()
    code, row = shown("status")
    assert (code, row["paused"], row["standby_in_step"]) == (1, True, "b" * 32)
    lease.stop()  # as for an upgrade
    lease = Witness(FolderPlace(place), root.identity, str(root.path), 10.0)
    lease.claim(is_new=False)
    lease.name_in_step("b" * 32)
    assert shown("status")[1]["paused"]
    shown("resume")
    lease.renew()
    assert shown("status")[0] == 0
    lease.stop()
    assert shown("status")[1]["serves"] == ""


def test_a_root_without_a_witness_is_refused_by_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    open_or_create_root(tmp_path / "root")
    assert main(["failover", "status", str(tmp_path / "root")]) == 2
    assert "has no witness: nothing takes over by itself" in capsys.readouterr().err
