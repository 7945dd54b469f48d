"""How much credit a link gives on which a client sends, as the store keeps up or does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker_shim.amqp_1_0.composites import Flow, Target
from broker_shim.broker.settings import BrokerSettings
from broker_shim.errors import Full
from tests.support.amqp.link_clients import Client, House, Place


def sender(credit: int) -> Client:
    """A client that may send so many messages."""
    house = House(Place("recorded", Path()), BrokerSettings(credit=credit))
    client = Client(house)
    client.attach("out", is_receiver=False, target=Target("q"))
    assert given(client) == [credit]
    return client


def given(client: Client) -> list[int]:
    """The credit of each flow that came since."""
    return [flow.link_credit for flow, _payload in client.taken(Flow) if flow.handle is not None]


def send(client: Client, count: int = 1) -> None:
    for _ in range(count):
        client.deliver(b"%d" % client._delivery_id, "a message")


def test_credit_is_given_when_half_the_window_is_free() -> None:
    client = sender(10)
    send(client, 4)
    assert given(client) == []
    send(client)
    assert given(client) == [10]
    client.house.close()


def test_what_is_under_way_counts_against_the_window() -> None:
    client = sender(10)
    with client.house.store_that_does_not_answer():
        send(client, 10)
        assert given(client) == []
    credits = given(client)
    assert credits
    assert all(5 <= credit <= 10 for credit in credits)
    client.house.close()


def test_an_unavailable_store_cuts_credit_to_one_a_probe_and_success_doubles_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = sender(8)
    broker: Any = client.house.broker
    probes: list[Any] = []
    monkeypatch.setattr(broker, "again", probes.append)
    enqueue = client.house.store.enqueue_new

    def full(messages: Any, on_complete: Any) -> range:
        on_complete([Full("no room")] * len(messages.bodies))
        return range(len(messages.bodies))

    monkeypatch.setattr(client.house.store, "enqueue_new", full)
    send(client, 8)
    assert given(client) == []
    monkeypatch.setattr(client.house.store, "enqueue_new", enqueue)
    (probe,) = probes
    probe()
    credits = given(client)
    for _ in range(3):
        send(client)
        credits += given(client)
    assert credits == [1, 2, 4, 8]
    client.house.close()
