"""The old Qpid JMS client (AMQP 0-10), and a client of AMQP 1.0 on the same queues; then SQL."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from deltalake import DeltaTable
from proton import Message, int32
from proton.utils import BlockingConnection

from tests.support.amqp.certificates import Authority
from tests.support.system import brokerj
from tests.support.system.processes import BrokerProcess

pytestmark = [pytest.mark.system, pytest.mark.slow]

HERE = "127.0.0.1:0"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    brokerj.build()
    started = BrokerProcess(str(tmp_path / "root"), "--listen", HERE, "--amqp-0-10", HERE)
    yield started
    started.terminate()


class OldEntrance(NamedTuple):
    """Where a broker listens for AMQP 0-10."""

    port: int
    log: str


def old_entrance(broker: BrokerProcess) -> OldEntrance:
    (told,) = [each for each in broker.ready_line.split() if each.startswith("amqp-0-10=")]
    return OldEntrance(int(told.rpartition(":")[2]), broker.log)


def test_the_old_client_over_tls_decides_its_branches_and_fails_over_when_the_broker_was_killed(
    tmp_path: Path,
) -> None:
    brokerj.build()
    authority = Authority(tmp_path / "certificates")
    server = authority.issue_server()
    tls = ("--tls-cert", str(server.certificate), "--tls-key", str(server.key))
    options = (str(tmp_path / "root"), "--amqp-0-10", "same", *tls, "--listen")
    broker = BrokerProcess(*options, HERE)
    port, trusted = old_entrance(broker).port, authority.pair.certificate
    client = subprocess.Popen(
        brokerj.java("sparkstore.brokerj.system.OldJmsBranches", port, trusted),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert client.stdout is not None
        assert client.stdout.readline() == "PREPARED\n", broker.log
        broker.kill()
        broker = BrokerProcess(*options, f"127.0.0.1:{port}")
        said, _ = client.communicate("go on\n", brokerj.CLIENT_S)
    finally:
        client.kill()
        broker.kill()
    saw = json.loads(said.splitlines()[-1])
    decided = {"in doubt": 2, "left": 0, "in": ["in 2"], "out": ["in 1 moved"]}
    assert saw == {**decided, "failed over": "after"}


def send(broker: BrokerProcess) -> None:
    connection = BlockingConnection(broker.url)
    message = Message("from 1.0", durable=True, correlation_id="corr")
    message.properties = {"colour": "green", "number": int32(9)}
    connection.create_sender("foreign").send(message)
    connection.close()


def receive(broker: BrokerProcess) -> Message:
    connection = BlockingConnection(broker.url)
    receiver = connection.create_receiver("kept")
    message = receiver.receive(20)
    receiver.accept()
    connection.close()
    return message


def test_old_and_new_clients_share_queues_values_and_types(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    send(broker)
    saw: dict[str, Any] = brokerj.run_client(old_entrance(broker), "OldJmsScenes")
    hello = {"text": "hello", "colour": "red", "number": 7, "correlation": "corr"}
    assert saw == {
        "received": {**hello, "redelivered": False},
        "then": "null",
        "transacted": "committed",
        "again": "committed true",
        "after": "null",
        "browsed": 2,
        "selected": "red",
        "rest": "blue",
        "topic": "topical",
        "no local": "own null",
        "burl": "by BURL",
        "durably": "while away",
        "qualified": "by full name",
        "recovered": "recovered true",
        "foreign": {"text": "from 1.0", "colour": "green", "number": 9, "correlation": "corr"},
    }
    kept = receive(broker)
    assert bytes(kept.body) == b"kept"
    assert (kept.durable, kept.correlation_id, kept.content_type) == (True, "corr", "text/plain")
    told = {name: (type(each).__name__, each) for name, each in kept.properties.items()}
    assert told["colour"] == ("str", "red")
    assert told["number"] == ("int32", 7)
    assert told["long"] == ("int", 1 << 40)
    assert told["flag"] == ("bool", True)
    assert told["half"] == ("float", 0.5)
    broker.terminate()
    rows = DeltaTable(tmp_path / "root" / "journal").to_pyarrow_table().to_pylist()
    (row,) = [each for each in rows if each["kind"] == "enqueued" and each["queue"] == "kept"]
    assert (row["protocol"], row["body"], row["durable"]) == ("amqp-0-10", b"kept", True)
    assert row["correlation_id"] == "corr"
    assert dict(row["properties"])["number"] == "7"
