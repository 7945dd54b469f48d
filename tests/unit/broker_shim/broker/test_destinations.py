"""Names inside the broker: what a client is told, what the log says, which settings hold."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from proton import Delivery, Endpoint, Message

from broker_shim.addressing.bindings import Ambiguous, Routing
from broker_shim.addressing.topics import MOST_CHARACTERS, MOST_WORDS, TopicBindings
from broker_shim.broker.settings import AddressSettings, BrokerSettings, read_settings
from broker_shim.broker.wiring.address import (
    AddressNode,
    AmbiguousNode,
    AnonymousNode,
    ExchangeNode,
    MalformedNode,
    Node,
    QueueNode,
    described,
)
from broker_shim.broker.wiring.destinations import Destinations
from broker_shim.durability import TerminusDurability
from broker_shim.errors import InvalidRequest
from broker_shim.store.interface import Exchange, ExchangeBindingKey, MessageHeader, Queue
from broker_shim.store.memory import MemoryMessageStore
from tests.support.amqp.bench import Bench

SETTINGS = (
    AddressSettings("prices.#", Routing.MULTICAST, arguments={"message_ttl_ms": 5}),
    AddressSettings("closed", auto_create=False),
    AddressSettings(
        "all.#", arguments=(LATE := {"message_ttl_ms": 1, "dead_letter_queue": "all.dead"})
    ),
)


@pytest.fixture
def destinations() -> Destinations:
    it = Destinations(BrokerSettings(addresses=SETTINGS))
    it.router.add_exchange(Exchange("x", "direct"))
    it.router.add_exchange(Exchange("amq.topic", "topic"))
    for name in ("address1::q1", "address1::q2", "address2::q1", "plain", "prices.a::one"):
        it.addresses.add(name)
    return it


Q1 = AmbiguousNode(Ambiguous("q1", ("address1::q1", "address2::q1")))


@pytest.mark.parametrize(
    ("name", "node"),
    [
        ("q2", QueueNode("address1::q2")),
        ("address2::q1", QueueNode("address2::q1")),
        ("q1", Q1),
        ("plain", QueueNode("plain")),
        ("plain::plain", QueueNode("plain")),
        ("new", QueueNode("new")),
        ("address3::q1", QueueNode("address3::q1")),
        ("address1", AddressNode("address1")),
        ("prices.b", AddressNode("prices.b")),
        ("prices.b::q", QueueNode("prices.b::q")),
        ("x/a::b::c", ExchangeNode("x", "a::b::c")),
        ("::q", MalformedNode("'::q' has no address: say address::queue")),
        ("", AnonymousNode()),
    ],
)
def test_a_name_says_where_messages_go(destinations: Destinations, name: str, node: Node) -> None:
    assert destinations.node_of(name) == node


def test_the_queue_of_a_multicast_addresss_own_name_does_not_take_all_of_it(
    destinations: Destinations,
) -> None:
    destinations.addresses.add("prices.a")
    node = destinations.node_of("prices.a")
    assert destinations.queues_for(node, MessageHeader()) == {"prices.a", "prices.a::one"}
    assert destinations.node_of("prices.a::prices.a") == QueueNode("prices.a")


def test_a_receiver_from_an_anycast_address_is_given_no_arbitrary_queue(
    destinations: Destinations,
) -> None:
    candidates = ("address1::q1", "address1::q2")
    assert destinations.source_of("address1") == AmbiguousNode(Ambiguous("address1", candidates))
    assert destinations.source_of("address2") == QueueNode("address2::q1")
    assert destinations.source_of("prices.a") == AddressNode("prices.a")


def test_scenario_3_warns_with_the_candidates_and_has_no_result(
    destinations: Destinations, caplog: pytest.LogCaptureFixture
) -> None:
    header = MessageHeader(to="q1")
    with caplog.at_level(logging.WARNING):
        assert destinations.queues_for(AnonymousNode(), header) == set()
    (record,) = caplog.records
    said = "'q1' is ambiguous, so it names no queue: say one of 'address1::q1', 'address2::q1'"
    assert record.getMessage() == said


def test_a_million_messages_to_an_ambiguous_name_are_one_line_of_the_log(
    destinations: Destinations, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            destinations.queues_for(AnonymousNode(), MessageHeader(to="q1"))
        destinations.addresses.add("address3::q1")
        destinations.queues_for(AnonymousNode(), MessageHeader(to="q1"))
    assert len(caplog.records) == 2
    assert "address3::q1" in caplog.records[1].getMessage()


def test_a_name_on_very_many_addresses_is_a_short_line_of_the_log(
    destinations: Destinations, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(5000):
        destinations.addresses.add(f"{'a' * 1000}{number}::q1")
    with caplog.at_level(logging.WARNING):
        destinations.queues_for(AnonymousNode(), MessageHeader(to="q1"))
    (line,) = [text for text in caplog.messages if "and 4982 more" in text]
    assert len(line) < 4000


@pytest.mark.parametrize(
    ("node", "said"),
    [
        (QueueNode("q" * 10_000), "there is no queue"),
        (AddressNode("a" * 10_000), "no queue is on address"),
        (ExchangeNode("x", "k" * 10_000), "exchange 'x' has no queue for"),
        (ExchangeNode("x"), "exchange 'x' has no queue"),
        (AnonymousNode(), "it says no `to`"),
        (Q1, "'q1' is on 2 addresses"),
        (MalformedNode("no"), "no"),
    ],
)
def test_a_client_is_told_in_a_short_line_why_its_message_goes_nowhere(
    node: Node, said: str
) -> None:
    assert described(node).startswith(said)
    assert len(described(node)) < 200


LONG = ("." * 1_000_000, ".".join(["a"] * (MOST_WORDS + 1)), "a" * (MOST_CHARACTERS + 1))


@pytest.mark.parametrize("text", LONG, ids=["dots", "words", "characters"])
def test_what_is_too_long_to_be_looked_up_names_nothing(
    destinations: Destinations, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look-up of a million words would stop the broker for seconds."""

    def looked_up(_self: TopicBindings, _key: str) -> set[str]:
        raise AssertionError

    monkeypatch.setattr(TopicBindings, "route", looked_up)
    header = MessageHeader(to=text, subject=text)
    assert destinations.queues_for(AnonymousNode(), header) == set()
    assert destinations.queues_for(ExchangeNode("amq.topic"), header) == set()
    assert isinstance(destinations.node_of(text), MalformedNode)
    assert isinstance(destinations.source_of(f"amq.topic/{text}"), MalformedNode)
    said = destinations.node_named_by(ExchangeNode("amq.topic"), header)
    assert "an address or a routing key has at most" in described(said)


