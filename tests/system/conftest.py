"""A real broker process, a real Broker-J, and what clients need to talk to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.system import brokerj
from tests.system.processes import CHECKOUT, START_S, BrokerProcess

__all__ = ["CHECKOUT", "START_S", "BrokerProcess", "StartBroker"]

StartBroker = Callable[..., BrokerProcess]


@pytest.fixture
def start_broker() -> Iterator[StartBroker]:
    """Start a broker on a free port with these arguments; killed at the end if it still runs."""
    started: list[BrokerProcess] = []

    def start(*arguments: str) -> BrokerProcess:
        broker = BrokerProcess("--listen", "127.0.0.1:0", *arguments)
        started.append(broker)
        return broker

    yield start
    for broker in started:
        if broker.is_running:
            broker.kill()


@pytest.fixture
def broker(start_broker: StartBroker) -> BrokerProcess:
    """A broker that keeps nothing."""
    return start_broker("--memory")


@pytest.fixture(scope="session")
def brokerj_plugin() -> None:
    """The plugin for Broker-J is built; skips where that cannot be."""
    brokerj.build()


@pytest.fixture
def host(brokerj_plugin: None, tmp_path: Path) -> Iterator[brokerj.Setup]:
    """A virtual host of Broker-J: a root with its service and its broker."""
    with brokerj.running(tmp_path) as setup:
        yield setup
