"""Links suspended and resumed within their session or connection, whatever their durability.

AMQP 2.6.13: a terminus keeps its unsettled deliveries as long as it lives; durability says what
survives a crash.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import proton
import pytest

from broker_shim.amqp_1_0.composites import (
    Accepted,
    Attach,
    Coordinator,
    Discharge,
    Disposition,
    Received,
    Rejected,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from broker_shim.broker.settings import BrokerSettings
from broker_shim.protocol_1_0.codec.composites import encoded_composite
from broker_shim.protocol_1_0.codec.frames import transfer_frame
from broker_shim.store.interface import Queue
from tests.support.amqp.link_clients import Client, House, Place

MESSAGE = b"\0\x53\x77\xa1\x01a"
DECLARE = b"\0\x53\x77\0\x53\x31\x45"


@pytest.fixture(params=["memory", "recorded"])
def house(request: pytest.FixtureRequest, tmp_path: Path) -> House:
    return House(Place(request.param, tmp_path))


def publish(house: House, *bodies: str) -> None:
    client = Client(house, "publisher")
    client.attach("out", target=Target("q"), is_receiver=False)
    for number, body in enumerate(bodies):
        client.deliver(b"%d" % number, body)
    client.vanish()


def bodies(client: Client) -> list[Any]:
    return [body for _tag, body in client.transfers()]


def consumer(house: House, **fields: Any) -> tuple[Client, bytes]:
    """A client that has one of the messages, and its tag."""
    client = Client(house)
    client.attach("in", source=Source("q", **fields))
    client.credit(1)
    ((tag, _body),) = client.transfers()
    return client, tag


def others(house: House) -> list[Any]:
    """What anybody else gets."""
    client = Client(house, "other")
    client.attach("in", source=Source("q"))
    client.credit(10)
    got = bodies(client)
    client.vanish()
    return got


def sender(client: Client, unsettled: Any = None, mode: int = 0, **fields: Any) -> Any:
    target = Target("q", **fields)
    return client.attach(
        "out", target=target, is_receiver=False, unsettled=unsettled, rcv_settle_mode=mode
    )


def states(client: Client) -> list[tuple[Any, bool]]:
    return [(told.state, told.settled) for told, _payload in client.taken(Disposition)]


# -------------------------------------------------------------------------------- a client receives


@pytest.mark.parametrize("mode", [0, 1])
def test_what_a_suspended_consumer_holds_is_its_own_and_sent_again_as_the_same(
    house: House, mode: int
) -> None:
    publish(house, "a", "b")
    client, tag = consumer(house)
    client.detach()
    assert others(house) == ["b"]
    answer = client.attach("in", source=Source("q"), unsettled={tag: None}, rcv_settle_mode=mode)
    assert answer.unsettled == {tag: None}
    client.credit(1)
    ((transfer, _payload),) = client.taken(Transfer)
    assert (transfer.delivery_tag, transfer.resume) == (tag, True)


def test_a_message_group_stays_with_a_link_that_holds_one_of_it_through_a_restart(
    tmp_path: Path,
) -> None:
    queue = Queue("q", arguments={"message_groups": True})
    kept = House(Place("recorded", tmp_path), BrokerSettings(queues=(queue,)))
    client = Client(kept)
    sender(client)
    for number, group in enumerate(("g", "g", None)):
        message = proton.Message(str(number), durable=True, group_id=group)
        client.deliver_encoded(b"%d" % number, message.encode())
    source = Source("q", 2, "never")
    client.attach("in", 1, source=source, rcv_settle_mode=1)
    client.credit(1, 1)
    ((tag, body),) = client.transfers()
    assert body == "0"
    client.vanish()
    again = kept.restarted()
    assert others(again) == ["2"]
    back = Client(again)
    back.attach("in", source=source, rcv_settle_mode=1, unsettled={tag: None})
    back.credit(9)
    resumed = [told.resume for told, _payload in back.taken(Transfer)]
    assert resumed == [True, False, False], "the others gave theirs back"


def test_an_outcome_in_the_map_is_taken_and_the_delivery_settled(house: House) -> None:
    publish(house, "a")
    client, tag = consumer(house)
    client.detach()
    client.attach("in", source=Source("q"), unsettled={tag: Accepted()})
    ((transfer, payload),) = client.taken(Transfer)
    assert (transfer.resume, transfer.state, payload) == (True, Accepted(), b"")
    assert states(client) == [(Accepted(), True)]
    client.end_session()
    assert others(house) == []


@pytest.mark.parametrize("unsettled", [None, {}])
def test_what_its_receiver_does_not_name_is_sent_as_a_new_one(house: House, unsettled: Any) -> None:
    publish(house, "a")
    client, _tag = consumer(house)
    client.detach()
    client.attach("in", source=Source("q"), unsettled=unsettled)
    client.credit(1)
    ((transfer, _payload),) = client.taken(Transfer)
    assert not transfer.resume


def test_a_source_that_outlives_its_connection_keeps_what_it_holds(house: House) -> None:
    publish(house, "a")
    client, tag = consumer(house, expiry_policy="connection-close", timeout=60)
    client.vanish()
    assert others(house) == []
    back = Client(house)
    answer = back.attach("in", source=Source("q"), unsettled={tag: None})
    assert answer.unsettled == {tag: None}


def test_a_suspended_link_comes_back_as_a_browser_and_lets_go(house: House) -> None:
    publish(house, "a")
    client, tag = consumer(house)
    client.detach()
    answer = client.attach(
        "in", source=Source("q", distribution_mode="copy"), unsettled={tag: None}
    )
    assert answer.unsettled == {}
    assert others(house) == ["a"]


def declared(client: Client, handle: int) -> bytes:
    fields = {"target": Coordinator(), "is_receiver": False}
    client.attach("txn", handle, **fields)
    told = Transfer(handle, 0, b"d", 0)
    client.write(transfer_frame(0, told, len(DECLARE)) + DECLARE)
    ((state, _settled),) = states(client)
    txn_id: bytes = state.txn_id
    return txn_id


def discharged(client: Client, handle: int, txn_id: bytes) -> Any:
    body = encoded_composite(Discharge(txn_id, fail=False))
    payload = b"\0\x53\x77" + body
    told = Transfer(handle, 1, b"e", 0)
    client.write(transfer_frame(0, told, len(payload)) + payload)
    ((state, _settled),) = states(client)
    return state


@pytest.mark.parametrize("when", ["before", "after", "before and after"])
def test_a_disposition_in_a_transaction_counts_or_the_discharge_fails(
    house: House, when: str
) -> None:
    """Left out in silence, the message would come again to who was told that all was done."""
    publish(house, "a", "b")
    client = Client(house)
    client.attach("in", source=Source("q"))
    client.credit(1)
    ((transfer, _payload),) = client.taken(Transfer)
    txn_id = declared(client, 1)
    outcome = TransactionalState(txn_id, Accepted())
    if "before" in when:
        client.dispose(transfer.delivery_id, outcome, settled=False)
    client.detach()
    if "after" in when:
        client.dispose(transfer.delivery_id, outcome)
    state = discharged(client, 1, txn_id)
    client.end_session()
    if "before" in when:
        assert state == Accepted()
        assert others(house) == ["b"]
    else:
        assert state.error.condition == "amqp:transaction:rollback"
        assert sorted(others(house)) == ["a", "b"]


# ----------------------------------------------------------------------------------- a client sends


@pytest.mark.parametrize("mode", [0, 1])
def test_a_delivery_that_was_stored_after_its_link_was_suspended_is_known(
    house: House, mode: int
) -> None:
    client = Client(house)
    sender(client, mode=mode)
    with house.store_that_does_not_answer():
        client.deliver(b"T", "a")
        client.detach()
        told: dict[str, Any] = {
            "source": Source(),
            "target": Target("q"),
            "initial_delivery_count": 0,
        }
        client.send(
            Attach("out", 0, role=False, rcv_settle_mode=mode, unsettled={b"T": None}, **told)
        )
    client.settle_down()
    answer = client.take(Attach)
    assert answer.unsettled == {b"T": Accepted()}
    client.send_free(b"T", resume=True, settled=True, state=Accepted())
    client.detach()
    assert sender(client, {}, mode).unsettled == {}
    assert others(house) == ["a"]


def test_a_partial_delivery_is_in_the_map_and_stored_once_it_is_whole(house: House) -> None:
    client = Client(house)
    sender(client)
    client.begin_delivery(b"T")
    client.detach()
    answer = sender(client, {b"T": None})
    assert answer.unsettled == {b"T": Received(0, 0)}
    client.deliver(b"T", "whole", resume=True)
    assert (Accepted(), True) in states(client)
    assert others(house) == ["whole"]


def test_a_partial_delivery_that_its_sender_has_settled_is_forgotten(house: House) -> None:
    """A resumed delivery with a known outcome is settled by its transfer, and is no message."""
    client = Client(house)
    sender(client)
    client.begin_delivery(b"T")
    client.detach()
    sender(client, {b"T": Rejected()})
    client.send_free(b"T", resume=True, settled=True, state=Rejected())
    client.deliver(b"U", "next")
    assert house.broker.metrics.refused == 0
    client.detach()
    assert sender(client, {}).unsettled == {}
    assert others(house) == ["next"]


def test_mode_second_is_granted_on_every_target_and_the_sender_settles(house: House) -> None:
    client = Client(house)
    answer = sender(client, mode=1)
    assert answer.rcv_settle_mode == 1
    number = client.deliver(b"T", "a")
    client.deliver_encoded(b"bad", b"")
    client.deliver(b"F", "b", rcv_settle_mode=0)
    accepted, rejected, first = states(client)
    assert accepted == (Accepted(), False)
    assert (type(rejected[0]), rejected[1]) == (Rejected, False)
    assert first == (Accepted(), True)
    client.dispose(number, Accepted(), as_sender=True)
    client.detach()
    assert sender(client, {}, mode=1).unsettled == {}


def test_mode_second_is_granted_on_a_coordinator(house: House) -> None:
    client = Client(house)
    fields = {"target": Coordinator(), "is_receiver": False, "rcv_settle_mode": 1}
    assert client.attach("txn", **fields).rcv_settle_mode == 1
    client.write(transfer_frame(0, Transfer(0, 0, b"d", 0), len(DECLARE)) + DECLARE)
    ((_state, settled),) = states(client)
    assert not settled
