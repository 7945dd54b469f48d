"""What each of five clients decides on a message, and what the next one sees of that."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import pytest

from tests.support.system.client_cases import Told, text
from tests.support.system.client_programs import CLIENTS, Programs, programs
from tests.support.system.clients import is_empty
from tests.support.system.forwarder import Forwarder
from tests.support.system.processes import BrokerProcess, StartBroker

pytestmark = [pytest.mark.system, pytest.mark.slow]

POLLS = 1000


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    started = BrokerProcess("--memory", "--listen", "127.0.0.1:0", "--multicast=news.#")
    yield started
    started.terminate()


@pytest.fixture(scope="module")
def connected(broker: BrokerProcess) -> Iterator[Programs]:
    """The clients, each with a connection."""
    with programs(broker) as started:
        yield started


def message(name: str, **header: object) -> Told:
    return {"header": header, "body": {"value": text(name)}}


def names(messages: list[Told]) -> list[str]:
    return [received["body"]["value"][1] for received in messages]


def counts(messages: list[Told]) -> dict[str, int]:
    """By name: what is given back while others wait has its place, but its time is the store's."""
    return {
        name: m["header"]["delivery_count"]
        for name, m in zip(names(messages), messages, strict=True)
    }


@pytest.mark.parametrize("reader", CLIENTS)
@pytest.mark.parametrize("client", CLIENTS)
def test_each_outcome_is_what_the_next_reader_sees(
    broker: BrokerProcess, connected: Programs, client: str, reader: str
) -> None:
    queue = f"outcomes-{client}-{reader}"
    words = ["release", "fail", "undeliverable", "reject", "accept"]
    connected[client].send(queue, *map(message, words))
    assert counts(connected[client].receive(queue, len(words))) == dict.fromkeys(words, 0)
    connected[client].settle(*words)
    again = counts(connected[reader].receive(queue, 3))
    assert again == {"release": 0, "fail": 1, "undeliverable": 1}
    connected[reader].settle(*("release" if name == "undeliverable" else "fail" for name in again))
    last = counts(connected[client].take(queue, 3))
    assert last == {"release": 1, "fail": 2, "undeliverable": 1}
    assert is_empty(broker.url, queue)


@pytest.mark.parametrize("client", CLIENTS)
def test_what_a_client_held_when_it_left_comes_again_counted_if_it_asked_for_that(
    broker: BrokerProcess, connected: Programs, client: str
) -> None:
    """It leaves in good order; Qpid JMS alone asks that this be a failed delivery."""
    queue = f"left-{client}"
    connected[client].send(queue, message("a"), message("b"))
    connected[client].receive(queue)
    connected[client].disconnect()
    connected[client].connect(broker)
    assert counts(connected[client].take(queue, 2)) == {"a": int(client == "jms"), "b": 0}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_higher_priority_overtakes(connected: Programs, client: str) -> None:
    queue = f"priority-{client}"
    priorities = (4, 9, 0, 7, 4, 1)
    connected[client].send(
        queue, *(message(f"{n}{p}", priority=p) for n, p in enumerate(priorities))
    )
    assert names(connected[client].take(queue, 6)) == ["19", "37", "04", "44", "51", "20"]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_message_whose_time_is_over_is_not_delivered(
    broker: BrokerProcess, connected: Programs, client: str
) -> None:
    queue = f"ttl-{client}"
    connected[client].send(queue, message("short", ttl=1))
    assert any(is_empty(broker.url, queue) for _ in range(POLLS))
    connected[client].send(queue, message("long", ttl=3_600_000))
    (received,) = connected[client].take(queue)
    assert names([received]) == ["long"]
    assert 0 < received["header"]["ttl"] <= 3_600_000


@pytest.mark.parametrize(("writer", "reader"), [*permutations(CLIENTS, 2)])
def test_a_topic_of_one_client_is_an_address_of_another(
    connected: Programs, writer: str, reader: str
) -> None:
    topic = f"news.{writer}.{reader}"
    connected[reader].open(named(reader, topic))
    assert connected[writer].send(named(writer, topic), message("item")) == ["accepted"]
    assert names(connected[reader].wait()) == ["item"]
    connected[reader].settle("accept")


def named(client: str, topic: str) -> str:
    """What the program calls it: JMS has topics, the others have addresses."""
    return f"topic:{topic}" if client == "jms" else topic


RECONNECTING = {"rhea", "jms"}
"""Clients that connect again by themselves; the others leave that to us."""


def test_a_broker_that_is_killed_keeps_what_it_accepted(
    broker: BrokerProcess, connected: Programs, start_broker: StartBroker, tmp_path: Path
) -> None:
    root = str(tmp_path / "root")
    killed = start_broker(root)
    forwarder = Forwarder(killed.port)
    for client in CLIENTS:
        connected[client].disconnect()
        connected[client].connect(forwarder if client in RECONNECTING else killed)
        sent = [message("held", durable=True), message("left", durable=True), message("gone")]
        assert connected[client].send(client, *sent) == ["accepted"] * 3
        assert names(connected[client].receive(client)) == ["held"]
    forwarder.hold()
    killed.kill()
    again = start_broker(root)
    forwarder.lead_to(again.port)
    for client in CLIENTS:
        if client not in RECONNECTING:
            connected[client].disconnect()
            connected[client].connect(again)
        assert connected[client].send(client, message("more", durable=True)) == ["accepted"]
        received = counts(connected[client].take(client, 3))
        assert received == {"held": 1, "left": 0, "more": 0}, client
        assert is_empty(again.url, client)
    connected.move(broker)
    forwarder.close()
