"""What a link's ends tell each other, by the specification's word, in front of a whole broker."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from broker_shim.amqp_1_0.composites import (
    Accepted,
    Attach,
    Close,
    DeleteOnClose,
    DeleteOnNoLinks,
    Detach,
    Disposition,
    Open,
    Rejected,
    Released,
    Source,
    Target,
    Transfer,
)
from broker_shim.amqp_1_0.primitives import Symbol, UInt
from broker_shim.broker.queues.queue_index import Cursor
from broker_shim.protocol_1_0.codec.frames import transfer_frame
from broker_shim.protocol_1_0.codec.values import Array
from broker_shim.store.memory import MemoryMessageStore
from tests.support.amqp.bench import Bench
from tests.support.amqp.raw_client import Raw, waiting

MESSAGE = b"\0\x53\x77\xa1\x01a"
LIFETIME, MODES = Symbol("lifetime-policy"), Symbol("supported-dist-modes")


@pytest.fixture
def bench() -> Iterator[Bench]:
    store = MemoryMessageStore()
    it = Bench(store)
    it.broker.ensure_queue("q", lambda _error: None)
    it.run()
    yield it
    it.ours.lost()
    it.run()
    store.close()


@pytest.fixture
def client(bench: Bench) -> Raw:
    return Raw(bench)


def attached(client: Raw, *, is_receiver: bool, **fields: Any) -> list[Any]:
    told = {"source": Source("q"), "target": Target("q"), **fields}
    told.setdefault("initial_delivery_count", None if is_receiver else 0)
    client.send(Attach("link", 0, is_receiver, **told))
    return client.read()


def deliver(client: Raw, transfer: Transfer, payload: bytes = MESSAGE) -> list[Any]:
    client.bench.ours.receive(transfer_frame(0, transfer, len(payload)) + payload)
    client.bench.run()
    return client.read()


# ----------------------------------------------------------------------------------------- attach


@pytest.mark.parametrize("is_receiver", [True, False])
@pytest.mark.parametrize(
    ("dynamic", "properties"),
    [
        (True, {LIFETIME: Symbol("delete-on-close")}),
        (True, {LIFETIME: Accepted()}),
        (True, {MODES: "move"}),
        (True, {MODES: Array("string", ("move",))}),
        (True, {"lifetime-policy": DeleteOnClose()}),
    ],
    ids=["symbol", "outcome", "string", "strings", "string key"],
)
def test_properties_of_a_node_that_are_of_a_wrong_type_are_refused(
    client: Raw, properties: dict[Any, Any], *, dynamic: bool, is_receiver: bool
) -> None:
    address = None if dynamic else "q"
    kind: Any = Source if is_receiver else Target
    node = kind(address, dynamic=dynamic, dynamic_node_properties=properties)
    told = attached(client, is_receiver=is_receiver, **{kind.NAME: node})
    assert told[-1].error.condition == "amqp:invalid-field"
    assert isinstance(told[-1], Detach)


@pytest.mark.parametrize("is_receiver", [True, False])
@pytest.mark.parametrize("properties", [{LIFETIME: DeleteOnClose()}, {"mine": Accepted()}])
def test_properties_of_a_node_that_is_not_dynamic_are_read_past(
    client: Raw, properties: dict[Any, Any], *, is_receiver: bool
) -> None:
    kind: Any = Source if is_receiver else Target
    asked = {kind.NAME: kind("q", dynamic_node_properties=properties)}
    (told, *_) = attached(client, is_receiver=is_receiver, **asked)
    granted = told.source if is_receiver else told.target
    assert granted.address == "q"
    assert granted.dynamic_node_properties is None


@pytest.mark.parametrize("is_receiver", [True, False])
def test_a_dynamic_node_is_told_with_the_life_that_it_has(
    client: Raw, *, is_receiver: bool
) -> None:
    kind: Any = Source if is_receiver else Target
    asked = {LIFETIME: DeleteOnNoLinks(), MODES: Array("symbol", (Symbol("move"),))}
    node = kind(dynamic=True, dynamic_node_properties=asked)
    (told, *_) = attached(client, is_receiver=is_receiver, **{kind.NAME: node})
    granted = told.source if is_receiver else told.target
    assert granted.dynamic_node_properties == {"lifetime-policy": DeleteOnClose()}


@pytest.mark.parametrize(
    ("asked", "told"),
    [(None, "move"), ("move", "move"), ("copy", "copy"), ("any", "move")],
)
def test_a_source_tells_how_it_distributes(client: Raw, asked: str | None, told: str) -> None:
    (answer, *_) = attached(client, is_receiver=True, source=Source("q", distribution_mode=asked))
    assert answer.source.distribution_mode == told


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (None, {"accepted", "rejected", "released", "modified"}),
        (("amqp:accepted:list", "amqp:released:list"), {"accepted", "released"}),
        (("amqp:declared:list",), {"accepted", "rejected", "released", "modified"}),
    ],
)
def test_a_source_tells_the_outcomes_that_there_are_and_the_default(
    client: Raw, asked: Any, told: set[str]
) -> None:
    (answer, *_) = attached(client, is_receiver=True, source=Source("q", outcomes=asked))
    assert set(answer.source.outcomes) == {f"amqp:{each}:list" for each in told}
    assert answer.source.default_outcome == Released()


# --------------------------------------------------------------------------------------- messages


@pytest.mark.parametrize("settled", [True, False])
def test_a_transfer_without_a_section_is_no_message(
    bench: Bench, client: Raw, *, settled: bool
) -> None:
    attached(client, is_receiver=False)
    told = deliver(client, Transfer(0, 0, b"t", 0, settled=settled), b"")
    assert waiting(bench) == 0
    if settled:
        assert not [each for each in told if isinstance(each, Disposition)]
    else:
        (answer,) = (each for each in told if isinstance(each, Disposition))
        assert answer.state.error.condition == "amqp:decode-error"


def test_a_transfer_behind_its_attach_ends_the_link_and_no_more(bench: Bench) -> None:
    """All in one read: open, begin, attach, a settled transfer; another link goes on."""
    links = [
        Attach(f"l{handle}", handle, False, target=Target("q"), initial_delivery_count=0)
        for handle in (0, 1)
    ]
    client = Raw(bench, *links, Transfer(0, 0, b"t", 0, settled=True))
    (detach,) = (each for each in client.greeted if isinstance(each, Detach))
    assert detach.error.condition == "amqp:link:transfer-limit-exceeded"
    answer = deliver(client, Transfer(1, 1, b"u", 0, settled=False))
    assert [each.state for each in answer if isinstance(each, Disposition)] == [Accepted()]
    assert waiting(bench) == 1


def test_a_refusal_is_told_by_the_end_of_a_link_whose_source_does_not_allow_for_it(
    bench: Bench, client: Raw
) -> None:
    outcomes = ("amqp:accepted:list", "amqp:released:list")
    attached(client, is_receiver=False, source=Source("mine", outcomes=outcomes))
    told = deliver(client, Transfer(0, 0, b"t", 0, settled=False), b"")
    assert [type(each) for each in told] == [Detach]
    assert told[0].error.condition == "amqp:decode-error"
    assert waiting(bench) == 0


@pytest.mark.parametrize("asked", [None, {}, {b"mine": None}])
def test_an_unsettled_map_is_answered_by_one(client: Raw, asked: Any) -> None:
    """A map says that the link is resumed, null that it is attached anew (2.7.3)."""
    (told, *_) = attached(client, is_receiver=True, unsettled=asked)
    assert told.unsettled == (None if asked is None else {})


# ------------------------------------------------------------------------------------------ relay


def to(address: str) -> bytes:
    """A message for an address."""
    name = address.encode()
    items = b"\x40\x40\xb1" + len(name).to_bytes(4, "big") + name
    size = (len(items) + 4).to_bytes(4, "big")
    return b"\0\x53\x73\xd0" + size + (3).to_bytes(4, "big") + items + MESSAGE


def outcomes_of(told: list[Any]) -> list[Any]:
    return [each.state for each in told if isinstance(each, Disposition)]


def test_a_relay_is_offered_and_makes_queues_as_an_attach_would(bench: Bench, client: Raw) -> None:
    assert "ANONYMOUS-RELAY" in client.greeted[0].offered_capabilities
    attached(client, is_receiver=False, target=Target())
    payload = to("made")
    frames = [Transfer(0, n, b"t%d" % n, 0, settled=False) for n in range(3)]
    encoded = b"".join(transfer_frame(0, each, len(payload)) + payload for each in frames)
    bench.ours.receive(encoded)
    bench.run()
    (answer,) = (each for each in client.read() if isinstance(each, Disposition))
    assert (answer.first, answer.last, answer.state) == (0, 2, Accepted())
    assert len(bench.broker.queues["made"].browse(Cursor(), 99)) == 3


@pytest.mark.parametrize(
    ("address", "condition"),
    [("amq.nowhere", "not-found"), ("amq.topic", "not-found"), ("." * 9_000, "invalid-field")],
)
@pytest.mark.parametrize("settled", [True, False])
def test_what_a_relay_cannot_route_is_told_with_its_tag(
    client: Raw, address: str, condition: str, *, settled: bool
) -> None:
    attached(client, is_receiver=False, target=Target())
    told = deliver(client, Transfer(0, 0, b"tag", 0, settled=settled), to(address))
    if settled:
        (detach,) = (each for each in told if isinstance(each, Detach))
        error = detach.error
    else:
        (state,) = outcomes_of(told)
        assert isinstance(state, Rejected)
        error = state.error
    assert error.condition == f"amqp:{condition}"
    assert error.info == {"delivery-tag": b"tag"}


# ---------------------------------------------------------------------- the only one of a container


SOLE = "sole-connection-for-container"
POLICY = Symbol("sole-connection-enforcement-policy")


def another(bench: Bench, **fields: Any) -> Raw:
    ours = bench.host.connect(lambda: None)
    second: Any = SimpleNamespace(ours=ours, run=bench.run)
    return Raw(second, **fields)


def refusal(client: Raw) -> Any:
    """Why a connection was refused as it opened; None if it was not."""
    opened, *more = client.greeted
    assert isinstance(opened, Open)
    failed = (opened.properties or {}).get("amqp:connection-establishment-failed")
    closes = [each for each in more if isinstance(each, Close)]
    assert bool(closes) is (failed is True)
    return closes[0].error if closes else None


@pytest.mark.parametrize("asks", [(True, False), (False, True), (True, True)])
def test_the_only_connection_of_a_container_stays_that(
    bench: Bench, asks: tuple[bool, bool]
) -> None:
    first, second = ((SOLE,) if each else () for each in asks)
    one = Raw(bench, desired_capabilities=first)
    assert SOLE in one.greeted[0].offered_capabilities
    told = {"sole-connection-detection-policy": 0} | ({POLICY: 0} if first else {})
    assert one.greeted[0].properties == told
    error = refusal(another(bench, desired_capabilities=second))
    assert error.condition == "amqp:invalid-field"
    assert error.info == {"invalid-field": "container-id"}
    one.receiver(1)
    assert [type(each) for each in one.read()] == [Attach]
    one.send(Close())
    assert refusal(another(bench, desired_capabilities=second)) is None


def test_without_a_wish_a_container_has_any_number_of_connections(bench: Bench) -> None:
    Raw(bench)
    assert refusal(another(bench)) is None


def test_a_connection_may_ask_that_the_others_of_its_container_end(bench: Bench) -> None:
    """What they held is there for it at once, not when they have hung up."""
    one = Raw(bench)
    one.receiver(1)
    bench.publish(1, 10)
    bench.run()
    assert waiting(bench) == 0
    two = another(bench, desired_capabilities=(SOLE,), properties={POLICY: UInt(1)})
    assert refusal(two) is None
    assert two.greeted[0].properties == {"sole-connection-detection-policy": 0, POLICY: 1}
    closed = one.read()[-1]
    assert isinstance(closed, Close)
    assert closed.error.condition == "amqp:resource-locked"
    bench.run()
    assert waiting(bench) == 1


@pytest.mark.parametrize(("stands", "comes"), [(0, 1), (1, 0)])
def test_what_the_connection_that_is_there_asked_holds(
    bench: Bench, stands: int, comes: int
) -> None:
    """Who had others refused is not ended by one that asks for that; and the other way round."""
    one, two = (
        another(bench, desired_capabilities=(SOLE,), properties={POLICY: UInt(asked)})
        for asked in (stands, comes)
    )
    ended = [each for each in one.read() if isinstance(each, Close)]
    assert (refusal(two) is None, len(ended)) == ((False, 0) if stands == 0 else (True, 1))
