"""Capabilities of an answer hold: a topic gives each subscriber each message, whatever is set."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import proton
import pytest

from broker_shim.addressing.bindings import Routing
from broker_shim.amqp_1_0.composites import Attach, Detach, Disposition, Rejected, Source, Target
from broker_shim.amqp_1_0.primitives import Symbol
from broker_shim.broker.settings import AddressSettings, BrokerSettings
from broker_shim.listener_1_0.attach.capabilities import CAPABILITIES
from broker_shim.store.interface import Queue
from tests.support.amqp.link_clients import Client, House, Place

TOPIC, TEMPORARY = ("topic",), ("temporary-topic",)
SETTINGS = BrokerSettings(addresses=(AddressSettings("wide.#", Routing.MULTICAST),))


@pytest.fixture
def house(tmp_path: Path) -> House:
    """A broker that keeps what it has; no setting makes `news` a topic."""
    return House(Place("recorded", tmp_path), SETTINGS)


def caps(names: Sequence[str]) -> tuple[Symbol, ...]:
    return tuple(map(Symbol, names))


def subscriber(house: House, address: str | None, *names: str, **fields: Any) -> Client:
    client = Client(house, f"subscriber {fields.pop('number', 1)}")
    source = Source(address, capabilities=caps(names), **fields)
    answer = client.attach("in", source=source)
    assert answer.source is not None, client.take(Detach).error
    assert tuple(map(str, answer.source.capabilities or ())) == names
    client.credit(100)
    return client


def publish(house: House, target: Target, *bodies: str) -> list[Any]:
    """Send messages; the outcome of each."""
    client = Client(house, "publisher")
    assert client.attach("out", target=target, is_receiver=False).target is not None
    for number, body in enumerate(bodies):
        client.deliver(b"%d" % number, body)
    return [told.state for told, _payload in client.taken(Disposition)]


def bodies(client: Client) -> list[Any]:
    return [body for _tag, body in client.transfers()]


def topic(address: str = "news", names: Sequence[str] = TOPIC, **fields: Any) -> Target:
    return Target(address, capabilities=caps(names), **fields)


def test_two_subscribers_of_a_topic_that_no_setting_names_get_every_message(house: House) -> None:
    first, second = subscriber(house, "news", "topic"), subscriber(house, "news", *TOPIC, number=2)
    publish(house, topic(), "a", "b")
    publish(house, Target("news"), "c")  # another client's word for the same address
    assert bodies(first) == bodies(second) == ["a", "b", "c"]


def test_a_topic_without_a_subscriber_takes_messages_for_nobody(house: House) -> None:
    client = Client(house, "publisher")
    client.attach("out", target=topic(), is_receiver=False)
    client.deliver(b"1", "for nobody")
    late = subscriber(house, "news", "topic")
    client.deliver(b"2", "for the late one")
    assert not any(isinstance(told.state, Rejected) for told, _ in client.taken(Disposition))
    assert bodies(late) == ["for the late one"]
    assert house.broker.metrics.unroutable == 0


def test_a_multicast_address_without_a_queue_refuses_what_was_not_sent_to_a_topic(
    house: House,
) -> None:
    assert isinstance(publish(house, Target("wide.a"), "a")[0], Rejected)


def test_a_durable_subscription_makes_a_topic_that_a_restart_keeps(house: House) -> None:
    first = subscriber(house, "news", "topic", durable=2, expiry_policy="never")
    first.vanish()
    again = house.restarted()
    other = subscriber(again, "news", "topic", number=2)
    plain = Client(again, "plain")
    plain.attach("in", source=Source("news"))
    plain.credit(10)
    publish(again, Target("news"), "a")
    back = subscriber(again, "news", "topic", durable=2, expiry_policy="never")
    assert bodies(other) == bodies(back) == bodies(plain) == ["a"]


@pytest.mark.parametrize("is_receiver", [True, False])
@pytest.mark.parametrize("name", ["news", "news::eu", "eu"])
def test_a_queue_is_refused_to_who_asks_for_a_topic(
    house: House, name: str, *, is_receiver: bool
) -> None:
    queue = "news" if name == "news" else "news::eu"
    house.broker.create_queue(Queue(queue), lambda _error: None)
    house.run()
    client = Client(house)
    nodes: dict[str, Any] = {"source": Source(name, capabilities=caps(TOPIC))}
    if not is_receiver:
        nodes = {"target": topic(name)}
    answer = client.attach("l", is_receiver=is_receiver, **nodes)
    assert (answer.source if is_receiver else answer.target) is None
    error = client.take(Detach).error
    assert error.condition == "amqp:not-found"
    assert "no topic" in error.description
    assert "[broker] addresses" in error.description


def test_an_address_without_subscribers_is_no_topic_any_more(house: House) -> None:
    subscriber(house, "news", "topic").detach(closed=True)
    client = Client(house)
    client.attach("in", source=Source("news"))
    assert "news" in house.broker.queues


def test_where_queues_are_not_made_on_demand_topics_are_not(tmp_path: Path) -> None:
    house = House(Place("recorded", tmp_path), BrokerSettings(auto_create=False))
    client = Client(house)
    answer = client.attach("in", source=Source("news", capabilities=caps(TOPIC)))
    assert answer.source is None
    assert "auto_create" in client.take(Detach).error.description


def temporary_topic(client: Client) -> str:
    """A temporary topic, made as Qpid JMS makes one."""
    answer = client.attach(
        "own", 5, target=Target(dynamic=True, capabilities=caps(TEMPORARY)), is_receiver=False
    )
    assert answer.target is not None
    assert tuple(answer.target.capabilities) == TEMPORARY
    return str(answer.target.address)


def subscribe(client: Client, address: str, handle: int, **fields: Any) -> Attach:
    source = Source(address, capabilities=caps(TEMPORARY), **fields)
    answer = client.attach(f"in {handle}", handle, source=source)
    if answer.source is not None:
        client.credit(100, handle)
    return answer


def test_subscribers_of_a_temporary_topic_get_every_message(house: House) -> None:
    client = Client(house)
    address = temporary_topic(client)
    assert isinstance(publish(house, topic(address, TEMPORARY), "nobody's")[0], object)
    for handle in (1, 2):
        assert tuple(subscribe(client, address, handle).source.capabilities) == TEMPORARY
    publish(house, topic(address, TEMPORARY), "a")
    publish(house, Target(address), "b")
    client.deliver(b"1", "c", 5)
    assert sorted(bodies(client)) == ["a", "a", "b", "b", "c", "c"]


def test_a_temporary_topic_is_its_connections_and_ends_with_its_link(house: House) -> None:
    client, other = Client(house), Client(house, "other")
    address = temporary_topic(client)
    assert subscribe(other, address, 1).source is None
    assert other.take(Detach).error.condition == "amqp:resource-locked"
    assert subscribe(client, address, 1, durable=2, expiry_policy="never").source is None
    client.take(Detach)
    subscribe(client, address, 2)
    client.detach(5, closed=True)
    assert subscribe(client, address, 3).source is None
    assert other.attach("out", 4, target=Target(address), is_receiver=False).target is None


def test_a_dynamic_source_may_be_a_topic(house: House) -> None:
    client = Client(house)
    source = Source(dynamic=True, capabilities=caps(TEMPORARY))
    answer = client.attach("own", source=source)
    client.credit(10)
    assert tuple(answer.source.capabilities) == TEMPORARY
    subscribe(client, str(answer.source.address), 1)
    publish(house, Target(answer.source.address), "a")
    assert bodies(client) == ["a", "a"]


@pytest.mark.parametrize("kind", [1, 3])
def test_a_message_of_a_relay_says_itself_that_it_is_for_a_topic(house: House, kind: int) -> None:
    client = Client(house, "publisher")
    client.attach("out", target=Target(None), is_receiver=False)

    def send(tag: bytes, body: str) -> None:
        message = proton.Message(body, address="news", durable=True)
        message.annotations = {proton.symbol("x-opt-jms-dest"): proton.byte(kind)}
        client.deliver_encoded(tag, bytes(message.encode()))

    send(b"1", "for nobody")
    assert "news" not in house.broker.queues
    late = subscriber(house, "news", "topic")
    send(b"2", "a")
    assert bodies(late) == ["a"]
    house.broker.create_queue(Queue("news"), lambda _error: None)
    late.detach(closed=True)
    client.taken(Disposition)
    send(b"3", "b")
    ((told, _payload),) = client.taken(Disposition)
    assert isinstance(told.state, Rejected)


QUEUED, TOPICAL = {"queue"}, {"topic"}
IN_USE = {"queue", "temporary-queue"}
TEMPORAL = {"topic", "temporary-topic"}
NODES = {
    "new": (QUEUED, TOPICAL),
    "there": (QUEUED, None),
    "there::eu": (QUEUED, None),
    "wide.a": (set(), TOPICAL),
    "amq.topic/a": (set(), TOPICAL),
    "amq.fanout": (set(), TOPICAL),
}
"""Address → what holds of it for who asks for no topic, and for who does; None: refused."""


@pytest.mark.parametrize("is_receiver", [True, False])
@pytest.mark.parametrize("asks_topic", [True, False])
@pytest.mark.parametrize("address", [*NODES, None])
def test_what_an_answer_says_holds(
    house: House, address: str | None, *, asks_topic: bool, is_receiver: bool
) -> None:
    for name in ("there", "there::eu"):
        house.broker.create_queue(Queue(name), lambda _error: None)
    house.run()
    topics = {"topic", "temporary-topic"}
    asked = [name for name in CAPABILITIES if asks_topic or name not in topics]
    node = (Source if is_receiver else Target)(
        address, dynamic=address is None, capabilities=caps([*asked, "teleport"])
    )
    told: dict[str, Any] = {"source" if is_receiver else "target": node}
    answer = Client(house).attach("l", is_receiver=is_receiver, **told)
    granted = answer.source if is_receiver else answer.target
    held = (IN_USE, TEMPORAL)[asks_topic] if address is None else NODES[address][asks_topic]
    if held is None:
        assert granted is None
        return
    is_subscription = is_receiver and address is not None and held != QUEUED
    expected = held | ({"shared", "global"} if is_subscription else set())
    assert set(map(str, granted.capabilities or ())) == expected


def test_the_table_has_every_capability_that_an_answer_may_have() -> None:
    walked = [{*held} for pair in NODES.values() for held in pair if held is not None]
    told = set[str]().union(*walked, IN_USE, TEMPORAL, {"shared", "global"})
    assert told == set(CAPABILITIES)


def test_an_answer_with_a_capability_left_out_is_told_in_the_log_once(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        for _time, number in product(range(2), range(2)):
            client = Client(house, f"c{number}")
            client.attach("in", source=Source("wide.a", capabilities=caps(["queue"])))
    lines = [record.getMessage() for record in caplog.records if "'queue'" in record.getMessage()]
    assert len(lines) == 1
