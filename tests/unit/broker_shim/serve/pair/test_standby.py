"""What the settings of a pair may not say together is refused before anything is opened."""

from __future__ import annotations

import signal
from argparse import Namespace
from pathlib import Path

import pytest

from broker_shim.broker.settings import BrokerSettings
from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.security.guard import Guard
from broker_shim.security.security_settings import SecuritySettings
from broker_shim.serve import command
from broker_shim.serve.bind_address import parse_listen
from broker_shim.serve.entrance import Entrance
from broker_shim.serve.pair import standby
from broker_shim.serve.pair.standby import stores_when_due, with_pair
from broker_shim.serve.reporting import Reporter
from broker_shim.serve.stores import stores_of
from broker_shim.store.memory import MemoryMessageStore
from sparkstore.config import StoreConfig
from sparkstore.exit_codes import ExitCode

PEER = "tcp:10.0.0.2:5680"


def options(**given: object) -> Namespace:
    """The command line of a standby, with some of it changed."""
    usual = {"root": "/r", "standby_of": PEER, "standby_listen": None, "token_file": "token"}
    return Namespace(**{**usual, **given})


@pytest.mark.parametrize(
    ("given", "config", "reason"),
    [
        ({"standby_listen": "10.0.0.2:5680"}, {}, "own --standby-listen: name the other machine"),
        ({"root": "s3://lake/r"}, {}, "needs a root in a folder"),
        ({"root": None}, {}, "needs a root in a folder: --configuration"),
        ({"token_file": None}, {}, "needs --token-file FILE"),
        ({"standby_of": "10.0.0.2:5680"}, {}, "write it as tcp:HOST:PORT"),
        ({"standby_of": "tcp:somewhere"}, {}, "write it as tcp:HOST:PORT"),
        ({}, {"ack": "delta"}, "ships the write-ahead log"),
        ({"standby_of": None, "standby_listen": ":5680"}, {"ack": "delta"}, "--standby-listen"),
    ],
)
def test_a_pair_is_refused_in_one_line(
    given: dict[str, object], config: dict[str, str], reason: str
) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        with_pair(options(**given), StoreConfig(**config))


def test_the_command_line_counts_before_the_file() -> None:
    config = with_pair(options(), StoreConfig(peer="tcp:10.0.0.3:1", standby_listen="10.0.0.1:1"))
    assert (config.peer, config.standby_listen) == (PEER, "10.0.0.1:1")


def test_a_reload_of_its_unit_ends_no_machine_that_waits_for_its_witness(tmp_path: Path) -> None:
    """A loop that has ended leaves the signals as the system has them: they end the process.

    The root cannot be read, which the wait for its witness is the first to find.
    """
    numbers = (signal.SIGHUP, signal.SIGUSR1)
    before = {number: signal.signal(number, signal.SIG_DFL) for number in numbers}
    (tmp_path / "root.json").write_text("{")
    start = stores_when_due(
        options(root=str(tmp_path), standby_of=None), StoreConfig(), 1.0, Reporter(None)
    )
    try:
        with pytest.raises(StoreError, match=r"root\.json"), start:
            pass
        assert [signal.getsignal(number) for number in numbers] == [signal.SIG_IGN] * 2
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _DueTurn:
    """The turn of a machine that is to serve now."""

    trouble, is_live = "", True

    def run(self) -> bool:
        return True

    def stop(self) -> None:
        raise AssertionError("it was not asked to stop while it waited")


def test_a_stop_while_a_standby_opens_its_store_ends_it_cleanly_once_it_serves() -> None:
    """The system's own action would end the process amid its take-over, and with an error."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
    before = {number: signal.getsignal(number) for number in numbers}
    given = options(store=None, memory=True, json=False, config=None, stop_requests=[])
    reporter = Reporter(None)
    try:
        assert standby._wait_as(_DueTurn(), "the bucket", given, reporter)  # type: ignore[arg-type]
        signal.raise_signal(signal.SIGTERM)
        assert given.stop_requests == [signal.SIGTERM]
        entrance = Entrance(parse_listen("127.0.0.1:0"), Guard(SecuritySettings()))
        doors = command.Entrances(entrance, None)
        stores = stores_of(MemoryMessageStore())
        assert command.serve(stores, BrokerSettings(), doors, given, reporter) == ExitCode.DONE
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
