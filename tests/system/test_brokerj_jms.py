"""JMS clients of three protocols on one Broker-J whose messages are in a root."""

from __future__ import annotations

import pytest

from tests.support.system import brokerj

pytestmark = [pytest.mark.system, pytest.mark.slow]


def restart(host: brokerj.Setup) -> None:
    host.kill_and_restart()


def texts(*numbers: int) -> list[str]:
    return [f"m{n}" for n in numbers]


def test_persistent_messages_survive_and_transient_ones_do_not(host: brokerj.Setup) -> None:
    host.client("JmsClient", "send", "auto.jms", 50)
    restart(host)
    assert host.client("JmsClient", "receive", "auto.jms")["texts"] == texts(*range(50))


def test_transactions(host: brokerj.Setup) -> None:
    host.client("JmsClient", "transact", "auto.tx")
    restart(host)
    found = host.client("JmsClient", "roll-back-receive", "auto.tx")
    assert found["redelivered"] == [True] * 3
    restart(host)
    assert host.client("JmsClient", "receive", "auto.tx")["texts"] == []


def test_durable_and_shared_subscriptions_with_selectors(host: brokerj.Setup) -> None:
    first = host.client("JmsClient", "subscribe", "amq.topic/news", "region = 'EU'")
    assert first == {"alone": [], "shared": []}
    restart(host)
    host.client("JmsClient", "publish", "amq.topic/news")
    restart(host)
    found = host.client("JmsClient", "subscribe", "amq.topic/news", "region = 'EU'")
    assert found == {"alone": texts(0, 2, 4, 6, 8), "shared": texts(0, 2, 4, 6, 8)}


def send_old(host: brokerj.Setup, version: str) -> None:
    host.client("OldJmsClient", version, "send", "old", 20)
    host.client("OldJmsClient", version, "transact", "old.tx", 3)


def check_old(host: brokerj.Setup, version: str, column: str) -> None:
    assert host.client("OldJmsClient", version, "receive", "old", 20)["texts"] == texts(*range(20))
    assert host.client("OldJmsClient", version, "receive", "old.tx", 3)["texts"] == texts(0, 1, 2)
    host.stop()
    rows = host.journal("kind", "queue", "protocol", "priority", "properties", "correlation_id")
    found = [r for r in rows.to_pylist() if r["kind"] == "enqueued" and r["queue"] == "old"]
    assert {row["protocol"] for row in found} == {f"brokerj:{column}"}
    assert [dict(row["properties"])["region"] for row in found] == ["EU", "US"] * 10
    assert [row["correlation_id"] for row in found] == [f"c{n}" for n in range(20)]
    assert {row["priority"] for row in found} == {7}


def test_amqp_0_10(host: brokerj.Setup) -> None:
    send_old(host, "0-10")
    host.client("OldJmsClient", "0-10", "send", "crossed", 5)
    host.client("OldJmsClient", "0-10", "receive", "back", 0)  # who consumes a queue makes it
    host.client("JmsClient", "send", "back", 5)
    restart(host)
    assert host.client("JmsClient", "receive", "crossed")["texts"] == texts(*range(5))
    back = host.client("OldJmsClient", "0-10", "receive", "back", 5)
    assert back["texts"] == texts(*range(5))
    check_old(host, "0-10", "0-10")


def test_amqp_0_9_1_and_a_broker_that_lacks_its_plugin(host: brokerj.Setup) -> None:
    """It keeps the host in ERRORED, says what to do, loses nothing, and does not end."""
    send_old(host, "0-9-1")
    host.broker.kill()
    host.start_broker("-Dtest.protocols=AMQP_0_10,AMQP_1_0", without="amqp-0-8-protocol")
    assert host.broker.outcome == "ERRORED"
    assert "put the plugin of its protocol on the class path" in host.broker.log
    restart(host)
    check_old(host, "0-9-1", "0-8")
