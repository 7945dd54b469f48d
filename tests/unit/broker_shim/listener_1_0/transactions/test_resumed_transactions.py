"""Transactions and links that outlive their connection: what is undone is still to be resumed."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_shim.amqp_1_0.composites import (
    Accepted,
    Coordinator,
    Declare,
    Declared,
    Discharge,
    Disposition,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from broker_shim.protocol_1_0.codec.encoder import write
from tests.support.amqp.link_clients import Client, House, Place

VALUE = b"\0\x53\x77"
ORDERS = pytest.mark.parametrize("coordinator_first", [True, False])


@pytest.fixture
def house(tmp_path: Path) -> House:
    """A broker over a store of tier 2, with two messages on q."""
    it = House(Place("recorded", tmp_path))
    publisher = Client(it, "publisher")
    publisher.attach("out", target=Target("q"), is_receiver=False)
    for number in range(2):
        publisher.deliver(b"%d" % number, f"message {number}")
    publisher.vanish()
    return it


def durable() -> Source:
    return Source("q", durable=2, expiry_policy="never")


class Transacting(Client):
    """A client with a coordinator on handle 0 and a durable receiver on handle 1."""

    def __init__(self, house: House, *, coordinator_first: bool = True) -> None:
        super().__init__(house)
        for is_coordinator in (coordinator_first, not coordinator_first):
            if is_coordinator:
                self.attach("txn", 0, is_receiver=False, target=Coordinator())
            else:
                self.attach("in", 1, source=durable())
        self.credit(2, 1)

    def declare(self) -> bytes:
        self.deliver_encoded(b"declare", VALUE + write(Declare()), 0)
        declared = self.take(Disposition).state
        assert isinstance(declared, Declared)
        return bytes(declared.txn_id)

    def discharge(self, txn_id: bytes) -> object:
        self.deliver_encoded(b"discharge", VALUE + write(Discharge(txn_id)), 0)
        return self.take(Disposition).state

    def received(self) -> list[Transfer]:
        return [transfer for transfer, _payload in self.taken(Transfer)]

    def entries(self) -> list[tuple[bool, int]]:
        """(is held, failed deliveries) of what is on q."""
        found = self.house.store.recover().entries["q"].values()
        return [(entry.acquired_by is not None, entry.delivery_count) for entry in found]


def accepted_within(txn_id: bytes) -> TransactionalState:
    return TransactionalState(txn_id, Accepted())


@ORDERS
def test_what_a_lost_client_had_not_settled_in_a_transaction_waits_for_it(
    house: House, *, coordinator_first: bool
) -> None:
    client = Transacting(house, coordinator_first=coordinator_first)
    first, second = client.received()
    txn_id = client.declare()
    client.dispose(first.delivery_id, accepted_within(txn_id))
    client.dispose(second.delivery_id, accepted_within(txn_id), settled=False)
    client.vanish()
    assert client.entries() == [(False, 1), (True, 0)]
    back = Client(house)
    unsettled = {second.delivery_tag: accepted_within(txn_id)}
    answer = back.attach("in", source=durable(), unsettled=unsettled)
    assert answer.unsettled == {second.delivery_tag: None}
    back.credit(5)
    transfers = [transfer for transfer, _payload in back.taken(Transfer)]
    resumed = next(each for each in transfers if each.resume)
    assert resumed.delivery_tag == second.delivery_tag
    back.dispose(resumed.delivery_id, Accepted())
    assert [count for _held, count in client.entries()] == [1]


def test_what_was_committed_is_not_resumed(house: House) -> None:
    client = Transacting(house)
    first, second = client.received()
    txn_id = client.declare()
    for transfer in (first, second):
        client.dispose(transfer.delivery_id, accepted_within(txn_id), settled=False)
    assert client.discharge(txn_id) == Accepted()
    client.vanish()
    assert client.entries() == []
    back = Client(house)
    unsettled = {each.delivery_tag: accepted_within(txn_id) for each in (first, second)}
    back.attach("in", source=durable(), unsettled=unsettled)
    back.credit(5)
    assert back.taken(Transfer) == []


def test_a_kill_undoes_what_was_settled_and_keeps_what_was_not(house: House) -> None:
    client = Transacting(house)
    first, second = client.received()
    txn_id = client.declare()
    client.dispose(first.delivery_id, accepted_within(txn_id))
    client.dispose(second.delivery_id, accepted_within(txn_id), settled=False)
    again = house.restarted()
    back = Client(again)
    back.attach("in", source=durable(), unsettled={second.delivery_tag: None})
    back.credit(5)
    transfers = [transfer for transfer, _payload in back.taken(Transfer)]
    assert sorted(each.resume for each in transfers) == [False, True]
    for transfer in transfers:
        back.dispose(transfer.delivery_id, Accepted())
    assert len(again.store.recover().entries["q"]) == 0


def test_a_message_sent_in_a_transaction_on_a_durable_link_is_there_once_it_is_committed(
    house: House,
) -> None:
    target = Target("q", durable=2, expiry_policy="never")
    client = Transacting(house)
    client.attach("to", 2, is_receiver=False, target=target)
    txn_id = client.declare()
    client.deliver(b"sent", "in a transaction", 2, state=TransactionalState(txn_id))
    assert client.take(Disposition).state == accepted_within(txn_id)
    assert len(client.entries()) == 2
    assert client.discharge(txn_id) == Accepted()
    assert len(client.entries()) == 3
    again = house.restarted()
    found = again.store.recover().entries["q"]
    assert again.store.load(max(found)).body == b"in a transaction"
    assert len(found) == 3
