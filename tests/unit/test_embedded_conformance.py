"""What a link's ends tell each other, by the specification's word, in front of a whole broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from broker_shim.amqp_1_0.composites import (
    Accepted,
    Attach,
    DeleteOnClose,
    DeleteOnNoLinks,
    Detach,
    Disposition,
    Released,
    Source,
    Target,
    Transfer,
)
from broker_shim.amqp_1_0.primitives import Symbol
from broker_shim.protocol_1_0.frames import transfer_frame
from broker_shim.protocol_1_0.values import Array
from broker_shim.store.memory import MemoryMessageStore
from tests.unit.test_embedded_connection import Raw, waiting
from tests.unit.test_embedded_sending import Bench

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
        (False, {LIFETIME: DeleteOnClose()}),
    ],
    ids=["symbol", "outcome", "string", "strings", "string key", "not dynamic"],
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
