"""Held back: new durable messages are refused on every road, and whatever takes messages is not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from broker_shim.errors import Full, InvalidRequest
from broker_shim.store.interface import MessageHeader, Queue
from sparkstore.core.records import Kind, Record
from sparkstore.core.xids import Xid
from tests.support.stores.raw_member import RawMember, create, enqueue
from tests.support.stores.services import Served, served
from tests.support.stores.stores import RecordedMessageStore, done

DURABLE = MessageHeader("raw", b"h")
XID = Xid(1, b"g", b"b")
WHY = "the disk is nearly full"


@pytest.fixture
def store() -> Iterator[RecordedMessageStore]:
    with closing(RecordedMessageStore([])) as there:
        done(there.create, Queue("q"))
        done(there.create, Queue("other"))
        yield there


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path / "root") as it:
        yield it


def test_a_transaction_that_brings_a_message_may_be_made_anew(store: RecordedMessageStore) -> None:
    message = store.message(DURABLE, b"x")
    store.machine.held_back = WHY
    transaction = store.begin()
    with pytest.raises(Full, match=WHY):
        done(store.enqueue, message, "q", transaction=transaction)
    with pytest.raises(Full, match=f"aborted: .*refused: {WHY}"):
        done(store.commit, transaction)
    store.machine.held_back = ""
    transaction = store.begin()
    with pytest.raises(InvalidRequest, match="make a new message"):
        done(store.enqueue, message, "q")
    done(store.enqueue, store.message(DURABLE, b"x"), "q", transaction=transaction)
    store.machine.held_back = WHY
    with pytest.raises(Full, match=WHY):
        done(store.commit, transaction)


def test_a_transaction_refused_for_another_reason_is_the_callers_fault(
    store: RecordedMessageStore,
) -> None:
    transaction = store.begin()
    with pytest.raises(InvalidRequest):
        done(store.dequeue, 7, "q", None, transaction=transaction)
    with pytest.raises(InvalidRequest, match="aborted"):
        done(store.commit, transaction)


def test_what_is_there_moves_in_a_transaction(store: RecordedMessageStore) -> None:
    message = store.message(DURABLE, b"x")
    done(store.enqueue, message, "q")
    store.machine.held_back = WHY
    transaction = store.begin()
    done(store.enqueue, message, "other", transaction=transaction)
    done(store.dequeue, message.message_id, "q", None, transaction=transaction)
    done(store.commit, transaction)
    entries = store.recover().entries
    assert ([*entries["q"]], [*entries["other"]]) == ([], [message.message_id])


def test_a_branch_that_was_promised_is_committed(store: RecordedMessageStore) -> None:
    message = store.message(DURABLE, b"x")
    transaction = store.begin()
    done(store.enqueue, message, "q", transaction=transaction)
    done(store.prepare, transaction, XID)
    store.machine.held_back = WHY
    done(store.commit_prepared, XID)
    assert [*store.recover().entries["q"]] == [message.message_id]


def test_of_a_member_new_messages_are_refused_and_others_are_not(there: Served) -> None:
    with RawMember(there.path) as member:
        member.hello()
        assert member.ask(1, create()) == []
        first = member.ids(2)
        assert member.ask(2, enqueue(first)) == []
        there.store._machine.held_back = WHY
        assert member.ask(3, enqueue(first + 1)) == [(3, "Full", WHY)]
        assert member.ask(4, Record(Kind.DEQUEUED, 0, "q", first)) == []
