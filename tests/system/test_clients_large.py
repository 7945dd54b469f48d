"""Messages of 200 MB through Qpid JMS: in pieces on the wire and in the store, memory bounded."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from tests.support.system.client_programs import Program, build
from tests.support.system.clients import is_empty
from tests.support.system.processes import BrokerProcess, StartBroker

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.thorough]

TWO_HUNDRED_MB = 200_000_000
WAIT_S = 240.0


MOST_MORE_MB = 120
"""For the second message than for the first, which has filled every cache and commit there is."""


def most_mb(broker: BrokerProcess) -> float:
    """The most memory that the broker ever had resident."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{broker.pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def test_bytes_messages_of_200_mb_survive_a_kill(start_broker: StartBroker, tmp_path: Path) -> None:
    content = hashlib.shake_256(b"seed").digest(TWO_HUNDRED_MB)
    file = tmp_path / "content"
    file.write_bytes(content)
    settings = tmp_path / "sparkstore.toml"
    settings.write_text(f"[store]\nmax_message_bytes = {TWO_HUNDRED_MB + 10_000}\n")
    broker = start_broker(str(tmp_path / "root"), "--config", str(settings))
    build("jms")
    program = Program("jms", WAIT_S, _JAVA_OPTIONS="-Xmx3g -XX:MaxDirectMemorySize=1g")
    large = {"header": {"durable": True}, "body": {"file": str(file)}}
    told = {"bytes": TWO_HUNDRED_MB, "sha256": hashlib.sha256(content).hexdigest()}
    try:
        program.connect(broker)
        assert program.send("q", large) == ["accepted"]
        before_mb = most_mb(broker)
        assert program.send("q", large) == ["accepted"]
        assert most_mb(broker) - before_mb < MOST_MORE_MB
        broker.kill()
        again = start_broker(str(tmp_path / "root"), "--config", str(settings))
        program.disconnect()
        program.connect(again)
        assert [received["body"] for received in program.take("q")] == [told]
        before_mb = most_mb(again)
        assert [received["body"] for received in program.take("q")] == [told]
        assert most_mb(again) - before_mb < MOST_MORE_MB
    finally:
        program.end()
    assert is_empty(again.url, "q")
