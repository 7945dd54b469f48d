"""XA branches of Broker-J are branches of the store: shown, moved there, decided by anybody."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from sparkstore.cli.command_line import main
from tests.support.checkout import CHECKOUT
from tests.support.roots.logs import until
from tests.support.system import brokerj

pytestmark = [pytest.mark.system, pytest.mark.slow]

XID = "4711:010203:04"
OF_EARLIER_VERSION = CHECKOUT / "tests/system/roots/brokerj_branch_in_configuration.tar.gz"
"""A root and its broker's folder as the version before left them: the branch of `XaClient`, which
takes one of two messages of `from` and puts one on `to`, is a configured object."""


def shown(host: brokerj.Setup, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """What `sparkstore transactions` says of a root that nobody serves."""
    capsys.readouterr()
    assert main(["transactions", str(host.root), "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def refused(host: brokerj.Setup, capsys: pytest.CaptureFixture[str]) -> str:
    """Why an operator cannot commit the branch now, in one line."""
    capsys.readouterr()
    assert main(["transactions", str(host.root), "--commit", XID]) != 0
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


def texts(host: brokerj.Setup, queue: str, count: int) -> list[str]:
    found: list[str] = host.client("OldJmsClient", "0-10", "receive", queue, count)["texts"]
    return found


def assert_in_doubt(rows: list[dict[str, Any]]) -> None:
    (row,) = rows
    assert (row["xid"], row["state"], row["operations"]) == (XID, "prepared", 2)
    assert row["holder"]


def configured(host: brokerj.Setup) -> list[tuple[int, str]]:
    """Kind and key of every record about a branch as a configured object."""
    kinds, categories, keys = host.journal("kind", "exchange", "binding_key").columns[1:]
    rows = zip(kinds.to_pylist(), categories.to_pylist(), keys.to_pylist(), strict=True)
    return [(kind, key) for kind, category, key in rows if category == "xid"]


def test_an_operator_sees_a_branch_and_decides_it_while_its_broker_is_stopped(
    host: brokerj.Setup, capsys: pytest.CaptureFixture[str]
) -> None:
    host.client("OldJmsClient", "0-10", "send", "from", 2)
    host.client("OldJmsClient", "0-10", "send", "to", 0)
    assert host.client("XaClient", "prepare", "from", "to") == {"taken": True, "prepared": True}
    assert "Broker-J host is attached" in refused(host, capsys)
    host.service.terminate()  # Broker-J lives, and has the branch in its memory
    assert "Broker-J host 'default' was attached" in refused(host, capsys)
    assert_in_doubt(shown(host, capsys))
    host.start_service()
    until(lambda: "Broker-J host is attached" in refused(host, capsys))
    host.stop()
    assert_in_doubt(shown(host, capsys))
    assert configured(host) == []
    assert main(["transactions", str(host.root), "--commit", XID]) == 0
    (row,) = shown(host, capsys)
    assert (row["xid"], row["state"]) == (XID, "heuristically committed")
    host.start_service()
    host.start_broker()
    assert host.client("XaClient", "rollback") == {"branches": 0}
    assert texts(host, "to", 1) == ["moved"]
    assert len(texts(host, "from", 1)) == 1


@pytest.mark.parametrize(
    ("decision", "on_from", "on_to"), [("commit", 1, ["moved"]), ("rollback", 2, [])]
)
def test_a_branch_of_an_earlier_version_is_moved_at_the_start_and_decided(
    brokerj_plugin: None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    decision: str,
    on_from: int,
    on_to: list[str],
) -> None:
    with tarfile.open(OF_EARLIER_VERSION) as archive:
        archive.extractall(tmp_path, filter="data")
    assert main(["transactions", str(tmp_path / "root"), "--json"]) == 0
    assert capsys.readouterr().out == ""
    with brokerj.running(tmp_path) as host:
        host.stop()
        assert_in_doubt(shown(host, capsys))
        assert configured(host) == [("configured", XID), ("unconfigured", XID)]
        host.start_service()
        host.start_broker()
        host.kill_and_restart()
        assert host.client("XaClient", decision) == {"branches": 1}
        host.broker.kill()
        host.start_broker()
        assert host.client("XaClient", decision) == {"branches": 0}
        assert texts(host, "to", len(on_to)) == on_to
        assert len(texts(host, "from", on_from)) == on_from
        host.stop()
        assert shown(host, capsys) == []
