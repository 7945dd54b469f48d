"""Qpid JMS and messages of 200 MB: in pieces both ways, over a kill, in memory that is bounded."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.system import brokerj
from tests.system.conftest import BrokerProcess, StartBroker

pytestmark = [
    pytest.mark.system,
    pytest.mark.slow,
    pytest.mark.thorough,
    pytest.mark.usefixtures("brokerj_plugin"),
]

LENGTH = 200_000_000
SETTINGS = "[store]\nmax_message_bytes = 268_435_456\n"
MOST_MORE_MB = 120
"""For the second message than for the first, which has filled every cache and commit there is."""


def jms(broker: BrokerProcess, *arguments: object) -> str:
    """The digest of what the client sent or received."""
    done = subprocess.run(
        brokerj.java(*brokerj.ROOM, "sparkstore.brokerj.system.JmsLarge", broker.port, *arguments),
        capture_output=True,
        text=True,
        timeout=brokerj.CLIENT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr + broker.log
    return done.stdout.strip()


def most_mb(broker: BrokerProcess) -> float:
    """The most memory that the broker ever had resident."""
    status = Path(f"/proc/{broker.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) / 1024


def test_messages_of_200_mb_go_through_a_broker_that_is_killed(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    settings = tmp_path / "sparkstore.toml"
    settings.write_text(SETTINGS)
    options = (str(tmp_path / "root"), "--config", str(settings), "--queue", "large")
    broker = start_broker(*options)
    sent = jms(broker, "send", "large", LENGTH)
    before_mb = most_mb(broker)
    jms(broker, "send", "large", LENGTH)
    assert most_mb(broker) - before_mb < MOST_MORE_MB
    broker.kill()
    broker = start_broker(*options)
    assert jms(broker, "receive", "large") == sent
    before_mb = most_mb(broker)
    assert jms(broker, "receive", "large") == sent
    assert most_mb(broker) - before_mb < MOST_MORE_MB
