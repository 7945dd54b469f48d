"""JMS clients of three protocols on one Broker-J whose messages are in a root."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system import brokerj

pytestmark = [pytest.mark.system, pytest.mark.slow]


@pytest.fixture(scope="module", autouse=True)
def _plugin() -> None:
    brokerj.build()


@pytest.fixture
def setup(tmp_path: Path) -> Iterator[brokerj.Setup]:
    with brokerj.running(tmp_path) as found:
        yield found


def restart(setup: brokerj.Setup) -> None:
    setup.broker.kill()
    setup.service.kill()
    setup.start_service()
    setup.start_broker()


def texts(*numbers: int) -> list[str]:
    return [f"m{n}" for n in numbers]


def test_persistent_messages_survive_and_transient_ones_do_not(setup: brokerj.Setup) -> None:
    setup.client("JmsClient", "send", "auto.jms", 50)
    restart(setup)
    assert setup.client("JmsClient", "receive", "auto.jms")["texts"] == texts(*range(50))


def test_transactions(setup: brokerj.Setup) -> None:
    setup.client("JmsClient", "transact", "auto.tx")
    restart(setup)
    found = setup.client("JmsClient", "roll-back-receive", "auto.tx")
    assert found["redelivered"] == [True] * 3
    restart(setup)
    assert setup.client("JmsClient", "receive", "auto.tx")["texts"] == []


def test_durable_and_shared_subscriptions_with_selectors(setup: brokerj.Setup) -> None:
    first = setup.client("JmsClient", "subscribe", "amq.topic/news", "region = 'EU'")
    assert first == {"alone": [], "shared": []}
    restart(setup)
    setup.client("JmsClient", "publish", "amq.topic/news")
    restart(setup)
    found = setup.client("JmsClient", "subscribe", "amq.topic/news", "region = 'EU'")
    assert found == {"alone": texts(0, 2, 4, 6, 8), "shared": texts(0, 2, 4, 6, 8)}


@pytest.mark.parametrize(("version", "column"), [("0-10", "0-10"), ("0-9-1", "0-8")])
def test_the_old_protocols(setup: brokerj.Setup, version: str, column: str) -> None:
    setup.client("OldJmsClient", version, "send", "old", 20)
    setup.client("OldJmsClient", version, "transact", "old.tx", 3)
    restart(setup)
    assert setup.client("OldJmsClient", version, "receive", "old", 20)["texts"] == texts(*range(20))
    assert setup.client("OldJmsClient", version, "receive", "old.tx", 3)["texts"] == texts(0, 1, 2)
    setup.stop()
    rows = setup.journal("kind", "queue", "protocol", "priority", "properties", "correlation_id")
    found = [r for r in rows.to_pylist() if r["kind"] == "enqueued" and r["queue"] == "old"]
    assert {row["protocol"] for row in found} == {f"brokerj:{column}"}
    assert [dict(row["properties"])["region"] for row in found] == ["EU", "US"] * 10
    assert [row["correlation_id"] for row in found] == [f"c{n}" for n in range(20)]
    assert {row["priority"] for row in found} == {7}
