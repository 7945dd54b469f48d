"""Links of the embedded broker: attaches, stores and connections that fail half way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from broker_shim.addressing.bindings import Routing
from broker_shim.amqp_1_0.composites import (
    Accepted,
    Attach,
    Detach,
    Disposition,
    Error,
    Modified,
    Received,
    Rejected,
    Source,
    Target,
    Transfer,
)
from broker_shim.amqp_1_0.primitives import Symbol
from broker_shim.broker.settings import AddressSettings, BrokerSettings
from broker_shim.durability import TerminusDurability
from broker_shim.links import ExpiryPolicy, LinkTerms, Role
from broker_shim.links import Source as SourceValue
from broker_shim.security.guard import Guard
from broker_shim.security.rules.permissions import rule_of
from broker_shim.security.security_settings import SecuritySettings
from broker_shim.sockets.access import LOOPBACK, Access
from broker_shim.store.interface import LinkKey, Queue
from sparkstore.core.state_machine.call_values import (
    DestroyCall,
    SettleCall,
    StoreCall,
    UnsettledCall,
)
from tests.support.amqp.link_clients import Client, House, Place
from tests.support.stores.stores import RecordedMessageStore, done

SETTINGS = BrokerSettings(addresses=(AddressSettings("news.#", Routing.MULTICAST),))


@pytest.fixture
def kept(tmp_path: Path) -> House:
    """A broker over a store of tier 2."""
    return House(Place("recorded", tmp_path), SETTINGS)


KEY = LinkKey("client", "out", "receiver")
LARGE = "x" * (3 << 19)
"""More than is taken in one piece."""


def durable(address: str = "news.eu", **fields: Any) -> Source:
    return Source(address, durable=1, expiry_policy="never", **fields)


@contextmanager
def no_room(house: House, kind: type[StoreCall]) -> Iterator[None]:
    """The store has no room in here for what calls of a kind append."""
    store = house.store
    assert isinstance(store, RecordedMessageStore)
    sink, real = store.sink, store.call

    def without_room(call: StoreCall, *others: Any, **named: Any) -> None:
        sink.is_full = isinstance(call, kind)
        real(call, *others, **named)
        sink.is_full = False

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "call", without_room)
        yield


def target() -> Target:
    return Target("q", durable=2, expiry_policy="never")


def attach_sender(client: Client, unsettled: dict[bytes, Any] | None = None, **fields: Any) -> Any:
    told = {"target": target(), "is_receiver": False, "unsettled": unsettled, **fields}
    return client.attach("out", **told)


def ask_to_attach(client: Client, unsettled: dict[bytes, Any] | None = None, **fields: Any) -> None:
    """The same, where no answer is to be expected yet."""
    told = {"target": target(), "source": Source(), "initial_delivery_count": 0, **fields}
    client.send(Attach("out", 0, role=False, unsettled=unsettled, **told))


@pytest.mark.parametrize("is_stolen", [True, False])
@pytest.mark.parametrize("is_killed", [True, False])
def test_a_large_delivery_is_stored_once_if_the_link_is_lost_before_it_is_stored(
    kept: House, *, is_stolen: bool, is_killed: bool
) -> None:
    client = Client(kept)
    attach_sender(client)
    with kept.store_that_does_not_answer():
        client.deliver(b"1", LARGE)
        assert not kept.store.recover().entries["q"]
        if not is_stolen:
            client.vanish()
        back = Client(kept)
        ask_to_attach(back, {b"1": None})
        assert back.taken(Attach) == []
    if is_killed:
        kept = kept.restarted()
        back = Client(kept)
        ask_to_attach(back, {b"1": None})
    assert len(kept.store.recover().entries["q"]) == 1
    assert back.take(Attach).unsettled == {b"1": Accepted()}


def test_what_was_not_stored_is_not_known_as_stored(kept: House) -> None:
    """Another member of the store's service has destroyed the queue."""
    client = Client(kept)
    attach_sender(client)
    done(kept.store.destroy, Queue("q"))
    with kept.store_that_does_not_answer():
        client.deliver(b"1", "a")
        client.vanish()
    assert attach_sender(Client(kept), {b"1": None}).unsettled == {}
    assert kept.store.recover().unsettled == {}


def test_what_was_stored_is_known_as_stored_whatever_its_note_completed_with(kept: House) -> None:
    """A store that has no room while it takes the note may have some at the commit."""
    client = Client(kept)
    attach_sender(client)
    with no_room(kept, UnsettledCall):
        client.deliver(b"1", "a")
    client.vanish()
    assert len(kept.store.recover().entries["q"]) == 1
    assert kept.store.recover().unsettled[KEY] == {b"1": {"outcome": "accepted"}}
    assert attach_sender(Client(kept), {b"1": None}).unsettled == {b"1": Accepted()}


def test_what_the_sender_has_settled_is_forgotten_before_its_attach_is_answered(
    kept: House,
) -> None:
    """A crash after the answer would bring it back, for another delivery of that tag."""
    client = Client(kept)
    attach_sender(client)
    client.deliver(b"0", "a")
    client.vanish()
    back = Client(kept)
    with no_room(kept, SettleCall):
        assert attach_sender(back).target is None
    assert back.take(Detach).error.condition == "amqp:resource-limit-exceeded"
    assert kept.store.recover().unsettled[KEY].keys() == {b"0"}
    assert attach_sender(Client(kept)).target is not None
    assert kept.store.recover().unsettled == {}


