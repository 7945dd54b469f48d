"""One user has only so many queues and exchanges made, by whatever road, and all else goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from proton import Message

from broker_shim.addressing.bindings import Routing
from broker_shim.amqp_0_10 import commands as c
from broker_shim.amqp_0_10.definitions import ExecutionErrorCode
from broker_shim.amqp_1_0.composites import Attach, Detach, Disposition, Rejected, Source, Target
from broker_shim.amqp_1_0.primitives import Symbol
from broker_shim.broker.settings import AddressSettings, BrokerSettings
from broker_shim.completion import nobody
from broker_shim.errors import LimitReached, StoreError
from broker_shim.security.guard import Guard, Remote
from broker_shim.security.rules.permissions import rule_of
from broker_shim.security.security_settings import SecuritySettings
from broker_shim.sockets.access import Access
from broker_shim.store.interface import Exchange
from sparkstore.core.state_machine.call_values import CreateCall
from sparkstore.operations.administration import AdminAction, Order
from tests.support.amqp.amqp_0_10 import Bench010
from tests.support.amqp.held_broker import HeldHouse, HeldPlace
from tests.support.amqp.link_clients import Client, House, Place
from tests.support.amqp.orders import ask
from tests.support.delivery.places import Home

LIMIT = "amqp:resource-limit-exceeded"
MOST = 3
SETTINGS = BrokerSettings(
    max_queues_per_user=MOST, addresses=(AddressSettings("news", Routing.MULTICAST),)
)


Road = Callable[[Client, int], str | None]


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    it = opened(tmp_path)
    yield it
    it.close()


def opened(folder: Path, settings: BrokerSettings = SETTINGS) -> House:
    it = House(Place("recorded", folder), settings)
    it.calls.make(CreateCall(Exchange("amq.topic", "topic")), nobody)
    it.broker.router.add_exchange(Exchange("amq.topic", "topic"))
    it.run()
    return it


def client_of(house: House, user: str) -> Client:
    """A client that came by a certificate; every user may do everything."""
    rules = (rule_of({"who": ["*"], "address": "#", "allow": ["admin"]}),)
    guard = Guard(
        SecuritySettings(permissions=rules), ("EXTERNAL",), lambda _event, **_details: None
    )
    return Client(house, user, Access(guard, Remote(certificate_name=user)))


def refusal(client: Client, number: int, **fields: Any) -> str | None:
    """Why an attach is refused; None: it is not."""
    client.attach(f"link {number}", number, **fields)
    told = client.taken(Detach)
    return None if not told else str(told[0][0].error.condition)


def sends(client: Client, number: int) -> str | None:
    return refusal(client, number, target=Target(f"to{number}"), is_receiver=False)


def consumes(client: Client, number: int) -> str | None:
    return refusal(client, number, source=Source(f"from{number}"))


def has_answers(client: Client, number: int) -> str | None:
    return refusal(client, number, source=Source(dynamic=True))


def has_a_node_made(client: Client, number: int) -> str | None:
    return refusal(client, number, target=Target(dynamic=True), is_receiver=False)


def subscribes(client: Client, number: int) -> str | None:
    return refusal(client, number, source=Source("news"))


def subscribes_durably(client: Client, number: int) -> str | None:
    return refusal(client, number, source=Source("news", durable=2, expiry_policy="never"))


def shares(client: Client, number: int) -> str | None:
    return refusal(client, number, source=Source("news", capabilities=[Symbol("shared")]))


def subscribes_at_an_exchange(client: Client, number: int) -> str | None:
    return refusal(client, number, source=Source("amq.topic/key"))


def sends_to_new_queues(client: Client, number: int) -> str | None:
    if not number:
        client.attach("anonymous", 0, target=Target(), is_receiver=False)
    message = Message("body", address=f"new{number}")
    client.deliver_encoded(b"%d" % number, bytes(message.encode()))
    state = client.take(Disposition).state
    return str(state.error.condition) if isinstance(state, Rejected) else None


ROADS = [
    sends,
    consumes,
    has_answers,
    has_a_node_made,
    subscribes,
    subscribes_durably,
    shares,
    subscribes_at_an_exchange,
    sends_to_new_queues,
]


@pytest.mark.parametrize("road", ROADS)
def test_one_user_has_only_so_many_queues_made_by_whatever_road(house: House, road: Road) -> None:
    ann = client_of(house, "ann")
    assert [road(ann, number) for number in range(MOST)] == [None] * MOST
    termini = len(house.registry)
    assert road(ann, MOST) == LIMIT
    assert len(house.broker.queues) == MOST
    assert house.broker.metrics.refused_queues == 1
    assert len(house.registry) == termini, "a link was granted that has no queue"
    assert road(client_of(house, "bob"), 0) is None, "another user has no room"


def test_coming_again_gains_nobody_a_queue_and_what_is_there_is_used_on(house: House) -> None:
    ann = client_of(house, "ann")
    for number in range(MOST):
        assert sends(ann, number) is None
    ann.vanish()
    again = client_of(house, "ann")
    assert sends(again, MOST) == LIMIT
    assert [sends(again, number) for number in range(MOST)] == [None] * MOST


def test_what_is_gone_makes_room_whoever_had_it_deleted(house: House) -> None:
    ann = client_of(house, "ann")
    for number in range(MOST):
        assert sends(ann, number) is None
    ask(house, Order(AdminAction.DELETE_QUEUE, "to0", force=True))
    ann.taken(Detach)
    assert sends(ann, MOST) is None
    assert sends(ann, MOST + 1) == LIMIT


def test_anonymous_clients_are_one_user_and_administrators_have_no_limit(house: House) -> None:
    for number in range(MOST):
        assert sends(Client(house, f"container{number}"), number) is None
    assert sends(Client(house, "another"), MOST) == LIMIT
    for number in range(MOST):
        ask(house, Order(AdminAction.CREATE_QUEUE, f"ordered{number}"))


def test_a_queue_that_could_not_be_made_costs_nothing(tmp_path: Path) -> None:
    house = opened(tmp_path, BrokerSettings(max_queues_per_user=1, auto_create=False))
    ann = client_of(house, "ann")
    assert sends(ann, 0) == sends(ann, 1) == "amqp:not-found"
    assert has_answers(ann, 2) is None
    assert has_answers(ann, 3) == LIMIT
    house.close()


def test_those_that_come_at_once_are_counted_while_they_are_being_made() -> None:
    house = HeldHouse(HeldPlace(), SETTINGS)
    client = Client(house)
    house.store.sink.is_holding = True
    for number in range(MOST + 2):
        asked = Attach(
            f"link {number}", number, False, source=Source(), target=Target(f"q{number}")
        )
        client.send(replace(asked, initial_delivery_count=0))
    assert not house.broker.queues
    house.store.sink.is_holding = False
    while house.store.sink.held:
        house.store.sink.tell()
        house.run()
    assert len(house.broker.queues) == MOST
    house.close()


def test_refusals_are_one_line_of_the_log_a_minute(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    ann = client_of(house, "ann")
    for number in range(MOST + 4):
        sends(ann, number)
    assert caplog.text.count("ann") == 1
    house.run_delayed()
    assert caplog.text.count("'ann' (3)") == 1
    assert house.broker.metrics.refused_queues == 4


@pytest.fixture
def bench() -> Iterator[Bench010]:
    it = Bench010(settings=SETTINGS)
    yield it
    it.close()


@pytest.mark.parametrize(
    "declare",
    [
        c.QueueDeclare,
        lambda name: c.QueueDeclare(name, exclusive=True, auto_delete=True),
        lambda name: c.ExchangeDeclare(name, "topic"),
    ],
)
def test_one_user_of_0_10_has_only_so_many_queues_and_exchanges_made(
    bench: Bench010, declare: Callable[[str], object]
) -> None:
    client = bench.opened()
    for number in range(MOST):
        client.do(declare(f"n{number}"))
    client.do(declare("n0"))  # it is there
    assert not client.of(c.ExecutionException)
    client.do(declare("one-more"))
    [told] = client.of(c.ExecutionException)
    assert told.error_code == ExecutionErrorCode.RESOURCE_LIMIT_EXCEEDED
    assert "max_queues_per_user" in told.description
    assert "one-more" not in bench.broker.queues
    assert "one-more" not in bench.broker.router


@pytest.mark.slow
def test_at_a_member_the_same_rule_holds(tmp_path: Path) -> None:
    home = Home("at a member", tmp_path)
    place = home.place(SETTINGS)
    told: list[StoreError | None] = []
    for number in range(MOST + 1):
        order = Order(AdminAction.CREATE_QUEUE, f"q{number}")
        place.broker.administration.order(
            order, lambda error, _told: told.append(error), user="ann"
        )
        place.run()
    assert told[:MOST] == [None] * MOST
    assert isinstance(told[MOST], LimitReached)
    home.close()
