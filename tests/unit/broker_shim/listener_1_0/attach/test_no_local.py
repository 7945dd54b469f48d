"""A subscriber that asks for it gets nothing that its own connection sends (JMS noLocal)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import proton
import pytest

from broker_shim.addressing.bindings import Routing
from broker_shim.amqp_1_0.composites import (
    Accepted,
    Coordinator,
    Disposition,
    Source,
    Target,
    TransactionalState,
)
from broker_shim.amqp_1_0.primitives import Symbol, ULong
from broker_shim.broker.settings import AddressSettings, BrokerSettings
from broker_shim.broker.storage.store_puts import STAGED_BYTES
from broker_shim.completion import nobody
from broker_shim.protocol_1_0.codec.values import Described
from broker_shim.store.interface import Exchange
from sparkstore.core.link_records import NO_LOCAL as NO_LOCAL_ARGUMENT
from sparkstore.core.state_machine.call_values import CreateCall
from tests.support.amqp.link_clients import Client, House, Place

SETTINGS = BrokerSettings(addresses=(AddressSettings("news", Routing.MULTICAST),))
NO_LOCAL = {Symbol("no-local"): Described(ULong(0x0000468C00000003), "NoLocalFilter{}")}
"""As Qpid JMS sends it."""
SELECTOR = {
    Symbol("jms-selector"): Described(
        Symbol("apache.org:selector-filter:string"), "JMSPriority > 4"
    )
}
NEWS = ("news", "talk", "talk/k")
Make = Callable[..., House]


class Listener(Client):
    """A client that remembers what it heard, whatever else it waits for.

    Attributes:
        heard: Bodies of messages.
    """

    def __init__(self, *where: Any) -> None:
        self.heard: list[Any] = []
        super().__init__(*where)

    def note(self) -> None:
        self.heard += [body for _tag, body in self.transfers()]

    def take(self, kind: type) -> Any:
        self.note()
        return super().take(kind)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    houses = []

    def made(kind: str, before: House | None = None) -> House:
        if before is not None:
            houses.remove(before)
        house = House(Place(kind, tmp_path), SETTINGS) if before is None else before.restarted()
        house.calls.make(CreateCall(exchange := Exchange("talk", "topic")), nobody)
        house.broker.router.add_exchange(exchange)
        house.run()
        houses.append(house)
        return house

    yield made
    for house in houses:
        house.close()


@pytest.fixture
def house(make: Make) -> House:
    return make("memory")


def subscribe(client: Listener, address: str = "news", name: str = "sub", **source: Any) -> Any:
    """A subscription without its own messages; the source that is granted."""
    source.setdefault("filter", NO_LOCAL)
    granted = client.attach(name, 0, source=Source(address, **source)).source
    client.credit(100)
    return granted


def publish(client: Listener, body: str, address: str = "news", **fields: Any) -> Any:
    """Send a message; what became of it."""
    client.attach(f"send {body}", 1, is_receiver=False, target=Target(address))
    told = proton.Message(body, durable=True, subject="k", **fields)
    client.deliver_encoded(body[:20].encode(), bytes(told.encode()), 1)
    state = client.taken(Disposition)[-1][0].state
    client.detach(1, closed=True)
    return state


@pytest.mark.parametrize("address", NEWS)
def test_a_subscriber_gets_what_others_say_and_not_what_it_says_itself(
    house: House, address: str
) -> None:
    mine, other = Listener(house, "mine"), Listener(house, "other")
    granted = subscribe(mine, address)
    assert granted.filter == NO_LOCAL
    assert isinstance(publish(mine, "my own", address), Accepted)
    assert isinstance(publish(other, "another's", address), Accepted)
    assert _bodies(mine) == ["another's"]


def _bodies(client: Listener) -> list[Any]:
    client.settle_down()
    client.note()
    return client.heard


def test_another_subscriber_gets_what_was_kept_from_the_first(house: House) -> None:
    mine, other = Listener(house, "mine"), Listener(house, "other")
    subscribe(mine)
    subscribe(other, filter=None)
    publish(mine, "my own")
    assert _bodies(mine) == []
    assert _bodies(other) == ["my own"]


def test_another_connection_of_the_same_container_is_another_one(house: House) -> None:
    first, second = Listener(house, "box"), Listener(house, "box")
    subscribe(first)
    publish(second, "from there")
    assert _bodies(first) == ["from there"]
    definitions = house.broker.definitions.values()  # what brokers on the same store know of it
    assert [each for each in definitions if NO_LOCAL_ARGUMENT in each.arguments] == []


def test_without_the_filter_one_gets_what_one_says(house: House) -> None:
    mine = Listener(house, "mine")
    assert subscribe(mine, filter=None).filter is None
    publish(mine, "my own")
    assert _bodies(mine) == ["my own"]


def test_a_selector_and_no_local_are_both_kept_and_both_told(house: House) -> None:
    mine, other = Listener(house, "mine"), Listener(house, "other")
    both = {**SELECTOR, **NO_LOCAL}
    assert subscribe(mine, filter=both).filter == both
    publish(mine, "my own", priority=9)
    publish(other, "low", priority=1)
    publish(other, "high", priority=9)
    assert _bodies(mine) == ["high"]


@pytest.mark.parametrize(
    "descriptor",
    [ULong(0x0000468C00000003), Symbol(NO_LOCAL_NAME := "apache.org:no-local-filter:list")],
)
@pytest.mark.parametrize("value", [[], ["x"], "NoLocalFilter{}", None])
def test_the_filter_is_known_by_its_name_and_its_number_whatever_its_value(
    house: House, descriptor: Any, value: Any
) -> None:
    mine = Listener(house, "mine")
    granted = subscribe(mine, filter={Symbol("mine"): Described(descriptor, value)})
    (told,) = granted.filter.values()
    assert told.descriptor == descriptor
    publish(mine, "my own")
    assert _bodies(mine) == []


def test_what_is_not_kept_is_not_told(house: House) -> None:
    """A queue is no topic; of a shared subscription nobody's messages are its own."""
    mine = Listener(house, "mine")
    assert subscribe(mine, "a-queue").filter is None
    publish(mine, "on a queue", "a-queue")
    assert _bodies(mine) == ["on a queue"]
    mine.detach(0, closed=True)
    shared = [Symbol("shared"), Symbol("topic")]
    assert subscribe(mine, "news", "shared", capabilities=shared).filter is None


