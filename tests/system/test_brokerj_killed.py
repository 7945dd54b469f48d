"""The broker is killed at bad moments, or stopped well: what it acknowledged is there, once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from proton import Message
from proton.reactor import Container

from tests.system import brokerj
from tests.system.clients import Drain, Pipelined, take

pytestmark = [pytest.mark.system, pytest.mark.slow]


@pytest.fixture(scope="module", autouse=True)
def _plugin() -> None:
    brokerj.build()


@pytest.fixture
def setup(tmp_path: Path) -> Iterator[brokerj.Setup]:
    with brokerj.running(tmp_path) as found:
        yield found


def messages(first: int, end: int) -> list[Message]:
    return [Message(id=n, durable=True, body=b"x" * 200) for n in range(first, end)]


def ids(setup: brokerj.Setup, queue: str, count: int) -> list[int]:
    return [message.id for message in take(setup.broker.url, queue, count)]


def waiting(setup: brokerj.Setup, queue: str) -> list[int]:
    """Ids of at most 1,000 messages on a queue; they stay there."""
    drain = Drain(setup.broker.url, queue)
    Container(drain).run()
    return [message.id for message in drain.received]


def test_kill_9_in_mid_load_keeps_what_was_acknowledged(setup: brokerj.Setup) -> None:
    """What was sent and not acknowledged may be there or not, but in order and once."""

    def kill(sender: Pipelined) -> None:
        if len(sender.accepted) == 1000:
            setup.broker.kill()

    sender = Pipelined(setup.broker.url, "auto.q", messages(0, 3000), on_progress=kill).run()
    assert sender.error
    acknowledged = len(sender.accepted)
    assert acknowledged >= 1000
    assert sender.accepted == list(range(acknowledged))
    setup.start_broker()
    assert ids(setup, "auto.q", acknowledged) == sender.accepted
    in_doubt = waiting(setup, "auto.q")
    assert in_doubt == list(range(acknowledged, acknowledged + len(in_doubt)))
    assert acknowledged + len(in_doubt) <= 3000


def test_clean_restarts_lose_nothing(setup: brokerj.Setup) -> None:
    for first in (0, 10, 20):
        sent = Pipelined(setup.broker.url, "auto.q", messages(first, first + 10)).run()
        assert len(sent.accepted) == 10
        assert setup.broker.terminate() in {0, 143}
        setup.start_broker()
        assert waiting(setup, "auto.q") == list(range(first + 10))
    assert ids(setup, "auto.q", 30) == list(range(30))
    setup.stop()
    setup.start_service()
    setup.start_broker()
    assert waiting(setup, "auto.q") == []


@pytest.mark.parametrize(("decision", "on_from", "on_to"), [("commit", 1, 1), ("rollback", 2, 0)])
def test_an_xa_branch_that_was_prepared_survives_kill_9_of_both(
    setup: brokerj.Setup, decision: str, on_from: int, on_to: int
) -> None:
    setup.client("OldJmsClient", "0-10", "send", "from", 2)
    setup.client("OldJmsClient", "0-10", "send", "to", 0)
    assert setup.client("XaClient", "prepare", "from", "to") == {"taken": True, "prepared": True}
    setup.broker.kill()
    setup.service.kill()
    setup.start_service()
    setup.start_broker()
    assert setup.client("XaClient", decision) == {"branches": 1}
    setup.broker.kill()
    setup.start_broker()
    assert setup.client("XaClient", "commit") == {"branches": 0}
    for queue, count in (("from", on_from), ("to", on_to)):
        texts = setup.client("OldJmsClient", "0-10", "receive", queue, count)["texts"]
        assert len(texts) == count, queue