def test_the_longest_texts_are_looked_up(destinations: Destinations) -> None:
    for text in (".".join(["a"] * MOST_WORDS), "a" * MOST_CHARACTERS):
        assert destinations.node_of(text) == QueueNode(text)
        destinations.router.bind("amq.topic", text, "plain")
        header = MessageHeader(subject=text)
        assert destinations.queues_for(ExchangeNode("amq.topic"), header) == {"plain"}


def test_a_direct_exchange_takes_any_subject(destinations: Destinations) -> None:
    destinations.router.bind("x", LONG[1], "plain")
    header = MessageHeader(subject=LONG[1])
    assert destinations.queues_for(ExchangeNode("x"), header) == {"plain"}


def test_a_message_to_what_is_too_long_is_refused_and_its_link_goes_on(bench: Bench) -> None:
    bench.broker.router.add_exchange(Exchange("amq.topic", "topic"))
    relay = bench.session.sender("relay")
    relay.open()
    bench.exchange()
    for address in ("." * 500, "amq.topic"):
        delivery = relay.send(Message(address=address, subject="." * 500))
        bench.exchange()
        assert delivery.remote_state == Delivery.REJECTED
        assert "256 words, not 501" in delivery.remote.condition.description
    assert relay.state & Endpoint.REMOTE_ACTIVE


def test_settings_of_the_address_hold_for_a_queue_created_on_demand(
    destinations: Destinations,
) -> None:
    assert destinations.on_demand("prices.eu::q").arguments == {"message_ttl_ms": 5}
    assert destinations.on_demand("q::prices.eu").arguments == {}
    for name in ("closed::q", "closed"):
        with pytest.raises(InvalidRequest, match="auto_create is off"):
            destinations.on_demand(name)
    assert destinations.on_demand("q::closed") == Queue("q::closed")
    asked = Queue("prices.eu::t", TerminusDurability.NONE)
    temporary = destinations.subscription("prices.eu", asked)
    assert temporary == Queue("prices.eu::t", TerminusDurability.NONE, {"message_ttl_ms": 5})


def test_a_dead_letter_queue_is_not_its_own(destinations: Destinations) -> None:
    assert destinations.on_demand("all.q").arguments == LATE
    assert destinations.on_demand("all.dead").arguments == {}


def test_the_first_settings_that_match_hold() -> None:
    first, second = AddressSettings("a.#", Routing.MULTICAST), AddressSettings("a.b")
    assert Destinations(BrokerSettings(addresses=(first, second))).is_multicast("a.b")
    assert not Destinations(BrokerSettings(addresses=(second, first))).is_multicast("a.b")


def test_a_binding_names_its_queue_in_full_or_short(destinations: Destinations) -> None:
    for said, name in (("q2", "address1::q2"), ("a::a", "a"), ("plain", "plain")):
        assert destinations.bound(ExchangeBindingKey("x", said, "k")) == ExchangeBindingKey(
            "x", name, "k"
        )
    with pytest.raises(InvalidRequest, match="say one of 'address1::q1', 'address2::q1'"):
        destinations.bound(ExchangeBindingKey("x", "q1", "k"))


