"""The broker is killed at bad moments, or stopped well: what it acknowledged is there, once."""

from __future__ import annotations

import pytest
from proton import Message
from proton.reactor import Container

from tests.support.system import brokerj
from tests.support.system.clients import Drain, Pipelined, take

pytestmark = [pytest.mark.system, pytest.mark.slow]


def messages(first: int, end: int) -> list[Message]:
    return [Message(id=n, durable=True, body=b"x" * 200) for n in range(first, end)]


def ids(host: brokerj.Setup, queue: str, count: int) -> list[int]:
    return [message.id for message in take(host.broker.url, queue, count)]


def waiting(host: brokerj.Setup, queue: str) -> list[int]:
    """Ids of at most 1,000 messages on a queue; they stay there."""
    drain = Drain(host.broker.url, queue)
    Container(drain).run()
    return [message.id for message in drain.received]


def test_kill_9_in_mid_load_keeps_what_was_acknowledged(host: brokerj.Setup) -> None:
    """What was sent and not acknowledged may be there or not, but in order and once."""

    def kill(sender: Pipelined) -> None:
        if len(sender.accepted) == 1000:
            host.broker.kill()

    sender = Pipelined(host.broker.url, "auto.q", messages(0, 3000), on_progress=kill).run()
    assert sender.error
    acknowledged = len(sender.accepted)
    assert acknowledged >= 1000
    assert sender.accepted == list(range(acknowledged))
    host.start_broker()
    assert ids(host, "auto.q", acknowledged) == sender.accepted
    in_doubt = waiting(host, "auto.q")
    assert in_doubt == list(range(acknowledged, acknowledged + len(in_doubt)))
    assert acknowledged + len(in_doubt) <= 3000


def test_clean_restarts_lose_nothing(host: brokerj.Setup) -> None:
    for first in (0, 10):
        sent = Pipelined(host.broker.url, "auto.q", messages(first, first + 10)).run()
        assert len(sent.accepted) == 10
        assert host.broker.terminate() in {0, 143}
        host.start_broker()
        assert waiting(host, "auto.q") == list(range(first + 10))
    assert ids(host, "auto.q", 20) == list(range(20))
    host.stop()
    host.start_service()
    host.start_broker()
    assert waiting(host, "auto.q") == []


@pytest.mark.parametrize(
    ("decision", "on_from", "on_to"),
    [("commit", 1, 1), pytest.param("rollback", 2, 0, marks=pytest.mark.thorough)],
)
def test_an_xa_branch_that_was_prepared_survives_kill_9_of_both(
    host: brokerj.Setup, decision: str, on_from: int, on_to: int
) -> None:
    host.client("OldJmsClient", "0-10", "send", "from", 2)
    host.client("OldJmsClient", "0-10", "send", "to", 0)
    assert host.client("XaClient", "prepare", "from", "to") == {"taken": True, "prepared": True}
    host.kill_and_restart()
    assert host.client("XaClient", decision) == {"branches": 1}
    host.broker.kill()
    host.start_broker()
    assert host.client("XaClient", "commit") == {"branches": 0}
    for queue, count in (("from", on_from), ("to", on_to)):
        texts = host.client("OldJmsClient", "0-10", "receive", queue, count)["texts"]
        assert len(texts) == count, queue
