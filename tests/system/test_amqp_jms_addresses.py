"""Qpid JMS on the embedded broker: `createQueue("address1::q1")`, and topics that are addresses."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.system import brokerj
from tests.support.system.clients import is_empty
from tests.support.system.processes import BrokerProcess

pytestmark = [pytest.mark.system, pytest.mark.slow]
if reason := brokerj.missing():
    pytestmark.append(pytest.mark.skip(reason=reason))

Q1 = ("address1::q1", "address2::q1")


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    brokerj.build()
    queues = [f"--queue={name}" for name in (*Q1, "address1::q2")]
    started = BrokerProcess("--listen", "127.0.0.1:0", "--memory", *queues, "--multicast=address1")
    yield started
    started.terminate()


def client(
    broker: BrokerProcess, *arguments: object, code: int = 0
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        brokerj.java("sparkstore.brokerj.system.JmsClient", str(broker.port), *arguments),
        capture_output=True,
        text=True,
        timeout=brokerj.CLIENT_S,
        check=False,
    )
    assert done.returncode == code, f"{done.stderr}\n{broker.log}"
    return done


def found_by(broker: BrokerProcess, *arguments: object) -> dict[str, Any]:
    """All that the client found."""
    found: dict[str, Any] = json.loads(client(broker, *arguments).stdout.splitlines()[-1])
    return found


def jms(broker: BrokerProcess, *arguments: object) -> list[str]:
    """Texts that the client found."""
    texts: list[str] = found_by(broker, *arguments).get("texts", [])
    return texts


def refused(broker: BrokerProcess, *arguments: object) -> str:
    """What a client said on standard error that ended with an exception."""
    return client(broker, *arguments, code=1).stderr


def test_a_queue_by_its_full_name_is_sent_to_browsed_and_received_from(
    broker: BrokerProcess,
) -> None:
    jms(broker, "send", Q1[0], 2)
    texts = ["m0", "m1", "transient0", "transient1"]
    assert is_empty(broker.url, Q1[1])
    assert jms(broker, "browse", Q1[0]) == texts
    assert jms(broker, "receive", Q1[0]) == texts
    assert is_empty(broker.url, Q1[0])


def test_a_topic_is_a_multicast_address(broker: BrokerProcess) -> None:
    jms(broker, "publish", "address1")
    for name in ("q2", Q1[0]):
        assert jms(broker, "receive", name) == [f"m{n}" for n in range(10)]
    assert is_empty(broker.url, Q1[1])


def test_each_subscriber_of_a_topic_gets_every_message_whatever_is_set() -> None:
    """And so of a temporary one; a message without a subscriber is for nobody, and no error."""
    brokerj.build()
    broker = BrokerProcess("--listen", "127.0.0.1:0", "--memory")
    found = found_by(broker, "topics", "news.eu")
    assert found == {"topic": [["a", "b", "c"]] * 2, "temporary": [["a", "b", "c"]] * 2}
    jms(broker, "send", "news.eu", 1)
    said = refused(broker, "topics", "news.eu")
    assert "InvalidDestinationException" in said, "it is a queue now"
    assert "no topic" in said
    broker.terminate()


def test_an_ambiguous_queue_is_an_invalid_destination(broker: BrokerProcess) -> None:
    said = refused(broker, "send", "q1", 1)
    assert "InvalidDestinationException" in said
    assert "'q1' is on 2 addresses" in said