@pytest.mark.parametrize("is_killed", [True, False])
@pytest.mark.parametrize("ends", ["by a cut", "by an abort", "by a refusal"])
@pytest.mark.parametrize("mode", [0, 1])
def test_what_is_known_of_a_delivery_is_not_told_of_another_of_its_tag(
    kept: House, mode: int, ends: str, *, is_killed: bool
) -> None:
    client = Client(kept)
    attach_sender(client, rcv_settle_mode=mode)
    number = client.deliver(b"T", "a")
    if mode == 1:
        client.dispose(number, Accepted(), as_sender=True)
    if ends == "by a refusal":
        client.deliver_encoded(b"T", b"no message")
        client.settle_down()
    else:
        client.begin_delivery(b"T", aborted=ends == "by an abort")
    client.vanish()
    back = Client(kept.restarted() if is_killed else kept)
    is_partial = ends == "by a cut" and not is_killed
    told = attach_sender(back, {b"T": None}, rcv_settle_mode=mode).unsettled
    assert told == ({b"T": Received(0, 0)} if is_partial else {})


def holding(kept: House, count: int) -> list[bytes]:
    """The tags of deliveries that link `in` of a client holds, which is gone."""
    client = Client(kept)
    attach_sender(client)
    client.attach("in", 1, source=Source("q", 2, "never"), rcv_settle_mode=1)
    client.credit(count, 1)
    for number in range(count):
        client.deliver(b"%d" % number, "x")
    tags = [tag for tag, _body in client.transfers()]
    client.vanish()
    return tags


@pytest.mark.parametrize(
    "outcome",
    [
        Rejected(Error("amqp:not-allowed", "d" * 1_000)),
        Modified(undeliverable_here=True, message_annotations={Symbol("x-why"): "d" * 1_000}),
    ],
)
def test_an_outcome_that_its_receiver_said_much_of_is_taken_from_the_map(
    kept: House, outcome: Any
) -> None:
    first, second = holding(kept, 2)
    back = Client(kept)
    told = {first: outcome, second: None}
    back.attach("in", source=Source("q", 2, "never"), unsettled=told, rcv_settle_mode=1)
    assert back.take(Transfer).state == type(outcome)()
    disposition = back.take(Disposition)
    assert (disposition.settled, disposition.state) == (True, type(outcome)())
    back.credit(1)
    assert [tag for tag, _body in back.transfers()] == [second]
    entries = kept.store.recover().entries["q"].values()
    holders = [entry.acquired_by is not None for entry in entries]
    assert holders == ([True] if isinstance(outcome, Rejected) else [False, True])


def test_an_attach_whose_answer_does_not_fit_loses_nothing_that_the_link_held(kept: House) -> None:
    (tag,) = holding(kept, 1)
    small, back = Client(kept, max_frame_size=512), Client(kept)
    told = {"unsettled": {tag: None}, "rcv_settle_mode": 1}
    long = {Symbol("jms-selector"): "a = 1 OR TRUE" + " " * 900}
    assert small.attach("in", source=Source("q", 2, "never", filter=long), **told).source is None
    assert small.take(Detach).error.condition == "amqp:invalid-field"
    back.attach("in", source=Source("q", 2, "never"), **told)
    back.credit(1)
    assert back.transfers() == [(tag, "x")]
    assert kept.host.links.held == {}


def test_a_queue_that_the_store_could_not_destroy_is_destroyed_later(kept: House) -> None:
    """Its name is used again meanwhile: what waited in the old one does not come back."""
    client, publisher = Client(kept), Client(kept, "publisher")
    client.attach("news", source=durable())
    publisher.attach("out", target=Target("news.eu"), is_receiver=False)
    publisher.deliver(b"1", "old")
    with no_room(kept, DestroyCall):
        client.send(Detach(0, closed=True))
    assert kept.broker.open_count == 1
    assert client.taken(Detach) == []
    assert kept.store.recover().links.keys() == {LinkKey("client", "news", "sender")}
    other = Client(kept)
    other.send(Attach("news", 0, role=True, source=durable(), target=Target()))
    assert other.taken(Attach) == []
    kept.run_delayed()
    assert client.take(Detach).error is None
    assert other.take(Attach).source is not None
    publisher.deliver(b"2", "new")
    other.credit(10)
    assert [body for _tag, body in other.transfers()] == ["new"]
    assert other.detach(closed=True).error is None
    assert kept.store.recover().links == {}
    assert [each.name for each in kept.store.recover().queues if "news" in each.name] == []


