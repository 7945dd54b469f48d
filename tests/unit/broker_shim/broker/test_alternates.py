"""Messages that leave their queue, or find none, for an alternate exchange; headers exchanges."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from proton import Message

from broker_shim.amqp_1_0.composites import Disposition, Rejected, Source
from broker_shim.broker.settings import BrokerSettings, read_settings
from broker_shim.broker.wiring.address import ExchangeNode
from broker_shim.completion import OnComplete
from broker_shim.errors import CorruptData, InvalidRequest
from broker_shim.listener_1_0.messages.message import parse
from broker_shim.store.interface import ExchangeBindingKey, MessageHeader
from sparkstore.core.state_machine.call_values import DequeueCall, StoreCall
from sparkstore.operations.administration import AdminAction, Order
from tests.support.amqp.link_clients import Client, House, Place
from tests.support.amqp.orders import ask


@pytest.fixture
def house(tmp_path: Path) -> House:
    """A broker over a store of tier 2."""
    return House(Place("recorded", tmp_path))


def do(house: House, act: AdminAction, **fields: Any) -> dict[str, Any]:
    """Carry out an order."""
    return ask(house, Order(act, **fields))


def exchange(house: House, name: str, kind: str, **arguments: Any) -> None:
    do(house, AdminAction.CREATE_EXCHANGE, exchange=name, type=kind, arguments=arguments)


def queue(house: House, name: str, **arguments: Any) -> None:
    do(house, AdminAction.CREATE_QUEUE, queue=name, arguments=arguments)


def bind(house: House, name: str, key: str, to: str, **headers: Any) -> None:
    act = AdminAction.ADD_BINDING
    do(house, act, queue=to, exchange=name, key=key, arguments=headers)


def send(house: House, to: str, subject: str | None = None, **properties: Any) -> list[str]:
    """Send a message to an exchange; the queues that it went to."""
    message = Message("m", durable=True, subject=subject, properties=properties)
    header, content = parse(bytes(message.encode()), now_us=0)
    queues = sorted(house.broker.queues_for(ExchangeNode(to), header))
    house.broker.publish(header, content, queues, lambda _error: None)
    house.run()
    return queues


def rejecting(house: House, name: str = "q") -> Client:
    """A consumer that rejects the first message that comes."""
    client = Client(house, f"consumer of {name}")
    client.attach("in", source=Source(name))
    client.credit(1)
    assert client.transfers()
    client.dispose(0, Rejected())
    house.run()
    return client


def depths(house: House) -> dict[str, int]:
    return {name: len(each) for name, each in house.broker.queues.items() if len(each)}


def test_an_unroutable_message_goes_where_the_alternate_exchange_sends_it(house: House) -> None:
    for name in ("a", "rest"):
        queue(house, name)
    exchange(house, "others", "fanout")
    exchange(house, "news", "topic", alternate_exchange="others")
    bind(house, "news", "a.#", "a")
    assert send(house, "news", "b") == []
    bind(house, "others", "", "rest")
    again = house.restarted()
    assert [send(again, "news", subject) for subject in ("a.x", "b")] == [["a"], ["rest"]]


def test_a_headers_exchange_routes_by_properties_also_after_a_restart(house: House) -> None:
    for name in ("eu", "any"):
        queue(house, name)
    bind(house, "amq.match", "", "eu", land="eu", year=2026)
    bind(house, "amq.match", "", "any", **{"x-match": "any", "land": "eu", "urgent": None})
    for is_restarted in (False, True):
        it = house.restarted() if is_restarted else house
        assert send(it, "amq.match", land="eu", year=2026) == ["any", "eu"]
        assert send(it, "amq.match", land="eu", year="2026") == ["any"]
        assert send(it, "amq.match", urgent=False) == ["any"]
        assert send(it, "amq.match", year=2026) == []
        key = ExchangeBindingKey("amq.match", "eu", "")
        assert it.broker.router.arguments_of(key) == {"land": "eu", "year": 2026}


def test_a_rejected_message_goes_where_the_alternate_exchange_routes_its_subject(
    house: House,
) -> None:
    exchange(house, "others", "topic")
    queue(house, "q", alternate_exchange="others")
    for name in ("one", "two"):
        queue(house, name)
        bind(house, "others", "s.#", name)
    bind(house, "others", "#", "q")
    bind(house, "amq.topic", "#", "q")
    send(house, "amq.topic", "s.t")
    rejecting(house)
    assert depths(house) == {"one": 1, "two": 1}
    again = house.restarted()
    assert depths(again) == {"one": 1, "two": 1}
    entry = again.broker.calls.entry("one", 1)
    assert entry is not None
    assert '"x-opt-death-queue":["string","q"]' in (entry.detail or "")


def test_a_message_that_nobody_wants_leaves_the_store_and_does_not_come_back_to_its_queue(
    house: House,
) -> None:
    queue(house, "q", alternate_exchange="amq.topic")
    bind(house, "amq.topic", "#", "q")
    send(house, "amq.topic", "s")
    rejecting(house)
    assert depths(house) == {}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [({"dead_letter_queue": "dead"}, {"dead": 1}), ({"on_reject": "drop"}, {}), ({}, {"alt": 1})],
)
def test_what_a_queue_says_of_its_dead_letters_wins_over_its_alternate_exchange(
    house: House, arguments: dict[str, Any], expected: dict[str, int]
) -> None:
    queue(house, "alt")
    bind(house, "amq.fanout", "", "alt")
    queue(house, "q", alternate_exchange="amq.fanout", **arguments)
    bind(house, "amq.topic", "#", "q")
    send(house, "amq.topic", "s")
    rejecting(house)
    assert depths(house) == expected


def test_settings_make_headers_bindings_and_alternate_exchanges(
    house: House, tmp_path: Path
) -> None:
    file = tmp_path / "sparkstore.toml"
    file.write_text(
        """
        [broker]
        queues = [{name = "eu"}, {name = "rest", arguments = {alternate_exchange = "others"}}]
        exchanges = [
          {name = "main", type = "headers", arguments = {alternate_exchange = "others"}},
          {name = "others", type = "fanout"},
        ]
        bindings = [
          {exchange = "main", queue = "eu", arguments = {x-match = "all", land = "eu"}},
          {exchange = "others", queue = "rest"},
        ]
        """
    )
    house.settings = read_settings(file)
    again = house.restarted().restarted()
    assert [send(again, "main", land=land) for land in ("eu", "us")] == [["eu"], ["rest"]]
    assert again.broker.router.alternate_of("main") == "others"
    house.settings = BrokerSettings()


WRONG = [
    ('exchanges = [{name = "x", type = "topic", arguments = {alternate = "y"}}]', "unknown argu"),
    ('exchanges = [{name = "x", type = "topic", arguments = 7}]', "must be a table"),
    (
        'exchanges = [{name = "x", type = "topic", arguments = {alternate_exchange = "y"}}]',
        "alternate_exchange 'y' is not there",
    ),
    (
        'queues = [{name = "q", arguments = {alternate_exchange = "y"}}]',
        "alternate_exchange 'y' is not there",
    ),
    (
        'addresses = [{match = "q", arguments = {alternate_exchange = "y"}}]',
        "alternate_exchange 'y' is not there",
    ),
    (
        'queues = [{name = "q"}]\n'
        'bindings = [{exchange = "amq.match", queue = "q", arguments = {x-mach = "any"}}]',
        "did you mean 'x-match'",
    ),
    (
        'queues = [{name = "q"}]\n'
        'bindings = [{exchange = "amq.topic", queue = "q", arguments = {a = 1}}]',
        "only bindings to one of type headers",
    ),
]


@pytest.mark.parametrize(("text", "why"), WRONG)
def test_wrong_settings_are_refused_at_the_start(
    house: House, tmp_path: Path, text: str, why: str
) -> None:
    file = tmp_path / "sparkstore.toml"
    file.write_text(f"[broker]\n{text}\n")
    with pytest.raises(InvalidRequest, match=why):  # noqa: PT012  # at the one or the other
        house.settings = read_settings(file)
        house.restarted()


def test_one_message_that_cannot_be_routed_costs_a_rejected_run_few_transactions(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue(house, "q", alternate_exchange="amq.fanout")
    queue(house, "alt")
    bind(house, "amq.fanout", "", "alt")
    bind(house, "amq.topic", "#", "q")
    for _ in range(64):
        send(house, "amq.topic", "s")
    client = Client(house)
    client.attach("in", source=Source("q"))
    client.credit(64)
    assert len(client.transfers()) == 64
    calls, transactions = house.broker.calls, list[int]()
    header, transact = calls.header, calls.transact

    def unreadable(message_id: int) -> MessageHeader:
        if message_id == 7:
            raise CorruptData("message 7 is damaged")
        return header(message_id)

    def counted(steps: Sequence[StoreCall], on_done: OnComplete) -> None:
        transactions.extend(
            len(step.message_ids) for step in steps if isinstance(step, DequeueCall)
        )
        transact(steps, on_done)

    monkeypatch.setattr(calls, "header", unreadable)
    monkeypatch.setattr(calls, "transact", counted)
    client.send(Disposition(True, 0, 63, True, Rejected()))
    house.run()
    assert depths(house) == {"q": 1, "alt": 63}
    assert [*house.broker.calls.message_ids("q")] == [7]
    assert (sum(transactions), len(transactions) < 10) == (63, True)
