"""An administrator sees and ends connections of members, through the service that they share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from proton.utils import ConnectionClosed

from sparkstore.cli.command_line import main
from sparkstore.control.client import connect_to
from sparkstore.errors import InvalidRequest
from tests.support.stores.services import short_folder
from tests.support.system.clients import connected
from tests.support.system.processes import BrokerProcess

pytestmark = [pytest.mark.system, pytest.mark.slow]

LISTEN = "--listen=127.0.0.1:0"


@pytest.fixture(params=["beside a broker", "without AMQP"])
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, BrokerProcess]]:
    """A root, and a member of its service."""
    root = str(tmp_path / "root")
    with short_folder() as folder:
        door = LISTEN if request.param == "beside a broker" else "--no-amqp"
        service = BrokerProcess(root, f"--store-socket={folder / 's'}", door)
        member = BrokerProcess(f"--store=unix:{folder / 's'}", "--member=one", LISTEN)
        yield root, member
        if member.is_running:
            assert member.terminate() == 0
        assert service.terminate() == 0
        assert "Traceback" not in member.log + service.log


def connections(root: str, captured: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    captured.readouterr()
    assert main(["connections", root, "--json"]) == 0
    return [json.loads(line) for line in captured.readouterr().out.splitlines()]


def test_connections_of_a_member_are_listed_and_one_is_ended(
    served: tuple[str, BrokerProcess], capsys: pytest.CaptureFixture[str]
) -> None:
    root, member = served
    assert connections(root, capsys) == []
    with connected(member.url) as kept, connected(member.url) as other:
        kept.create_receiver("q")
        rows = connections(root, capsys)
        assert [(row["member"], row["open"]) for row in rows] == [("one", True)] * 2
        assert [row["links"] for row in rows] == [1, 0]
        control = connect_to(root)
        assert control is not None
        with closing(control.broker) as broker:
            path = f"connections/{rows[0]['connection']}/links"
            (link,) = broker.ask("GET", path, member="one")["items"]
            assert (link["role"], link["address"]) == ("receiver", "q")
            with pytest.raises(InvalidRequest, match="no connection 99"):
                broker.ask("GET", "connections/99/links", member="one")
        number = str(rows[1]["connection"])
        assert main(["connections", root, "--close", number]) == 2
        assert main(["connections", root, "--close", number, "--member", "two"]) == 2
        assert "no member 'two' connected" in capsys.readouterr().err
        assert main(["connections", root, "--close", number, "--member", "one"]) == 0
        with pytest.raises(ConnectionClosed, match="administrator"):
            other.create_receiver("q")
        left = [row for row in connections(root, capsys) if row["open"]]
        assert [row["links"] for row in left] == [1]
    assert '"act": "close-connection"' in member.log
    member.kill()
    assert connections(root, capsys) == []
