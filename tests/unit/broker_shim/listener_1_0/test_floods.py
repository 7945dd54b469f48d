"""What a hostile peer can have the broker do: counted in calls, steps and bytes, never in time."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from broker_shim.amqp_1_0.composites import (
    Accepted,
    Attach,
    Begin,
    Detach,
    Disposition,
    Error,
    Flow,
    Modified,
    Open,
    Rejected,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from broker_shim.amqp_1_0.primitives import Symbol
from broker_shim.broker.flow import selector_compiler
from broker_shim.broker.settings import BrokerSettings
from broker_shim.broker.wiring.address import QueueNode
from broker_shim.listener_1_0.messages import message as amqp_message
from broker_shim.listener_1_0.receiving.incoming_message import IncomingMessage
from broker_shim.protocol_1_0.codec.frames import AMQP_HEADER
from broker_shim.protocol_1_0.codec.values import Described
from broker_shim.protocol_1_0.peer_settings import Settings
from broker_shim.security.guard import Guard, Remote
from broker_shim.security.rules.permissions import rule_of
from broker_shim.security.security_settings import SecuritySettings
from broker_shim.selectors.grammar import SLICE_TOKENS
from broker_shim.sockets.access import Access
from broker_shim.store.interface import Exchange
from tests.support.amqp.amqp_1_0 import Client as Protocol
from tests.support.amqp.amqp_1_0 import attach, flow, server
from tests.support.amqp.link_clients import Client, House, Place

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
    compile_it = selector_compiler.compiling

    def counted(text: str) -> Any:
        done.append(1)
        for _ in (slices := compile_it(text)):
            done.append(1)
            yield
        return slices

    monkeypatch.setattr(selector_compiler, "compiling", counted)
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


def test_each_slice_of_a_selector_is_part_of_its_peers_turn(
    house: House, slices: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(house)
    spent: list[int] = []
    monkeypatch.setattr(client.ours.turn, "spend", spent.append)
    client.send(Attach("link", 0, True, source=selecting(LONG), target=Target()))
    while house.delayed:
        house.run_delayed()
    assert spent.count(selector_compiler.SLICE_WORK) == len(slices)
    assert len(spent) == len(slices) + 1  # and the frame itself


@pytest.mark.parametrize("later", ["A = 1", None, LONG])
def test_a_later_attach_has_the_link_however_long_the_earlier_ones_selector_takes(
    house: House, later: str | None
) -> None:
    first, second = Client(house), Client(house)
    first.send(Attach("link", 0, True, source=selecting(LONG + " AND 1 = 1"), target=Target()))
    source = Source("q") if later is None else selecting(later)
    second.send(Attach("link", 0, True, source=source, target=Target()))
    while house.delayed:
        house.run_delayed()
    assert first.taken(Detach)[0][0].error.condition == "amqp:link:stolen"
    assert second.taken(Attach)[0][0].source
    assert not second.taken(Detach)
    assert house.broker.queues["q"].consumer_count == 1
    assert not house.host.links._put_off


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
    assert len(house.host.links.registry) == 0


def test_nobody_subscribes_by_a_pattern_of_many_hashes(house: House) -> None:
    house.broker.router.add_exchange(Exchange("amq.topic", "topic"))
    client = Client(house)
    client.attach("link", source=Source("amq.topic/" + ".".join(["#", "a"] * 9)))
    assert client.taken(Detach)[0][0].error.condition == "amqp:invalid-field"
    client.attach("link", 1, source=Source("amq.topic/" + ".".join(["#", "a"] * 8)))
    assert not client.taken(Detach)


# --------------------------------------------------------------------------------------- headers


def encoded_map(code: int, content: bytes, count: int) -> bytes:
    """A section that is a map."""
    sizes = (len(content) + 4).to_bytes(4, "big") + count.to_bytes(4, "big")
    return bytes((0, 0x53, code, 0xD1)) + sizes + content


BODY = b"\x00\x53\x75\xa0\x01x"
ENTRY = b"\xa1\x01k\x40"
SYMBOL_ENTRY = b"\xa3\x01k\x40"


@pytest.fixture
def sender(house: House) -> Client:
    client = Client(house)
    client.attach("out", target=Target("q"), is_receiver=False)
    return client


@pytest.mark.parametrize(
    "message",
    [
        encoded_map(0x74, ENTRY * 1_100, 2_200) + BODY,
        encoded_map(0x72, SYMBOL_ENTRY * 1_100, 2_200) + BODY,
        encoded_map(0x74, b"\xa1\x01k\xb1" + (300_000).to_bytes(4, "big") + b"x" * 300_000, 2)
        + BODY,
        BODY + encoded_map(0x78, SYMBOL_ENTRY * 1_100, 2_200),
        b"\x00\x53\x75\xa0\x00" * 5_000,
    ],
    ids=["properties", "annotations", "long", "footer", "sections"],
)
def test_a_message_with_too_much_around_its_body_is_not_read(
    house: House, sender: Client, monkeypatch: pytest.MonkeyPatch, message: bytes
) -> None:
    read: list[int] = []
    read_columns = amqp_message._columns
    monkeypatch.setattr(
        amqp_message, "_columns", lambda *told: read.append(1) or read_columns(*told)
    )
    sender.deliver_encoded(b"1", message)
    sender.settle_down()
    (error,) = [
        getattr(each, "error", None) or each.state.error
        for each, _payload in sender.frames
        if isinstance(each, Detach | Disposition)
    ]
    assert error.condition == "amqp:resource-limit-exceeded"
    assert not read
    assert len(house.broker.queues["q"]) == 0


def test_a_header_that_does_not_end_is_not_gathered_to_its_end(
    house: House, sender: Client
) -> None:
    size = 9_000_000
    start = bytes((0, 0x53, 0x74, 0xD1)) + (size + 4).to_bytes(4, "big") + (2).to_bytes(4, "big")
    sender.deliver_piece(b"1", start, more=True)
    pieces = 0
    while not sender.taken(Detach):
        sender.deliver_piece(b"1", b"x" * 30_000, more=True)
        pieces += 1
    assert pieces * 30_000 <= house.settings.max_header_bytes + 2 * 30_000


@pytest.mark.parametrize("count", [1, 1_000])
def test_a_message_with_as_much_around_its_body_as_there_may_be_is_taken(
    house: House, sender: Client, count: int
) -> None:
    sender.deliver_encoded(b"1", encoded_map(0x74, ENTRY * count, 2 * count) + BODY)
    assert isinstance(sender.take(Disposition).state, Accepted)
    assert len(house.broker.queues["q"]) == 1


def test_little_pieces_of_a_message_take_no_more_than_their_bytes(house: House) -> None:
    receiving = IncomingMessage(house.broker, QueueNode("q"), lambda: 0)
    message = encoded_map(0x74, ENTRY, 2) + b"\x00\x53\x75\xb0\x00\x01\x86\xa0" + b"x" * 100_000
    tracemalloc.start()
    for at in range(0, len(message), 2):
        receiving.add(message[at : at + 2], lambda: None)
        receiving.add(b"", lambda: None)
    taken_bytes, _most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken_bytes < 3 * len(message)
    assert receiving.finish()[0].body_bytes == 100_000


# ------------------------------------------------------------------------------- what is remembered


def test_of_a_flow_only_the_transaction_that_it_names_is_kept() -> None:
    client = Protocol(server()).opened()
    client.begun()
    link = client.receiving()
    kept = [None, {}, {"txn-id": b"1"}, {"txn-id": b""}, {"txn-id": b""}]
    said: list[Any] = [
        None,
        {"p": "x" * 9_000},
        {"txn-id": b"1", "p": [1] * 9},
        {"txn-id": b"x" * 999},
        {"txn-id": [0] * 99},
    ]
    for properties, expected in zip(said, kept, strict=True):
        told = None if properties is None else {Symbol(k): v for k, v in properties.items()}
        client.send(flow(0, 10, properties=told))
        assert (link.flow_properties or {}) == (expected or {})


@pytest.mark.parametrize("kind", ["open", "begin", "attach"])
def test_what_is_remembered_counts_as_it_lies_in_memory(kind: str) -> None:
    settings = Settings("b", max_state_bytes=100_000, requires_sasl=False)
    client = Protocol(server(settings))
    many = tuple(Symbol(str(n)) for n in range(2_000))  # 5 bytes each in a frame
    if kind == "open":
        client.write(AMQP_HEADER.encoded())
        client.send(Open("c", desired_capabilities=many))
    elif kind == "begin":
        client.opened()
        client.send(Begin(None, 0, 1, 1, desired_capabilities=many))
    else:
        client.opened()
        client.begun()
        client.send(attach(0, desired_capabilities=many))
    (failed,) = [each for each in client.events if hasattr(each, "error")]
    assert failed.error.condition == "amqp:resource-limit-exceeded"


def test_properties_that_nobody_reads_are_not_remembered() -> None:
    client = Protocol(server(Settings("b", max_state_bytes=100_000, requires_sasl=False))).opened()
    large = {Symbol("p"): [0] * 9_000}
    session = client.begun(properties=large)
    link = client.receiving(properties=large)
    assert (session.remote.properties, link.remote.properties) == (None, None)


STATES: list[tuple[Any, Any]] = [
    (None, None),
    (Accepted(), Accepted()),
    (Rejected(Error("c", "d" * 9_000, {Symbol("i"): 1})), Rejected(Error("c", "d" * 1_000))),
    (Modified(True, None, {Symbol("x-opt-a"): 1}), Modified(True, None, {Symbol("x-opt-a"): 1})),
    (Modified(True, True, {Symbol("x-opt-a"): [1] * 999}), Modified(True, True)),
    (
        TransactionalState(b"1", Modified(None, None, {Symbol("x-opt-a"): [1] * 999})),
        TransactionalState(b"1", Modified()),
    ),
    (TransactionalState(b"1" * 99, None), TransactionalState(b"", None)),
]


@pytest.mark.parametrize(("said", "kept"), STATES, ids=range(len(STATES)))
def test_of_a_state_no_more_is_kept_than_anybody_reads(said: Any, kept: Any) -> None:
    client = Protocol(server()).opened()
    client.begun()
    delivery = client.receiving().transfer(b"t", (b"x",))
    client.send(Disposition(True, 0, None, state=said))
    assert delivery.remote_state == kept
    client.events.clear()
    ours = client.sending(1)
    client.transfer(Transfer(1, 0, b"t", 0, more=True, state=said), b"x")
    assert ours.unsettled[b"t"].remote_state == kept


# ------------------------------------------------------------------------ unsettled deliveries


def test_a_session_that_does_not_settle_is_sent_no_more_until_it_does(tmp_path: Path) -> None:
    house = House(Place("memory", tmp_path), BrokerSettings(max_unsettled=5))
    house.broker.ensure_queue("q", lambda _error: None)
    house.run()
    client = Client(house)
    client.attach("out", 1, is_receiver=False, target=Target("q"))
    for number in range(20):
        client.deliver(bytes([number]), number, 1, settled=True)
    client.attach("one", source=Source("q"))
    client.attach("two", 2, source=Source("q"))
    client.credit(10)
    assert len(client.transfers()) == 5
    client.credit(10, 2)
    assert not client.transfers()
    client.send(Disposition(True, 0, 1, settled=True, state=Accepted()))
    assert len(client.transfers()) == 2 * 2  # a link does not know what another is about to send
    client.send(Flow(0, 2048, 20, 2048, 2, 0, 10, drain=True))
    drained = [told for told, _ in client.taken(Flow) if told.handle is not None]
    assert [told.link_credit for told in drained if told.drain] == [0]
    client.attach("settled", 3, source=Source("q"), snd_settle_mode=1)
    client.credit(9, 3)
    assert len(client.transfers()) == 9
