"""Brokers that make and destroy the same queues at once end with what the store has.

Within a burst nothing is waited for, so completions, rows of the stream and lost connections come
in any order. When all is answered, each broker has just the wiring that the store has, and what was
said to be made was there when it was said.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Event

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_shim.broker.settings import BrokerSettings
from broker_shim.broker.virtual_host import Broker
from broker_shim.errors import StoreError
from broker_shim.store.interface import Exchange, ExchangeBindingKey, Queue
from sparkstore.operations.administration import AdminAction, Order
from tests.support.delivery.places import AtMember
from tests.support.stores.controls import ServicedRoot
from tests.support.stores.stores import DELTA_CONFIG, TIMEOUT_S

MEMBERS = 2
Facts = tuple[dict[str, Queue], set[ExchangeBindingKey], list[Exchange], int]
ORDERS = {
    "delete": Order(AdminAction.DELETE_QUEUE, force=True),
    "alter": Order(AdminAction.ALTER_QUEUE, arguments={"max_messages": 7}),
    "alter back": Order(AdminAction.ALTER_QUEUE, arguments={"max_messages": None}),
    "make an exchange": Order(AdminAction.CREATE_EXCHANGE, exchange="e", type="direct"),
    "delete the exchange": Order(AdminAction.DELETE_EXCHANGE, exchange="e"),
    "bind": Order(AdminAction.ADD_BINDING, exchange="e", key="k"),
    "unbind": Order(AdminAction.REMOVE_BINDING, exchange="e", key="k"),
}
ACTS = ("create", "create", "run", "run", "delete", "cut", *ORDERS)
STEPS = st.lists(
    st.tuples(st.integers(0, MEMBERS), st.sampled_from(ACTS), st.sampled_from("xy")),
    max_size=40,
)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServicedRoot]:
    path: Path = tmp_path_factory.mktemp("wiring")
    there = ServicedRoot(path / "root", config=DELTA_CONFIG)
    has_begun = Event()
    there.post(lambda: has_begun.set() if there.dispatcher.start() else None)
    assert has_begun.wait(TIMEOUT_S)
    yield there
    there.stop()


def order_of(act: str, name: str) -> Order:
    """The order that does something to a queue of this name, or to the exchange."""
    if act == "create":
        return Order(AdminAction.CREATE_QUEUE, name)
    return ORDERS[act]._replace(queue="" if "exchange" in act else name)


def facts_of(broker: Broker) -> Facts:
    """Queues, bindings and the exchange of a broker, and its calls that are under way."""
    router = broker.router
    exchanges = [each for name, each in router.definitions.items() if name == "e"]
    return {**broker.definitions}, {*router.bindings()}, exchanges, broker.calls.open_count


class Member:
    """A broker that is a member, and what its clients ask for."""

    def __init__(self, service: ServicedRoot) -> None:
        self.place = AtMember(BrokerSettings(), service)
        self.missing: list[str] = []
        self.asked = 0

    def do(self, act: str, name: str) -> None:
        """Ask for something, and do not wait for it."""
        if act == "create":
            self._create(name)
        elif act == "run":
            self.move()
        elif act == "cut":
            self._cut()
        else:
            self.place.broker.administration.order(order_of(act, name), lambda _error, _told: None)

    def have_service_do(self, act: str, name: str) -> None:
        """Ask the broker of the service, which decides for all, for something."""
        if act not in {"run", "cut"}:
            self.asked += 1
            self.place.decide(order_of(act, name), self._answered)

    def _answered(self, _error: StoreError | None) -> None:
        self.asked -= 1

    def move(self) -> None:
        """Do what is due now, and wait for nothing."""
        self.place.broker.dispatch()
        self.place.end_turn()
        self.place.inbox.drain()
        self.place.clock.pass_s(0.05)

    def _create(self, name: str) -> None:
        def created(error: StoreError | None) -> None:
            if error is None and name not in self.place.broker.queues:
                self.missing.append(name)

        self.place.broker.create_queue(Queue(name), created)

    def _cut(self) -> None:
        sending = self.place._remote._connection._sending
        if sending is not None:
            with suppress(OSError):
                sending.peer.shutdown(socket.SHUT_RDWR)


@settings(deadline=None)
@given(steps=STEPS)
def test_members_end_with_the_wiring_that_the_store_has(
    service: ServicedRoot, steps: list[tuple[int, str, str]]
) -> None:
    members = [Member(service) for _ in range(MEMBERS)]
    for number, act, name in steps:
        if number < MEMBERS:
            members[number].do(act, name)
        else:
            members[0].have_service_do(act, name)

    def is_over() -> bool:
        for member in members:
            member.move()
        there = service.store.recover()
        exchanges = [each for each in there.exchanges if each.name == "e"]
        stored = {each.name: each for each in there.queues}, {*there.bindings}, exchanges, 0
        found: SimpleQueue[Facts] = SimpleQueue()
        service.post(lambda: found.put(facts_of(service.dispatcher.start())))
        own = [facts_of(member.place.broker) for member in members]
        return not members[0].asked and [found.get(timeout=TIMEOUT_S), *own] == [stored] * (
            1 + MEMBERS
        )

    members[0].place.until(is_over, f"all have what the store has, after {steps}")
    assert [member.missing for member in members] == [[]] * MEMBERS
    for member in members:
        member.place.close()
