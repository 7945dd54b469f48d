"""What a hostile peer can have the broker do: counted in calls, steps and bytes, never in time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker_shim.amqp_1_0.composites import Attach, Detach, Source, Target
from broker_shim.embedded import compiling
from broker_shim.embedded.access import Access
from broker_shim.embedded.settings import BrokerSettings
from broker_shim.protocol_1_0.values import Described
from broker_shim.security.guard import Guard, Remote
from broker_shim.security.permissions import rule_of
from broker_shim.security.settings import SecuritySettings
from broker_shim.selectors.grammar import SLICE_TOKENS
from tests.link_clients import Client, House, Place

SELECTOR = "apache.org:selector-filter:string"
LONG = "1" + "+1" * 900 + " = a"


@pytest.fixture
def house(tmp_path: Path) -> House:
    house = House(Place("memory", tmp_path), BrokerSettings())
    house.broker.ensure_queue("q", lambda _error: None)
    house.run()
    return house


def stranger(house: House) -> Client:
    """A client of a user who may do nothing."""
    rules = ({"who": ["ann"], "address": "#", "allow": ["admin"]},)
    settings = SecuritySettings(permissions=tuple(map(rule_of, rules)))
    guard = Guard(settings, ("EXTERNAL",), lambda _event, **_details: None)
    return Client(house, "stranger", Access(guard, Remote(certificate_name="stranger")))


def selecting(text: str, address: str | None = "q", **fields: Any) -> Source:
    return Source(address, filter={SELECTOR: Described(SELECTOR, text)}, **fields)


@pytest.fixture
def slices(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many slices of selectors were compiled: one number each time."""
    done: list[int] = []
    compile_it = compiling.compiling

    def counted(text: str) -> Any:
        done.append(1)
        for _ in (slices := compile_it(text)):
            done.append(1)
            yield
        return slices

    monkeypatch.setattr(compiling, "compiling", counted)
    return done


# ------------------------------------------------------------------------------------- selectors


@pytest.mark.parametrize(
    "source",
    [
        selecting(LONG),
        selecting(LONG, "nowhere"),
        selecting(LONG, "amq.topic/a"),
        selecting(LONG, None),
        selecting(LONG, None, dynamic=True),
        selecting(LONG, "q", distribution_mode="copy"),
        selecting(LONG, "amq.topic/a", durable=2, expiry_policy="never"),
    ],
    ids=range(7),
)
def test_nothing_is_compiled_for_who_may_not_receive(
    house: House, slices: list[int], source: Source
) -> None:
    client = stranger(house)
    client.attach("link", source=source)
    assert client.taken(Detach)
    assert not slices
    assert not house.delayed


def test_a_long_selector_is_compiled_a_slice_a_turn_and_its_link_then_served(
    house: House, slices: list[int]
) -> None:
    client = Client(house)
    client.send(Attach("link", 0, True, source=selecting(LONG), target=Target()))
    turns = 0
    while house.delayed:
        assert not client.taken(Attach)
        before = len(slices)
        house.run_delayed()
        assert len(slices) <= before + 1
        turns += 1
    assert turns >= 1_800 // SLICE_TOKENS
    client.settle_down()
    assert client.taken(Attach)[0][0].source.filter
    assert house.broker.queues["q"].consumer_count == 1


def test_who_leaves_before_its_selector_is_compiled_costs_no_more(
    house: House, slices: list[int]
) -> None:
    client = Client(house)
    for _ in range(100):
        client.send(Attach("link", 0, True, source=selecting(LONG), target=Target()))
        client.detach(closed=True)
    before = len(slices)
    while house.delayed:
        house.run_delayed()
    assert len(slices) <= before + 1
    assert house.broker.queues["q"].consumer_count == 0


@pytest.mark.parametrize(
    "text", ["a = ", "x" * 8_193, "1" + "+1" * 1_100 + " = a", LONG + " AND"], ids=range(4)
)
def test_a_selector_that_is_none_is_refused_and_nothing_is_left(house: House, text: str) -> None:
    client = Client(house)
    client.send(Attach("link", 0, True, source=selecting(text, "new"), target=Target()))
    while house.delayed:
        house.run_delayed()
    assert client.taken(Detach)[0][0].error.condition == "amqp:invalid-field"
    assert "new" not in house.broker.queues
    assert len(house.broker.links.registry) == 0


def test_nobody_subscribes_by_a_pattern_of_many_hashes(house: House) -> None:
    house.broker.router.add_exchange("amq.topic", "topic")
    client = Client(house)
    client.attach("link", source=Source("amq.topic/" + ".".join(["#", "a"] * 9)))
    assert client.taken(Detach)[0][0].error.condition == "amqp:invalid-field"
    client.attach("link", 1, source=Source("amq.topic/" + ".".join(["#", "a"] * 8)))
    assert not client.taken(Detach)
