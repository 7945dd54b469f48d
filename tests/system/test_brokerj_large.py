"""Broker-J at the ends of what it can be asked: a message of 100 MB, 10,000 queues."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from proton import Message
from proton.utils import BlockingConnection

from tests.support.system import brokerj
from tests.support.system.clients import connected, take

pytestmark = [
    pytest.mark.system,
    pytest.mark.slow,
    pytest.mark.thorough,
    pytest.mark.usefixtures("brokerj_plugin"),
]

HUNDRED_MB = 100_000_000
WAIT_S = 120


def test_a_message_of_100_mb(tmp_path: Path) -> None:
    body = hashlib.shake_256(b"seed").digest(HUNDRED_MB)
    with brokerj.running(tmp_path) as setup:
        setup.broker.kill()
        setup.start_broker(*brokerj.ROOM)
        connection = BlockingConnection(setup.broker.url, timeout=WAIT_S, allowed_mechs="ANONYMOUS")
        connection.create_sender("auto.q").send(Message(durable=True, body=body), timeout=WAIT_S)
        connection.close()
        setup.broker.kill()
        setup.service.kill()
        setup.start_service()
        setup.start_broker(*brokerj.ROOM)
        connection = BlockingConnection(setup.broker.url, timeout=WAIT_S, allowed_mechs="ANONYMOUS")
        receiver = connection.create_receiver("auto.q", credit=1)
        message = receiver.receive(timeout=WAIT_S)
        received = bytes(message.body)  # a view of what goes with the message
        receiver.accept()
        connection.close()
    assert hashlib.sha256(received).digest() == hashlib.sha256(body).digest()


def test_ten_thousand_queues(tmp_path: Path) -> None:
    with brokerj.running(tmp_path) as setup:
        with connected(setup.broker.url, allowed_mechs="ANONYMOUS") as connection:
            for n in range(10_000):
                sender = connection.create_sender(f"auto.{n}")
                sender.send(Message(id=n, durable=True))
                sender.close()
        setup.broker.kill()
        setup.service.kill()
        setup.start_service()
        setup.start_broker()
        for n in (0, 4_711, 9_999):
            assert [message.id for message in take(setup.broker.url, f"auto.{n}", 1)] == [n]
        setup.stop()
        rows = setup.journal("kind", "queue").to_pylist()
    enqueued = {row["queue"] for row in rows if row["kind"] == "enqueued"}
    assert {f"auto.{n}" for n in range(10_000)} <= enqueued
