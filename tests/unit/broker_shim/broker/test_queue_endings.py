"""Queues that end: by an order or with their last user; what they held, and who has them alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_shim.amqp_1_0.composites import Detach
from broker_shim.broker.storage.header_reader import OnRead
from broker_shim.completion import OnComplete
from broker_shim.errors import Closed, CorruptData, InvalidRequest, Unavailable
from broker_shim.store.branch_store import Xid
from broker_shim.store.interface import MessageHeader, Queue
from sparkstore.core.records import Record
from sparkstore.operations.administration import AdminAction, Order
from tests.support.amqp.held_broker import HeldHouse, HeldPlace
from tests.support.amqp.link_clients import House, Place
from tests.support.amqp.orders import ask, bodies, consumer, entries, publish
from tests.support.stores.stores import RecordedMessageStore, done

HEADER = MessageHeader("raw", b"h", durable=True)
DELETE = Order(AdminAction.DELETE_QUEUE, "q", force=True)


@pytest.fixture
def house(tmp_path: Path) -> House:
    """A broker over a store of tier 2; `q` has an alternate exchange with the queue `alt`."""
    return prepared(House(Place("recorded", tmp_path)))


def prepared(house: House) -> House:
    create(house, "alt")
    ask(house, Order(AdminAction.ADD_BINDING, "alt", "amq.fanout"))
    create(house, "q", alternate_exchange="amq.fanout")
    return house


def create(house: House, name: str, **arguments: object) -> None:
    ask(house, Order(AdminAction.CREATE_QUEUE, name, arguments=arguments))


# ------------------------------------------------------------------------- alternate exchange


def test_what_a_deleted_queue_held_goes_where_its_alternate_exchange_says(house: House) -> None:
    publish(house, "q", "a", "b", "c")
    client = consumer(house, credit=1)
    assert bodies(client) == ["a"]
    told = ask(house, DELETE)
    assert (told["messages_rerouted"], told["alternate_exchange"]) == (3, "amq.fanout")
    again = house.restarted()
    assert "q" not in again.broker.queues
    assert sorted(bodies(consumer(again, "alt", credit=5))) == ["a", "b", "c"]
    detail = again.broker.calls.entry("alt", 2)
    assert detail is not None
    assert '"x-opt-death-reason":["string","queue-deleted"]' in (detail.detail or "")


def test_a_message_without_a_way_out_goes_with_its_queue(house: House) -> None:
    ask(house, Order(AdminAction.REMOVE_BINDING, "alt", "amq.fanout"))
    publish(house, "q", "a")
    ask(house, DELETE)
    assert entries(house, "alt") == []
    assert "q" not in house.store.recover().entries


def test_a_message_that_cannot_be_read_keeps_no_other_on_its_queue(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(house, "q", *"abcdefgh")
    read_headers = house.broker.calls.read_headers

    def damaged(message_ids: Sequence[int], on_read: OnRead) -> None:
        if 3 in message_ids:
            on_read(CorruptData("message 3 is damaged"), [])
        else:
            read_headers(message_ids, on_read)

    monkeypatch.setattr(house.broker.calls, "read_headers", damaged)
    ask(house, DELETE)
    assert entries(house, "alt") == [1, 2, 4, 5, 6, 7, 8]
    assert "q" not in house.store.recover().entries


def test_a_queue_made_anew_meanwhile_is_another(house: House) -> None:
    publish(house, "q", "a")
    with house.store_that_does_not_answer():
        house.broker.administration.order(DELETE, lambda _error, _told: None)
        house.broker.create_queue(Queue("q"), lambda _error: None)
        assert "q" not in house.broker.queues
    assert "q" in house.broker.queues
    assert (entries(house), entries(house, "alt")) == ([], [1])


def test_a_queue_that_two_made_and_that_goes_before_the_second_is_told_is_made_anew() -> None:
    """The fuzzing of AMQP 1.0 found this: it was there without being in the store, and broke."""
    house = HeldHouse(HeldPlace())
    told: list[str] = []
    house.store.sink.is_holding = True
    for name in ("first", "second"):
        house.broker.create_queue(Queue("t"), lambda _error, name=name: told.append(name))
    house.store.sink.tell()
    house.run()
    house.broker.destroy_queue("t", lambda _error: told.append("gone"))
    house.store.sink.tell()
    house.run()
    assert told == ["first"]
    assert "t" not in house.broker.queues
    house.store.sink.tell()
    house.run()
    assert told == ["first", "gone"]
    house.store.sink.tell()
    house.run()
    assert told == ["first", "gone", "second"]
    assert "t" in house.broker.queues
    assert "t" in {queue.name for queue in house.store.recover().queues}


def test_while_the_store_has_no_room_a_deleted_queue_waits_and_loses_nothing(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(house, "q", "a")
    with monkeypatch.context() as patched:
        patched.setattr(
            house.calls,
            "transact",
            lambda _steps, done: house.calls.answer((done, Unavailable("no room"))),
        )
        house.broker.destroy_queue("q")
        house.run()
        assert entries(house) == [1]
    house.run_delayed()
    assert (entries(house, "alt"), "q" in house.store.recover().entries) == ([1], False)


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 7), st.integers(0, 9))
def test_killed_after_any_call_a_message_is_on_its_queue_or_where_it_goes_and_not_lost(
    count: int, calls: int
) -> None:
    place = Place("recorded", Path())
    house = prepared(House(place))
    publish(house, "q", *(f"m{number}" for number in range(count)))
    assert isinstance(house.store, RecordedMessageStore)
    append, ends = house.store.sink.append, [len(place._log)]

    def noted(records: Sequence[Record], on_complete: OnComplete) -> int:
        position = append(records, on_complete)
        ends.append(len(place._log))
        return position

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(house.store.sink, "append", noted)
        patched.setattr("broker_shim.broker.orders.alternate_routing.TURN_IDS", 2)
        ask(house, DELETE)
    del place._log[ends[min(calls, len(ends) - 1)] :]  # what is written together is there or not
    again = house.restarted()
    there = entries(again) if "q" in again.broker.queues else []
    assert sorted([*there, *entries(again, "alt")]) == [*range(1, count + 1)]
    again.close()


# ------------------------------------------------------------------------------ auto-delete


def test_a_queue_goes_with_its_last_consumer_and_not_before(house: House) -> None:
    create(house, "auto", auto_delete=True)
    assert "auto" in house.broker.queues  # it had no consumer yet
    first, second = (consumer(house, "auto", name=name) for name in ("1", "2"))
    first.vanish()
    house.run_delayed()
    assert "auto" in house.broker.queues
    second.send(Detach(0, closed=True))
    house.run_delayed()
    assert "auto" not in house.broker.queues
    assert not house.store.recover().configured
    create(house, "auto", auto_delete=True)
    again = house.restarted()
    assert "auto" in again.broker.queues  # it is another, and had none


def test_a_consumer_that_comes_in_time_keeps_the_queue(house: House) -> None:
    create(house, "auto", auto_delete=True)
    consumer(house, "auto").vanish()
    consumer(house, "auto", name="next")
    house.run_delayed()
    assert "auto" in house.broker.queues


def test_a_start_ends_what_had_a_consumer_when_the_broker_was_killed(house: House) -> None:
    for name in ("used", "unused"):
        create(house, name, auto_delete=True)
    create(house, "with-alternate", auto_delete=True, alternate_exchange="amq.fanout")
    publish(house, "with-alternate", "a")
    for name in ("used", "with-alternate"):
        consumer(house, name, name=name)
    again = house.restarted()
    assert {*again.broker.queues} == {"q", "alt", "unused"}
    assert bodies(consumer(again, "alt", credit=1)) == ["a"]
    assert not again.store.recover().configured


def test_a_queue_may_become_one_that_goes_while_it_has_a_consumer(house: House) -> None:
    client = consumer(house)
    ask(house, Order(AdminAction.ALTER_QUEUE, "q", arguments={"auto_delete": True}))
    client.vanish()
    house.run_delayed()
    assert "q" not in house.broker.queues


# ----------------------------------------------------------------------------------- claims


def test_a_claimed_queue_is_one_sessions_alone_until_that_ends(house: House) -> None:
    claims = house.broker.claims
    claims.claim("q", "session 1")
    claims.claim("q", "session 1")
    with pytest.raises(InvalidRequest, match="another session's alone"):
        claims.claim("q", "session 2")
    assert claims.may_use("q", "session 1")
    assert not claims.may_use("q", "session 2")
    refused = consumer(house)
    [detach] = refused.taken(Detach)
    assert detach[0].error.condition == "amqp:resource-locked"
    claims.end("session 1")
    house.run_delayed()
    assert "q" in house.broker.queues
    assert house.broker.claims.may_use("q", "session 2")


def test_what_somebody_consumes_from_is_not_claimed_nor_what_is_not_there(house: House) -> None:
    client = consumer(house)
    with pytest.raises(InvalidRequest, match="has 1 consumers: nobody can have it alone"):
        house.broker.claims.claim("q", 1)
    client.vanish()
    with pytest.raises(InvalidRequest, match="unknown queue 'absent'"):
        house.broker.claims.claim("absent", 1)


def test_a_claimed_queue_that_deletes_itself_goes_with_its_session(house: House) -> None:
    create(house, "auto", auto_delete=True)
    house.broker.claims.claim("auto", 1)
    house.run()
    assert house.store.recover().configured
    house.broker.claims.end(1)
    house.run_delayed()
    assert "auto" not in house.broker.queues


def test_a_claimed_queue_that_deletes_itself_is_gone_after_a_crash(house: House) -> None:
    create(house, "auto", auto_delete=True)
    house.broker.claims.claim("auto", 1)
    house.run()
    again = house.restarted()
    assert "auto" not in again.broker.queues


# ------------------------------------------------------------------------ branches in doubt


def test_a_queue_that_a_branch_in_doubt_uses_stays_until_that_is_decided(house: House) -> None:
    store, xid = house.store, Xid(1, b"g", b"b")
    assert isinstance(store, RecordedMessageStore)
    transaction = store.begin()
    done(store.enqueue, store.message(HEADER, b"in doubt"), "q", transaction=transaction)
    done(store.prepare, transaction, xid)
    told: list[object] = []
    house.broker.destroy_queue("q", told.append)
    house.run()
    assert ["used by a prepared branch" in str(each) for each in told] == [True]
    client = consumer(house, credit=1)
    with pytest.raises(InvalidRequest, match="used by a prepared branch"):
        ask(house, DELETE)
    assert house.broker.queues["q"].consumer_count == 1
    client.vanish()
    done(store.rollback_prepared, xid)
    house.broker.destroy_queue("q", told.append)
    house.run()
    assert told[1:] == [None]


def test_a_queue_that_is_destroyed_at_a_closed_store_ends_without_a_word_of_branches(
    house: House,
) -> None:
    house.store.close()
    told: list[object] = []
    house.broker.destroy_queue("q", told.append)
    house.run()
    assert "q" not in house.broker.queues
    assert [type(each) for each in (*told, *house.fatal)] == [Closed]
