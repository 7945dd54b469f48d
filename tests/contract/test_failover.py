"""Orders about a pair are answered alike on every road: REST, control socket, command, at rest."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import urlopen

import pytest

from broker_shim.broker.settings import BrokerSettings
from broker_shim.security.guard import Guard
from broker_shim.security.security_settings import SecuritySettings
from broker_shim.serve.bind_address import listening_socket, parse_listen
from broker_shim.serve.http.http_server import HttpServer
from broker_shim.serve.http.resources import failover
from broker_shim.serve.pair.control import PairControl
from broker_shim.serve.probes import Probes
from sparkstore.cli.command_line import main
from sparkstore.control.client import connect_to
from sparkstore.control.http_client import BrokerClient, BrokerLogin
from sparkstore.exit_codes import ExitCode
from sparkstore.operations.root_check import CheckStatus
from sparkstore.standby.port import StandbyPort
from sparkstore.standby.stand_by import PeerAddress, StandBy
from tests.support.roots.logs import TIMEOUT_S, until
from tests.support.roots.pairs import PAIR, TOKEN, port_of
from tests.support.stores.controls import ServedRoot

pytestmark = pytest.mark.slow


class ServedPair(NamedTuple):
    """A primary with its broker, and a standby in step."""

    path: Path
    standby: Path
    url: str

    def get(self, path: str) -> str:
        """Ask the broker for something that no login is needed for."""
        with urlopen(self.url + path) as answer:
            text: str = answer.read().decode()
            return text


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedPair]:
    """A pair that all tests share: none of them switches."""
    with served_pair(tmp_path_factory.mktemp("pair")) as (served, _control):
        folder = served.store.root.path.parent
        yield ServedPair(folder / "a", folder / "b", served.serve_http())


@contextmanager
def served_pair(folder: Path) -> Iterator[tuple[ServedRoot, PairControl]]:
    """A primary in `a` with its broker, and a standby in `b` that is in step."""
    (folder / "witness").mkdir()
    config = replace(PAIR, peer="tcp:127.0.0.1:1", witness=str(folder / "witness"))
    served = ServedRoot(folder / "a", config=config)
    port = StandbyPort(served.store.log, listening_socket(parse_listen("127.0.0.1:0")), TOKEN)
    control = served.control_pair(config)
    standby = StandBy(folder / "b", config, PeerAddress("127.0.0.1", port_of(port), TOKEN))
    thread = threading.Thread(target=standby.run)
    thread.start()
    try:
        until(lambda: standby.is_live and control.holder().in_step)
        yield served, control
    finally:
        standby.stop()
        thread.join(TIMEOUT_S)
        served.stop()
        port.close()


Ask = Callable[[str, bool], dict[str, Any]]


@pytest.fixture(
    params=["REST over TCP", "REST over the socket", "command at ROOT", "command --url"]
)
def ask(
    request: pytest.FixtureRequest, pair: ServedPair, capsys: pytest.CaptureFixture[str]
) -> Ask:
    """Ask for the status, or give an order and return the status then."""

    def by_rest(name: str, is_dry: bool) -> dict[str, Any]:
        if "TCP" in request.param:
            broker = BrokerClient.by_url(pair.url, BrokerLogin(None))
        else:
            control = connect_to(pair.path)
            assert control is not None
            broker = control.broker
        with closing(broker):
            if name != "status":
                broker.ask("POST", f"failover/{name}", {"dry_run": is_dry})
            row: dict[str, Any] = broker.ask("GET", "failover")
            return row

    def by_command(name: str, is_dry: bool) -> dict[str, Any]:
        target = ["--url", pair.url] if "--url" in request.param else [str(pair.path)]
        dry = ["--dry-run"] if is_dry else []
        main(["failover", name, "--json", *dry, *target])
        row: dict[str, Any] = json.loads(capsys.readouterr().out)
        return row

    return by_rest if "REST" in request.param else by_command


def test_a_pause_is_tried_given_and_taken_back(ask: Ask) -> None:
    assert not ask("status", False)["paused"]
    assert not ask("pause", True)["paused"]
    assert ask("pause", False)["paused"]
    assert ask("status", False)["paused"]
    assert ask("resume", True)["paused"]
    assert not ask("resume", False)["paused"]


def test_the_status_has_who_serves_and_what_its_standby_lacks(ask: Ask, pair: ServedPair) -> None:
    row = ask("status", False)
    assert row["serves"].endswith(str(pair.path))
    assert row["standby_in_step"]
    lag = [row[name] for name in ("alone", "lag_records", "lag_bytes", "lag_seconds")]
    assert lag == [False, 0, 0, 0]


def test_the_witness_says_the_same_of_a_machine_that_does_not_serve(
    pair: ServedPair, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = []
    for root in (pair.path, pair.standby):
        assert main(["failover", "status", "--json", str(root)]) == ExitCode.DONE
        rows.append(json.loads(capsys.readouterr().out))
    unknown = dict.fromkeys(("alone", "lag_records", "lag_bytes", "lag_seconds"))
    assert {**rows[0], **unknown} == rows[1]
    assert main(["failover", "pause", "--check", str(pair.standby)]) == ExitCode.WOULD_CHANGE
    capsys.readouterr()


@pytest.mark.parametrize("road", ["ROOT", "--url"])
def test_a_switch_can_be_tried_and_is_refused_while_paused(
    pair: ServedPair, road: str, capsys: pytest.CaptureFixture[str]
) -> None:
    target = [str(pair.path)] if road == "ROOT" else ["--url", pair.url]
    assert main(["failover", "switch", "--check", *target]) == ExitCode.WOULD_CHANGE
    main(["failover", "pause", *target])
    capsys.readouterr()
    assert main(["failover", "switch", *target]) == ExitCode.WRONG_CALL
    assert (
        "take-overs are paused: sparkstore failover resume ROOT, first" in capsys.readouterr().err
    )
    main(["failover", "resume", *target])
    capsys.readouterr()


def test_a_switch_that_takes_long_goes_on_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(failover, "_SWITCH_S", 0.1)
    with served_pair(tmp_path) as (served, control):
        control._stop, control._successor_s = list, 0.0  # it is held up, and its standby is lost
        assert main(["failover", "switch", str(tmp_path / "a")]) == ExitCode.TRY_LATER
        assert "has begun, goes on, and is not over after 0.1 s" in capsys.readouterr().err
        ((_event, line),) = served.audited
        assert (line["act"], line.get("error")) == ("switch-machines", None)
        outcome = control._outcome
        assert outcome is not None
        assert not outcome.done()
    assert control.code_of(ExitCode.DONE) == ExitCode.TAKEN_OVER
    assert "did not take over" in str(outcome.exception(TIMEOUT_S))


def test_a_switch_that_is_ordered_at_the_standby_says_where_to_ask(
    pair: ServedPair, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["failover", "switch", str(pair.standby)]) == ExitCode.WRONG_CALL
    refusal = capsys.readouterr().err
    assert f"{pair.path} serves, so order it there, or by its --url" in refusal


def test_the_url_of_a_standby_says_where_to_ask(capsys: pytest.CaptureFixture[str]) -> None:
    probes = Probes()
    probes.standby_trouble = lambda: None  # in step
    server = HttpServer(probes, BrokerSettings())
    listening = listening_socket(parse_listen("127.0.0.1:0"))
    server.listen(listening, Guard(SecuritySettings()), is_loopback=True)
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    assert main(["failover", "switch", "--url", url]) == ExitCode.TRY_LATER
    server.close()
    assert "is the standby of a pair: ask the other one" in capsys.readouterr().err


def test_a_primary_with_its_standby_is_well_wherever_one_looks(
    pair: ServedPair, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pair.get("/readyz") == "ok\n"
    overview = json.loads(pair.get("/api/v1/overview"))
    assert (overview["standby"]["in_step"], overview["standby"]["alone"]) == (True, False)
    assert doctor(pair.path, capsys) == "ok"
    assert main(["check", str(pair.path), "--alone", "0"]) == ExitCode.DONE


def test_a_primary_that_is_alone_says_so_wherever_one_looks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "witness").mkdir()
    config = replace(PAIR, witness=str(tmp_path / "witness"))
    served = ServedRoot(tmp_path / "a", config=config)
    served.control_pair(config)
    pair = ServedPair(tmp_path / "a", tmp_path / "b", served.serve_http())
    try:
        assert pair.get("/readyz") == "ok, alone: no standby has what is confirmed\n"
        overview = json.loads(pair.get("/api/v1/overview"))
        assert overview["standby"]["alone"]
        assert "standby: none is in step" in str(overview["alarms"])
        assert doctor(pair.path, capsys) == "warn"
        assert main(["check", str(pair.path), "--alone", "0"]) == CheckStatus.WARNING
        assert main(["check", str(pair.path), "--alone", ":0"]) == CheckStatus.CRITICAL
    finally:
        served.stop()


def doctor(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What the doctor says of the standby."""
    main(["doctor", "--json", str(path)])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (status,) = (str(row["status"]) for row in rows if row["name"] == "standby")
    return status