def test_a_new_link_waits_until_the_old_one_of_its_name_is_forgotten(kept: House) -> None:
    """What is forgotten of the old one would be what is known of the new one."""
    client, other = Client(kept), Client(kept)
    dynamic = Target(durable=2, expiry_policy="never", dynamic=True)
    attach_sender(client, target=dynamic)
    client.deliver(b"1", "a")
    with no_room(kept, DestroyCall):
        client.send(Detach(0, closed=True))
    ask_to_attach(other)
    assert other.taken(Attach) == []
    kept.run_delayed()
    assert other.take(Attach).target.address == "q"
    other.deliver(b"1", "b")
    assert kept.store.recover().unsettled[KEY].keys() == {b"1"}


def allowed(**permissions: list[str]) -> Access:
    """How a client gets in that may do so much on `news.#` and on temporary queues."""
    addresses = {"news": "news.#", "temporary": "temporary"}
    rules = [
        rule_of({"who": ["*"], "address": addresses[name], "allow": acts})
        for name, acts in permissions.items()
    ]
    return Access(Guard(SecuritySettings(permissions=tuple(rules))))


@pytest.mark.parametrize(
    ("source", "stays"),
    [
        (Source("news.eu"), False),
        (Source("news.eu", 0, "connection-close"), False),
        (Source("news.eu", 1), True),
        (Source("news.eu", 0, "never"), True),
        (Source("news.eu", 0, "link-detach", 1), True),
    ],
)
def test_a_subscription_that_stays_may_be_made_by_who_may_create(
    kept: House, source: Source, *, stays: bool
) -> None:
    reader = Client(kept, "reader", allowed(news=["read"]))
    assert (reader.attach("s", source=source).source is None) == stays
    creator = Client(kept, "creator", allowed(news=["read", "create"]))
    assert creator.attach("s", source=source).source is not None
    assert ("news.eu::subscription.creator.s" in kept.broker.queues) == stays


@pytest.mark.parametrize("other", [Source(dynamic=True), Source("q", 1, "never")])
def test_a_link_that_is_attached_to_something_else_has_left_its_subscription(
    kept: House, other: Source
) -> None:
    """Nobody else would end it; who may not read it any more does not get it by another name."""
    queue = "news.eu::subscription.bob.s"
    first = Client(kept, "bob", allowed(news=["read", "create"]))
    first.attach("s", source=durable())
    first.vanish()
    publisher = Client(kept, "publisher")
    publisher.attach("out", target=Target("news.eu"), is_receiver=False)
    publisher.deliver(b"1", "secret")
    access = allowed(temporary=["read", "create"]) if other.dynamic else LOOPBACK
    back = Client(kept, "bob", access)
    address = back.attach("s", source=other).source.address
    assert address not in {None, queue}
    back.credit(1)
    assert back.transfers() == []
    assert queue not in kept.broker.queues
    assert queue not in {each.name for each in kept.store.recover().queues}


def test_a_sender_whose_node_was_dynamic_leaves_no_queue_behind(kept: House) -> None:
    client = Client(kept)
    dynamic = Target(durable=1, expiry_policy="never", dynamic=True)
    queue = attach_sender(client, target=dynamic).target.address
    client.detach()
    assert attach_sender(client, target=dynamic).target.address == queue
    client.detach()
    attach_sender(client)
    assert queue not in kept.broker.queues


@pytest.mark.parametrize(
    ("name", "address"),
    [("." * 5_000, "amq.topic"), ("." * 5_000, "news.eu"), ("s", f"amq.topic/{'k' * 10_001}")],
)
def test_a_subscription_whose_names_the_store_refuses_leaves_nothing(
    kept: House, name: str, address: str
) -> None:
    client = Client(kept)
    assert client.attach(name, source=durable(address)).source is None
    error = client.take(Detach).error
    assert error.condition == "amqp:invalid-field"
    assert "10000" in error.description
    assert kept.store.recover().links == {}
    again = kept.restarted()
    assert Client(again).attach("good", source=durable()).source is not None
    assert len(again.registry) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"source": {"address": "q", "filter": []}},
        {"source": {"address": "q", "filters": [{"name": "f", "descriptor": [], "value": 1}]}},
        {"queue": 5},
    ],
)
def test_a_link_of_another_member_of_the_service_does_not_keep_the_broker_from_starting(
    kept: House, other: dict[str, Any]
) -> None:
    told = {"version": 1, "source": None, "target": None, "durability": 2, **other}
    key = LinkKey("member", "its", "sender")
    done(kept.store.attach, key, told)
    Client(kept).attach("good", source=durable())
    again = kept.restarted()
    assert len(again.registry) == 1
    assert again.store.recover().links[key] == told


def test_a_terminus_that_cannot_have_its_queue_does_not_keep_the_broker_from_starting(
    kept: House,
) -> None:
    """As one attach to an earlier version could leave it."""
    terms = SourceValue("amq.topic", TerminusDurability.CONFIGURATION, ExpiryPolicy.NEVER)
    bad = LinkTerms(Role.SENDER, terms, None, "q" * 10_001)
    done(kept.store.attach, LinkKey("client", "bad", "sender"), bad.as_json())
    Client(kept).attach("good", source=durable())
    again = kept.restarted()
    assert [key.name for key in again.store.recover().links] == ["good"]
    assert "news.eu::subscription.client.good" in again.broker.queues
    assert len(again.restarted().registry) == 1
