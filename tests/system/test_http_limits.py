"""Sockets that strangers hold at a real broker leave the store and its clients what they need."""

from __future__ import annotations

import re
import resource
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import proton
import pytest
from proton.utils import BlockingConnection

from tests.support.system.processes import BrokerProcess, StartBroker

TIMEOUT_S = 20
DESCRIPTORS, STRANGERS = 256, 400


@pytest.fixture
def strangers() -> Iterator[ExitStack]:
    with ExitStack() as held:
        yield held


def hold(strangers: ExitStack, port: int) -> None:
    """Hold as many silent sockets as the broker lets one hold."""
    for _ in range(STRANGERS):
        peer = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        strangers.enter_context(closing(peer))


def probe(url: str) -> int:
    with urllib.request.urlopen(f"{url}/readyz", timeout=TIMEOUT_S) as answer:
        return int(answer.status)


def send(broker: BrokerProcess, count: int) -> None:
    """Send durable messages on a new connection."""
    client = BlockingConnection(broker.url, timeout=TIMEOUT_S)
    sender = client.create_sender("orders")
    for number in range(count):
        sender.send(proton.Message(number, durable=True))
    with suppress(proton.ProtonException):
        client.close()


def test_sockets_of_strangers_leave_descriptors_for_clients_and_the_store(
    start_broker: StartBroker, tmp_path: Path, strangers: ExitStack
) -> None:
    broker = start_broker(str(tmp_path / "root"), "--queue", "orders", "--http", "127.0.0.1:0")
    found = re.search(r" http=(\S+)", broker.ready_line)
    assert found is not None
    hard = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)[1]
    resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, hard))
    hold(strangers, int(found[1].rpartition(":")[2]))
    assert probe(found[1]) == 200
    send(broker, 20)
    client = BlockingConnection(broker.url, timeout=TIMEOUT_S)
    sender = client.create_sender("orders")
    hold(strangers, broker.port)
    for number in range(20):
        sender.send(proton.Message(number, durable=True))
    assert probe(found[1]) == 200
    client.close()
    assert broker.terminate() == 0
    assert "Too many open files" not in broker.log
    refused = [line for line in broker.log.splitlines() if '"HTTP: few file descriptors' in line]
    assert len(refused) == 2  # the first, and at the end the sum of all others
