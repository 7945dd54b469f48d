"""An order is refused alike, by the control socket's road and by `$management`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker_shim.errors import StoreError
from sparkstore.operations.administration import AdminAction, Order
from tests.support.amqp.link_clients import Client, House, Place
from tests.support.amqp.management import Manager


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    it = House(Place("recorded", tmp_path))
    for order in (
        create("q", max_delivery_count=7),
        create("dead"),
        create("lettered", dead_letter_queue="dead"),
        exchange("news"),
        Order(AdminAction.ADD_BINDING, "q", "news", "#"),
    ):
        assert ordered(it, order) is None
    yield it
    it.close()


def create(queue: str, **arguments: Any) -> Order:
    return Order(AdminAction.CREATE_QUEUE, queue, arguments=arguments)


def alter(queue: str, **arguments: Any) -> Order:
    return Order(AdminAction.ALTER_QUEUE, queue, arguments=arguments)


def delete(queue: str) -> Order:
    return Order(AdminAction.DELETE_QUEUE, queue)


def exchange(name: str, kind: str = "topic", **arguments: Any) -> Order:
    return Order(AdminAction.CREATE_EXCHANGE, exchange=name, type=kind, arguments=arguments)


def ordered(house: House, order: Order) -> StoreError | None:
    """Give an order as the control socket does; return why it was refused."""
    answers: list[StoreError | None] = []
    house.broker.administration.order(order, lambda error, _told: answers.append(error))
    house.run()
    [error] = answers
    return error


def asked(manager: Manager, order: Order) -> Any:
    """Give the same order as a client of `$management` does."""
    body, said = dict(order.arguments), dict[str, Any]()
    match order.act:
        case AdminAction.CREATE_QUEUE | AdminAction.ALTER_QUEUE | AdminAction.DELETE_QUEUE:
            said = {"type": "queue", "name": order.queue}
        case AdminAction.CREATE_EXCHANGE | AdminAction.DELETE_EXCHANGE:
            said = {"type": "exchange", "name": order.exchange}
            if order.type:
                body["exchange_type"] = order.type
        case _:
            said = {"type": "binding"}
            names = {"exchange": order.exchange, "queue": order.queue, "key": order.key}
            body = names | ({"arguments": body} if body else {})
    verb = order.act.partition("-")[0]
    operation = {"alter": "UPDATE", "add": "CREATE", "remove": "DELETE"}.get(verb, verb.upper())
    return manager.ask(body or None, operation=operation, **said)


REFUSED = [
    (create("q"), 409),
    (create("a::b::c"), 400),
    (create("new", mesage_ttl_ms=5), 400),
    (create("new", message_ttl_ms="5"), 400),
    (create("new", dead_letter_queue="new"), 400),
    (create("new", alternate_exchange="absent"), 400),
    (alter("q", exclsive=True), 400),
    (alter("q", max_delivery_count=-1), 400),
    (delete("dead"), 409),
    (exchange("news", "fanout"), 409),
    (exchange("new", "tree"), 400),
    (exchange("amq.new"), 400),
    (exchange("a/b"), 400),
    (exchange("new", alternat_exchange="news"), 400),
    (Order(AdminAction.DELETE_EXCHANGE, exchange="news"), 409),
    (Order(AdminAction.ADD_BINDING, "q", "news", "", arguments={"a": 1}), 400),
]


@pytest.mark.parametrize(("order", "status"), REFUSED, ids=lambda value: str(value)[:60])
def test_a_refusal_is_told_by_the_same_text_and_changes_nothing(
    house: House, order: Order, status: int
) -> None:
    manager = Manager(house, Client(house))
    before = dict(house.broker.definitions), {*house.broker.router.bindings()}
    error = ordered(house, order)
    answer = asked(manager, order)
    assert error is not None
    assert (answer.status, answer.text) == (status, str(error))
    assert (dict(house.broker.definitions), {*house.broker.router.bindings()}) == before


@pytest.mark.parametrize(
    "order",
    [
        delete("absent"),
        alter("absent", exclusive=True),
        Order(AdminAction.DELETE_EXCHANGE, exchange="absent"),
    ],
    ids=lambda order: str(order.act),
)
def test_what_is_not_there_is_refused_by_both(house: House, order: Order) -> None:
    manager = Manager(house, Client(house))
    assert ordered(house, order) is not None
    assert asked(manager, order).status == 404


def test_what_one_makes_the_other_finds_made(house: House) -> None:
    manager = Manager(house, Client(house))
    assert asked(manager, create("new", max_depth=3)).status == 201
    assert ordered(house, create("new", max_depth=3)) is None
    assert ordered(house, create("other")) is None
    assert asked(manager, create("other")).status == 200
    assert ordered(house, delete("new")) is None
    assert asked(manager, delete("new")).status == 404
