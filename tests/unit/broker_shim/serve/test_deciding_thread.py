"""A store service without AMQP takes orders, but not beside a Broker-J host."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker_shim.broker.settings import BrokerSettings
from broker_shim.broker.wiring.routing import DEFAULT_EXCHANGES
from broker_shim.serve.deciding_thread import DecidingThread
from broker_shim.serve.http.calls import iso_time
from broker_shim.store import protocol as wire
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import Exchange, ExchangeBindingKey, MessageHeader, Queue
from sparkstore.control.broker_control import BrokerControl
from sparkstore.control.client import AdminClient, connect
from sparkstore.core.link_records import LinkKey, Role
from sparkstore.core.records import Kind, Record
from sparkstore.errors import InvalidRequest
from sparkstore.operations.administration import AdminAction, Order
from sparkstore.operations.bulk import Action, Answer, Request
from sparkstore.tables.root import open_root
from tests.support.roots.logs import until
from tests.support.stores.controls import ServicedRoot
from tests.support.stores.raw_member import RawMember
from tests.support.stores.stores import DELTA_CONFIG, done

SINCE = 1_790_000_000_000_000
DETAIL = {"durability": 2, "source": None, "target": None, "version": 1}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Queue `q` with four messages; three of them are held."""
    store = DeltaMessageStore(tmp_path / "root", DELTA_CONFIG)
    done(store.create, Queue("q"))
    for holder in ("m/link", "gone/link", "gone", None):
        message = store.message(MessageHeader(), b"x")
        done(store.enqueue, message, "q")
        if holder is not None:
            done(store.acquire, message.message_id, "q", holder)
    done(store.configure, "sparkstore.member", "m", {"incarnations": ["before"], "since_us": SINCE})
    store.close()
    return tmp_path / "root"


@pytest.fixture
def service(root: Path) -> Iterator[ServicedRoot]:
    there = ServicedRoot(root)
    yield there
    there.stop()


@pytest.fixture
def control(service: ServicedRoot, root: Path) -> Iterator[BrokerControl]:
    with closing(connected(root)) as there:
        yield there


def connected(root: Path) -> BrokerControl:
    control = connect(open_root(root))
    assert control is not None
    return control


def make(control: AdminClient, queue: str) -> dict[str, Any]:
    return control.order(Order(AdminAction.CREATE_QUEUE, queue))


def watching(service: ServicedRoot, *queues: str) -> RawMember:
    """A member that was told of all there is."""
    member = RawMember(service.path, "watcher")
    member.hello()
    member.say(wire.WATCH, "", 0, ())
    assert [row[1] for row in told(member) if row[1]] == [*queues]
    return member


def told(member: RawMember) -> list[Any]:
    frame = member.hears()
    assert frame is not None
    assert frame[0] == wire.CHANGES, frame
    member.say(wire.SEEN)
    return [*frame[1][4]]


def test_members_are_told_of_what_an_administrator_orders(
    service: ServicedRoot, control: BrokerControl
) -> None:
    with watching(service, "q") as member:
        make(control, "new")
        assert [tuple(row[:2]) for row in told(member)] == [(Kind.CREATED, "new")]
    acts = [details["act"] for _, details in service.audited]
    assert acts == ["create-queue"]


WANTED = BrokerSettings(
    queues=(Queue("q"), Queue("new", arguments={"max_delivery_count": 3})),
    exchanges=(Exchange("x", "fanout"),),
    bindings=(ExchangeBindingKey("x", "new", ""),),
)


def start_with(store: DeltaMessageStore, settings: BrokerSettings) -> None:
    DecidingThread(store, settings, lambda *_: None).close()


def test_a_service_makes_the_wiring_of_its_settings_and_alters_what_is_there(root: Path) -> None:
    store = DeltaMessageStore(root, DELTA_CONFIG)
    start_with(store, WANTED)
    altered = Queue("new", arguments={"max_delivery_count": 5})
    start_with(store, replace(WANTED, queues=(altered,)))
    found = store.recover()
    assert {queue.name: queue.arguments for queue in found.queues} == {
        "q": {},
        "new": {"max_delivery_count": 5},
    }
    assert {each.name for each in found.exchanges} == {*DEFAULT_EXCHANGES, "x"}
    assert [*found.bindings] == [*WANTED.bindings]
    with pytest.raises(InvalidRequest, match="exchange 'x' is there with type fanout"):
        start_with(store, BrokerSettings(exchanges=(Exchange("x", "topic"),)))
    store.close()


