"""A real broker process, a real Broker-J, and what clients need to talk to them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.system import brokerj
from tests.support.system.processes import BrokerProcess, StartBroker


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