@pytest.mark.parametrize("way", ["large", "transaction", "settled", "relay"])
def test_whatever_way_it_is_sent(house: House, way: str) -> None:
    mine = Listener(house, "mine")
    subscribe(mine)
    mine.attach("send", 1, is_receiver=False, target=Target(None if way == "relay" else "news"))
    body = "x" * (STAGED_BYTES + 1) if way == "large" else "my own"
    encoded = bytes(proton.Message(body, durable=True, address="news").encode())
    if way == "transaction":
        mine.attach("txn", 2, is_receiver=False, target=Coordinator())
        declare = proton.Message(proton.Described(proton.ulong(0x31), []))
        mine.deliver_encoded(b"d", bytes(declare.encode()), 2)
        declared = mine.taken(Disposition)[0][0].state
        mine.deliver_encoded(b"1", encoded, 1, state=TransactionalState(declared.txn_id))
        discharge = proton.Message(proton.Described(proton.ulong(0x32), [declared.txn_id, False]))
        mine.deliver_encoded(b"c", bytes(discharge.encode()), 2)
        assert isinstance(mine.taken(Disposition)[-1][0].state, Accepted)
    elif way == "settled":
        mine.deliver_encoded(b"1", encoded, 1, settled=True)
    else:
        mine.deliver_encoded(b"1", encoded, 1)
        assert isinstance(mine.taken(Disposition)[-1][0].state, Accepted)
    assert _bodies(mine) == []
    assert [len(queue) for queue in house.broker.queues.values()] == [0]


DURABLE: dict[str, Any] = {"durable": 2, "expiry_policy": "never"}


@pytest.mark.parametrize("kind", ["memory", "recorded"])
@pytest.mark.parametrize("address", NEWS)
def test_a_durable_subscription_is_without_what_its_client_id_says_on_any_connection(
    make: Make, kind: str, address: str
) -> None:
    """JMS 2.0, `createDurableSubscriber`: this connection, or any other with the client id."""
    house = make(kind)
    mine = Listener(house, "mine")
    assert subscribe(mine, address, **DURABLE).filter == NO_LOCAL
    mine.detach()
    second, other = Listener(house, "mine"), Listener(house, "other")
    publish(second, "my own", address)
    publish(other, "another's", address)
    if kind == "recorded":
        house = make(kind, house)
        publish(Listener(house, "mine"), "after a restart", "news")
    third = Listener(house, "mine")
    assert subscribe(third, address, **DURABLE).filter == NO_LOCAL
    assert _bodies(third) == ["another's"]


def test_with_or_without_its_own_it_is_another_durable_subscription(house: House) -> None:
    mine, other = Listener(house, "mine"), Listener(house, "other")
    subscribe(mine, **DURABLE)
    mine.detach()
    publish(other, "before")
    assert subscribe(mine, filter=None, **DURABLE).filter is None
    publish(mine, "my own")
    assert _bodies(mine) == ["my own"]