def test_address_settings_and_full_names_are_read_from_toml(tmp_path: Path) -> None:
    file = tmp_path / "sparkstore.toml"
    file.write_text(
        '[broker]\nqueues = [{name = "a::q"}, {name = "p::p"}]\naddresses = [\n'
        '  {match = "a.*", routing = "multicast", auto_create = false},\n'
        '  {match = "b", arguments = {message_ttl_ms = 1, dead_letter_queue = "a::dead"}},\n]\n'
    )
    settings = read_settings(file)
    assert settings.queues == (Queue("a::q"), Queue("p"))
    assert settings.addresses == (
        AddressSettings("a.*", Routing.MULTICAST, auto_create=False),
        AddressSettings("b", arguments={"message_ttl_ms": 1, "dead_letter_queue": "a::dead"}),
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("addresses = [{}]", "needs match"),
        ("addresses = [3]", "needs match"),
        ('addresses = [{match = "a", routing = "any"}]', "say one of anycast, multicast"),
        ('addresses = [{match = "a", auto_create = 1}]', "say true or false"),
        ('addresses = [{match = "a", arguments = 1}]', "must be a table"),
        ('addresses = [{match = "a", autocreate = true}]', "did you mean 'auto_create'?"),
        ('addresses = [{match = "a", message_ttl_ms = 1}]', "belongs into arguments"),
        (
            'addresses = [{match = "a", arguments = {dead_leter_queue = "d"}}]',
            "'dead_letter_queue'",
        ),
        ('queues = [{name = "q", message_ttl_ms = 1}]', "belongs into arguments = {message_ttl_ms"),
        ('queues = [{name = "q", argments = {}}]', "did you mean 'arguments'?"),
        ('queues = [{name = "q", arguments = 3}]', "arguments must be a table"),
        ('queues = [{name = "q", arguments = {durability = "none"}}]', "unknown argument"),
        ('queues = [{name = "q", arguments = {"x-message-ttl" = 1}}]', "unknown argument"),
        ('queues = [{name = ""}]', 'needs name = "…"'),
        ('queues = [{name = "temporary::q"}]', "kept for queues that the broker names"),
        ('queues = [{name = "q", arguments = {dead_letter_queue = "temporary"}}]', "kept for"),
        ('exchanges = [{name = "temporary", type = "topic"}]', "kept for"),
        ('exchanges = [{name = "x", type = "topci"}]', "say one of direct, fanout, topic"),
        ('exchanges = [{name = "x", kind = "topic"}]', "say one of arguments, name, type"),
        ('bindings = [{exchange = "x", routing_key = "k", queue = "q"}]', "exchange, key, queue"),
        ('bindings = ["x:k:q"]', "needs exchange"),
        ("queues = {}", "queues must be a list"),
        ("max_message_bytes = 1", "unknown setting 'max_message_bytes' in [broker]: "),
        ("idle_timeout_s = -1", "from 0.001"),
        ("session_bytes = 0", "from 1"),
        ("buffered_bytes = nan", "say a whole number"),
        ("stop_timeout_s = nan", "from 0"),
        ('addresses = [{match = "a", arguments = {message_ttl_ms = "x"}}]', "message_ttl_ms"),
        ('queues = [{name = "a::"}]', "no queue: say address::queue"),
        ('queues = [{name = "a::b::c"}]', "more than one '::'"),
        ('queues = [{name = "q", arguments = {dead_letter_queue = "a::"}}]', "no queue"),
        ('queues = [{name = "q", arguments = {dead_letter_queue = "q::q"}}]', "another queue"),
    ],
)
def test_a_wrong_name_or_address_setting_is_refused_with_what_to_do(
    tmp_path: Path, text: str, said: str
) -> None:
    file = tmp_path / "sparkstore.toml"
    file.write_text(f"[broker]\n{text}\n")
    with pytest.raises(InvalidRequest, match=re.escape(said)):
        read_settings(file)


@pytest.fixture
def bench() -> Iterator[Bench]:
    store = MemoryMessageStore()
    yield Bench(store)
    store.close()


def test_a_queue_is_no_destination_before_it_is_created_nor_after_it_is_destroyed(
    bench: Bench,
) -> None:
    nodes = (QueueNode("a::q"), AddressNode("a"))
    bench.broker.create_queue(Queue("a::q", TerminusDurability.NONE), lambda _error: None)
    assert [bench.broker.queues_for(node, MessageHeader()) for node in nodes] == [set()] * 2
    bench.run()
    assert [bench.broker.queues_for(node, MessageHeader()) for node in nodes] == [{"a::q"}] * 2
    bench.broker.destroy_queue("a::q")
    assert [bench.broker.queues_for(node, MessageHeader()) for node in nodes] == [set()] * 2
    bench.run()
