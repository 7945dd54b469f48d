"""Durable subscriptions of Qpid JMS, unshared and shared, with selectors, through kill -9."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.system import brokerj
from tests.support.system.processes import BrokerProcess, StartBroker

pytestmark = [pytest.mark.system, pytest.mark.slow]
if reason := brokerj.missing():
    pytestmark.append(pytest.mark.skip(reason=reason))

ALL, EU = ["m0", "m1", "m2", "m3"], ["m0", "m2"]


def jms(broker: BrokerProcess, what: str) -> dict[str, Any]:
    """What the client found."""
    done = subprocess.run(
        brokerj.java("sparkstore.brokerj.system.JmsLinks", str(broker.port), what, "news"),
        capture_output=True,
        text=True,
        timeout=brokerj.CLIENT_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.stderr}\n{broker.log}"
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_durable_subscriptions_survive_kill_9_with_all_that_came_for_them(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    brokerj.build()

    def restarted(before: BrokerProcess | None) -> BrokerProcess:
        if before is not None:
            before.kill()
        return start_broker("--multicast=news", str(tmp_path / "root"))

    broker = restarted(None)
    jms(broker, "subscribe")
    broker = restarted(broker)
    jms(broker, "publish")
    assert jms(broker, "hold") == {"plain": ["m0", "m1"]}
    broker = restarted(broker)
    assert jms(broker, "receive") == {
        "plain": ALL,
        "redelivered": ALL,  # the client had fetched all four when it vanished with two
        "choosy": EU,
        "team": ALL,
        "all": ALL,
    }
    assert jms(broker, "change") == {"choosy": ["m1", "m3"]}
    refused = jms(broker, "unsubscribe")
    assert refused["in use"] != "none"
    assert refused["unknown"] == "InvalidDestinationException"
    broker = restarted(broker)
    broker.terminate()
    assert "recovered 0 messages on 0 queues, 0 links" in broker.log


def test_a_subscriber_that_says_no_local_hears_others_and_not_itself(
    start_broker: StartBroker,
) -> None:
    brokerj.build()
    assert jms(start_broker("--multicast=news", "--memory"), "no-local") == {
        "all": ["own", "another's"],
        "without its own": ["another's"],
        "durably": ["another's"],
    }
