"""Members that make and destroy the same queues at once end with what the store has.

Within a burst nothing is waited for, so completions, rows of the stream and lost connections come
in any order. When all is answered, each member's broker has just the queues and bindings that the
store has, and what was said to be made was there when it was said.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_shim.broker.settings import BrokerSettings
from broker_shim.errors import StoreError
from broker_shim.store.interface import Queue
from sparkstore.operations.administration import AdminAction, Order
from tests.support.delivery.places import AtMember
from tests.support.stores.controls import ServicedRoot
from tests.support.stores.stores import DELTA_CONFIG

MEMBERS = 2
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
    st.tuples(st.integers(0, MEMBERS - 1), st.sampled_from(ACTS), st.sampled_from("xy")),
    max_size=40,
)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServicedRoot]:
    path: Path = tmp_path_factory.mktemp("wiring")
    there = ServicedRoot(path / "root", config=DELTA_CONFIG)
    yield there
    there.stop()


class Member:
    """A broker that is a member, and what its clients ask for."""

    def __init__(self, service: ServicedRoot) -> None:
        self.place = AtMember(BrokerSettings(), service)
        self.missing: list[str] = []

    def do(self, act: str, name: str) -> None:
        """Ask for something, and do not wait for it."""
        if act == "create":
            self._create(name)
        elif act == "run":
            self.move()
        elif act == "cut":
            self._cut()
        else:
            order = ORDERS[act]._replace(queue="" if "exchange" in act else name)
            self.place.broker.administration.order(order, lambda _error, _told: None)

    def move(self) -> None:
        """Do what is due now, and wait for nothing."""
        self.place.broker.dispatch()
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
        members[number].do(act, name)

    def is_over() -> bool:
        for member in members:
            member.move()
        there = service.store.recover()
        return all(
            broker.definitions == {each.name: each for each in there.queues}
            and {*broker.router.bindings()} == {*there.bindings}
            and [each for each in there.exchanges if each.name == "e"]
            == [each for name, each in broker.router.definitions.items() if name == "e"]
            and not broker.calls.open_count
            for broker in (member.place.broker for member in members)
        )

    members[0].place.until(is_over, f"all have what the store has, after {steps}")
    assert [member.missing for member in members] == [[]] * MEMBERS
    for member in members:
        member.place.close()
