"""A message of 200 MB through Qpid JMS: in pieces on the wire, in pieces in the store."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.system.client_programs import Program, build
from tests.system.clients import is_empty
from tests.system.conftest import StartBroker

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.thorough]

TWO_HUNDRED_MB = 200_000_000
WAIT_S = 240.0


def test_a_bytes_message_of_200_mb_survives_a_kill(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    content = hashlib.shake_256(b"seed").digest(TWO_HUNDRED_MB)
    file = tmp_path / "content"
    file.write_bytes(content)
    settings = tmp_path / "sparkstore.toml"
    settings.write_text(f"[store]\nmax_message_bytes = {TWO_HUNDRED_MB + 10_000}\n")
    broker = start_broker(str(tmp_path / "root"), "--config", str(settings))
    build("jms")
    program = Program("jms", WAIT_S, _JAVA_OPTIONS="-Xmx3g -XX:MaxDirectMemorySize=1g")
    try:
        program.connect(broker)
        large = {"header": {"durable": True}, "body": {"file": str(file)}}
        assert program.send("q", large) == ["accepted"]
        broker.kill()
        again = start_broker(str(tmp_path / "root"), "--config", str(settings))
        program.disconnect()
        program.connect(again)
        (received,) = program.take("q")
    finally:
        program.end()
    digest = hashlib.sha256(content).hexdigest()
    assert received["body"] == {"bytes": TWO_HUNDRED_MB, "sha256": digest}
    assert is_empty(again.url, "q")
