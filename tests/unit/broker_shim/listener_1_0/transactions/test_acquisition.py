"""Acquisition in a transaction (4.4.3): a flow names it, and what is sent from then on is its."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker_shim.amqp_1_0.composites import (
    Accepted,
    Coordinator,
    Declare,
    Declared,
    Detach,
    Discharge,
    Disposition,
    Flow,
    Modified,
    Rejected,
    Released,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from broker_shim.amqp_1_0.definitions import SenderSettleMode
from broker_shim.amqp_1_0.primitives import Symbol
from broker_shim.broker.settings import BrokerSettings
from broker_shim.protocol_1_0.codec.encoder import write
from broker_shim.store.interface import BrokerStore
from tests.support.amqp.held_broker import HeldHouse, HeldPlace
from tests.support.amqp.link_clients import Client, House, Place

VALUE = b"\0\x53\x77"
TXN = Symbol("txn-id")
UNKNOWN = "amqp:transaction:unknown-id"


def filled(house: House, count: int = 3) -> House:
    """With so many messages on q."""
    publisher = Client(house, "publisher")
    publisher.attach("out", target=Target("q"), is_receiver=False)
    for number in range(count):
        publisher.deliver(b"%d" % number, f"message {number}")
    publisher.vanish()
    return house


@pytest.fixture
def house(tmp_path: Path) -> House:
    return filled(House(Place("recorded", tmp_path)))


class Acquirer(Client):
    """A client with a control link on handle 0 and a receiver of q on handle 1."""

    def __init__(self, house: House, name: str = "client", **fields: Any) -> None:
        super().__init__(house, name)
        self.attach("txn", 0, is_receiver=False, target=Coordinator())
        self.attach("in", 1, source=Source("q"), **fields)

    def declare(self, handle: int = 0) -> bytes:
        self.deliver_encoded(b"declare", VALUE + write(Declare()), handle)
        declared = self.take(Disposition).state
        assert isinstance(declared, Declared)
        return bytes(declared.txn_id)

    def discharge(self, txn_id: bytes, *, fail: bool = False) -> object:
        self.deliver_encoded(b"discharge", VALUE + write(Discharge(txn_id, fail)), 0)
        told = [frame for frame, _payload in self.taken(Disposition)]
        (answer,) = (frame.state for frame in told if frame.role)
        self.heard = [frame for frame in told if not frame.role]
        return answer

    def flow(self, credit: int, count: int = 0, **properties: object) -> list[Transfer]:
        """Give credit, counted from so many deliveries; what comes."""
        told = {Symbol(name.replace("_", "-")): each for name, each in properties.items()}
        out = self._frames_out
        self.send(Flow(0, 2048, out, 2048, 1, count, credit, properties=told or None))
        return [frame for frame, _payload in self.taken(Transfer)]

    def within(self, txn_id: bytes, delivery: Transfer, *, settled: bool = True) -> None:
        state = TransactionalState(txn_id, Accepted())
        self.dispose(delivery.delivery_id or 0, state, settled=settled)


def entries(store: BrokerStore) -> list[tuple[bool, int]]:
    """(is held, failed deliveries) of what is on q."""
    found = store.recover().entries["q"].values()
    return [(entry.acquired_by is not None, entry.delivery_count) for entry in found]


def test_what_is_acquired_says_so_and_is_given_back_by_a_rollback(house: House) -> None:
    client = Acquirer(house)
    txn_id = client.declare()
    first, second = client.flow(2, txn_id=txn_id)
    assert first.state == second.state == TransactionalState(txn_id)
    assert not first.settled
    client.within(txn_id, first)
    assert entries(house.store) == [(True, 0), (True, 0), (False, 0)]
    assert client.discharge(txn_id, fail=True) == Accepted()
    assert entries(house.store) == [(False, 1), (False, 1), (False, 0)]
    told = {each.first: each.state for each in client.heard}
    assert told == {second.delivery_id: Modified(delivery_failed=True)}
    again = client.flow(2, 2)
    assert [each.delivery_tag for each in again] == [first.delivery_tag, second.delivery_tag]
    assert {each.state for each in again} == {None}


def test_what_the_client_has_not_settled_in_it_is_given_back_too(house: House) -> None:
    client = Acquirer(house)
    txn_id = client.declare()
    (delivery,) = client.flow(1, txn_id=txn_id)
    client.within(txn_id, delivery, settled=False)
    client.discharge(txn_id, fail=True)
    assert entries(house.store)[0] == (False, 1)
    assert [each.state for each in client.heard] == [Modified(delivery_failed=True)]


def test_a_commit_leaves_with_the_link_what_was_not_decided(house: House) -> None:
    client = Acquirer(house)
    txn_id = client.declare()
    first, second = client.flow(2, txn_id=txn_id)
    client.within(txn_id, first)
    assert client.discharge(txn_id) == Accepted()
    assert entries(house.store) == [(True, 0), (False, 0)]
    client.dispose(second.delivery_id or 0, Accepted())
    assert entries(house.store) == [(False, 0)]


def test_a_discharge_clears_it_of_the_link_and_leaves_its_credit(house: House) -> None:
    client = Acquirer(house)
    txn_id = client.declare()
    assert len(client.flow(4, txn_id=txn_id)) == 3
    client.discharge(txn_id)
    filled(house, 1)
    ((later, _payload),) = client.taken(Transfer)
    assert later.state is None
    client.discharge(client.declare(), fail=True)
    assert [held for held, _count in entries(house.store)] == [True] * 4


def test_a_flow_without_properties_changes_nothing_one_with_another_does(house: House) -> None:
    client = Acquirer(house)
    first, second = client.declare(), client.declare()
    states = [each.state for each in client.flow(1, txn_id=first)]
    states += [each.state for each in client.flow(1, 1)]
    states += [each.state for each in client.flow(1, 2, txn_id=second)]
    assert [each.txn_id for each in states] == [first, first, second]
    client.discharge(first, fail=True)
    assert [held for held, _count in entries(house.store)] == [False, False, True]
    assert len(client.flow(1, 3, txn_id=None)) == 1
    client.discharge(second, fail=True)
    assert sorted(held for held, _count in entries(house.store)) == [False, False, True]


def test_two_flows_in_one_read_name_it(house: House) -> None:
    client = Acquirer(house)
    txn_id = client.declare()
    named = Flow(0, 2048, client._frames_out, 2048, 1, 0, 1, properties={TXN: txn_id})
    client.send(named, Flow(0, 2048, client._frames_out, 2048, 1, 0, 2))
    assert {each.state.txn_id for each, _payload in client.taken(Transfer)} == {txn_id}


def test_what_was_decided_in_no_transaction_stays_decided(house: House) -> None:
    client = Acquirer(house)
    txn_id = client.declare()
    first, second, third = client.flow(3, txn_id=txn_id)
    client.dispose(first.delivery_id or 0, Accepted())
    client.dispose(second.delivery_id or 0, Released())
    client.discharge(txn_id, fail=True)
    assert sorted(entries(house.store)) == [(False, 0), (False, 1)]
    assert [each.first for each in client.heard[-1:]] == [third.delivery_id]


def test_the_end_of_the_control_link_gives_back(house: House) -> None:
    client = Acquirer(house)
    client.flow(2, txn_id=client.declare())
    client.detach(0, closed=True)
    assert entries(house.store) == [(False, 1), (False, 1), (False, 0)]


def test_time_gives_back_what_a_client_forgot(house: House) -> None:
    client = Acquirer(house)
    txn_id = client.declare()
    client.flow(2, txn_id=txn_id)
    client.ours.transactions.tick(float("inf"))
    client.settle_down()
    assert entries(house.store) == [(False, 1), (False, 1), (False, 0)]
    assert isinstance(client.discharge(txn_id), Rejected)


def test_an_outcome_in_another_transaction_ends_the_control_link(house: House) -> None:
    client = Acquirer(house)
    client.attach("other", 2, is_receiver=False, target=Coordinator())
    acquiring, retiring = client.declare(), client.declare(2)
    (delivery,) = client.flow(1, txn_id=acquiring)
    client.within(retiring, delivery)
    detach = client.take(Detach)
    assert (detach.handle, detach.error.condition) == (2, "amqp:transaction:rollback")
    assert entries(house.store)[0] == (False, 1)
    client.discharge(acquiring, fail=True)
    assert entries(house.store)[0] == (False, 1)


@pytest.mark.parametrize("txn_id", [b"nothing", b"", "text", b"x" * 99])
def test_an_unknown_transaction_ends_the_link(house: House, txn_id: object) -> None:
    client = Acquirer(house)
    assert client.flow(2, txn_id=txn_id) == []
    assert client.take(Detach).error.condition == UNKNOWN
    assert not any(held for held, _count in entries(house.store))


def test_settled_deliveries_are_not_acquired_in_one(house: House) -> None:
    client = Acquirer(house, snd_settle_mode=SenderSettleMode.SETTLED)
    assert client.flow(2, txn_id=client.declare()) == []
    assert client.take(Detach).error.condition == "amqp:not-implemented"
    assert len(entries(house.store)) == 3


def test_an_acquisition_is_an_operation_of_the_transaction(tmp_path: Path) -> None:
    settings = BrokerSettings(max_transaction_operations=2)
    house = filled(House(Place("recorded", tmp_path), settings))
    client = Acquirer(house)
    txn_id = client.declare()
    assert len(client.flow(3, txn_id=txn_id)) == 3
    assert isinstance(client.discharge(txn_id), Rejected)
    assert entries(house.store) == [(False, 1)] * 3


def test_a_rollback_is_told_when_what_was_acquired_is_back_durably() -> None:
    house = HeldHouse(HeldPlace())
    filled(house, 2)
    client = Acquirer(house)
    txn_id = client.declare()
    client.flow(2, txn_id=txn_id)
    house.store.sink.is_holding = True
    client.deliver_encoded(b"discharge", VALUE + write(Discharge(txn_id, fail=True)), 0)
    told: list[bool] = []
    while house.store.sink.held:
        assert True not in told
        house.store.sink.tell()
        told += [frame.role for frame, _payload in client.taken(Disposition)]
    assert told == [False, False, True]
    assert entries(house.store) == [(False, 1), (False, 1)]