def test_the_root_of_a_broker_j_host_gets_no_wiring_of_settings(root: Path) -> None:
    service = ServicedRoot(root)
    with RawMember(service.path, "host") as host:
        host.hello("vhost", exclusive=True)
    service.stop()
    store = DeltaMessageStore(root, DELTA_CONFIG)
    with pytest.raises(InvalidRequest, match="virtual host 'vhost', which makes its own queues"):
        start_with(store, WANTED)
    start_with(store, BrokerSettings())
    assert [queue.name for queue in store.recover().queues] == ["q"]
    store.close()


def test_what_a_broker_held_that_was_killed_waits_and_what_a_member_holds_does_not(
    control: BrokerControl,
) -> None:
    since = iso_time(SINCE, "microseconds")
    held = {"queue": "q", "message": 1, "holders": ["m/link"], "since": since}
    assert control.holders(None).shown == [held]
    assert control.run(Request(Action.PURGE, "q", (1, 2, 3, 4))) == Answer(done=3, left=1)


def test_beside_a_broker_j_host_nothing_is_changed_and_all_can_be_looked_at(
    service: ServicedRoot, control: BrokerControl, root: Path
) -> None:
    with RawMember(service.path, "host") as host:
        host.hello("vhost", exclusive=True)
        for ask in (
            lambda: make(control, "new"),
            lambda: control.purge("q", lambda _answer: None),
            lambda: control.put("q", []),
            lambda: control.run(Request(Action.RELEASE, "q", (1,))),
        ):
            with pytest.raises(InvalidRequest, match=r"Broker-J host is attached.*stop it first"):
                ask()
        assert control.not_durable() == {}
        assert control.connections() == ([], [])
        assert len(control.holders(None).shown) == 1
    until(lambda: is_made(control, "new"))


def is_made(control: AdminClient, queue: str) -> bool:
    try:
        return bool(make(control, queue)["changed"])
    except InvalidRequest:
        return False


def test_a_host_that_comes_has_the_broker_end_that_decided(
    service: ServicedRoot, control: BrokerControl, root: Path
) -> None:
    assert control.run(Request(Action.PURGE, "q", (4,))) == Answer(done=1)
    with RawMember(service.path, "m") as member:  # so that nobody holds anything
        member.hello()
    with RawMember(service.path, "host") as host:
        host.hello("vhost", exclusive=True)
        host.ask(1, Record(Kind.DESTROYED, 0, "q"))
        with closing(connected(root)) as again, pytest.raises(InvalidRequest, match="attached"):
            make(again, "new")
        host.say(wire.WATCH, "", 0, ())
        frame = host.hears()
        assert frame is not None
        assert frame[0] == wire.GOODBYE
        assert "alone on its root" in frame[1][1]


@pytest.mark.parametrize("is_watched", [True, False])
def test_a_host_is_refused_while_brokers_are_members_or_messages_are_held(
    service: ServicedRoot, control: BrokerControl, *, is_watched: bool
) -> None:
    make(control, "new")
    watcher = watching(service, "q", "new") if is_watched else None
    with RawMember(service.path, "host") as host:
        host.say(wire.HELLO, wire.VERSION, "host", "1", "vhost", True, None)
        frame = host.hears()
        assert frame is not None
        assert frame[0] == wire.GOODBYE
        assert ("brokers are members" if is_watched else "hold messages") in frame[1][1]
    make(control, "newer")
    if watcher is not None:
        assert [row[1] for row in told(watcher)] == ["newer"]
        watcher.close()


def test_the_queue_of_a_link_goes_with_the_link_by_force_and_members_lose_it(
    service: ServicedRoot, control: BrokerControl
) -> None:
    key = LinkKey("client", "mine", Role.SENDER)
    done(service.store.create, Queue("own"))
    done(service.store.attach, key, {**DETAIL, "queue": "own"})
    delete = Order(AdminAction.DELETE_QUEUE, "own", force=True)
    with watching(service, "q", "own") as member:
        with pytest.raises(InvalidRequest, match="which is attached"):
            control.order(delete)
        done(service.store.detach, key, closed=False)
        assert control.order(delete)["changed"]
        assert told(member)[0][:1] == (Kind.ATTACHED,)
        assert [row[1] for row in told(member)] == ["own"]
    assert service.store.recover().links == {}
