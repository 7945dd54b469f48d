"""Many calls in one, of every `BrokerStore`: each for itself, in order, told together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from broker_shim.durability import TerminusDurability
from broker_shim.errors import Closed, InvalidRequest, StoreError
from broker_shim.store.interface import BrokerStore, NewMessageRun, Queue
from broker_shim.store.protocol import MAX_BATCH
from tests.support.stores.calls import HEADER
from tests.support.stores.stores import MAX_MESSAGE_BYTES, Home, done, outcomes


def new(count: int, queue: str = "q") -> NewMessageRun:
    """So many messages that share a header."""
    return NewMessageRun((HEADER,), (b"body",) * count, queue)


@pytest.fixture
def q(store: BrokerStore) -> BrokerStore:
    """The store, with queues `q` and `other`."""
    for name in ("q", "other"):
        done(store.create, Queue(name))
    return store


def test_of_many_new_messages_each_is_put_or_refused_for_itself_in_order(q: BrokerStore) -> None:
    strange: Any = "no message"
    messages = [
        (HEADER, b"body"),
        (HEADER, bytes(MAX_MESSAGE_BYTES + 1)),
        (strange, b"body"),
        (HEADER, bytes(MAX_MESSAGE_BYTES)),
        (HEADER._replace(correlation_id="\ud800"), b"body"),
        (HEADER, strange),
        (HEADER._replace(protocol=None), b"body"),
        (HEADER, b"body"),
    ]
    ids, told = outcomes(q.enqueue_new, NewMessageRun(*zip(*messages, strict=True), "q"))
    refused = "InvalidRequest"
    assert told == ["", refused, refused, "", refused, refused, refused, ""]
    assert [*q.recover().entries["q"]] == [ids[0], ids[3], ids[7]]
    assert q.load(ids[7]).body == b"body"
    assert len(q.load(ids[3]).body) == MAX_MESSAGE_BYTES
    assert outcomes(q.enqueue_new, new(2, "unknown"))[1] == [refused] * 2


def test_a_batch_may_be_larger_than_what_is_sent_at_once(q: BrokerStore) -> None:
    count = 2 * MAX_BATCH + 1
    ids, told = outcomes(q.enqueue_new, new(count))
    assert told == [""] * count
    assert [*q.recover().entries["q"]] == [*ids]
    assert outcomes(q.acquire_each, ids, "q", "me")[1] == told
    assert outcomes(q.dequeue_each, ids, "q", "me")[1] == told
    assert [*q.recover().entries["q"]] == []


def test_of_many_entries_each_is_taken_or_refused_for_itself(q: BrokerStore) -> None:
    (first, second, third), _ = outcomes(q.enqueue_new, new(3))
    done(q.acquire, second, "q", "another")
    asked: list[Any] = [first, second, first, "no id", 1 << 70, third]
    refused, held = "InvalidRequest", "NotAcquired"
    assert outcomes(q.acquire_each, asked, "q", "me")[1] == ["", held, held, refused, refused, ""]
    assert outcomes(q.dequeue_each, asked, "q", "me")[1] == [
        "",
        held,
        refused,
        refused,
        refused,
        "",
    ]
    assert q.recover().entries["q"][second].acquired_by == "another"
    assert [*q.recover().entries["q"]] == [second]


def test_of_many_entries_each_is_given_back_or_refused_for_itself(q: BrokerStore) -> None:
    ids, _ = outcomes(q.enqueue_new, new(6))
    outcomes(q.acquire_each, ids[:5], "q", "me")
    done(q.acquire, ids[5], "q", "another")

    def released(asked: Sequence[Any], *, failed: bool) -> list[str]:
        def call(*terms: Any) -> None:
            q.release_each(*terms, delivery_failed=failed)

        return outcomes(call, asked, "q", "me")[1]

    assert released(ids[:3], failed=True) == ["", "", ""]
    refused, held = "InvalidRequest", "NotAcquired"
    asked: list[Any] = [ids[3], ids[0], "no id", ids[5], ids[3]]
    assert released(asked, failed=False) == ["", refused, refused, held, refused]
    entries = [q.recover().entries["q"][message_id] for message_id in ids]
    holders = [entry.acquired_by for entry in entries]
    assert holders == [None, None, None, None, "me", "another"]
    assert [entry.delivery_count for entry in entries] == [1, 1, 1, 0, 0, 0]


def test_a_whole_batch_is_refused_for_what_all_of_it_shares(q: BrokerStore) -> None:
    ids, _ = outcomes(q.enqueue_new, new(2))
    nobody: Any = 5
    assert outcomes(q.acquire_each, ids, "unknown", "me")[1] == ["InvalidRequest"] * 2
    assert outcomes(q.acquire_each, ids, "q", nobody)[1] == ["InvalidRequest"] * 2
    assert outcomes(q.dequeue_each, ids, "q", nobody)[1] == ["InvalidRequest"] * 2


def test_a_batch_survives_a_restart(home: Home) -> None:
    done(home.store.create, Queue("q"))
    ids, _ = outcomes(home.store.enqueue_new, new(3))
    outcomes(home.store.dequeue_each, ids[:1], "q", None)
    outcomes(home.store.acquire_each, ids[1:2], "q", "me")
    home.reopen()
    if home.tier is TerminusDurability.UNSETTLED_STATE:
        assert [*home.store.recover().entries["q"]] == [*ids[1:]]


def test_a_closed_store_takes_no_batch(home: Home) -> None:
    home.store.close()
    for call in (
        lambda: home.store.enqueue_new(new(1), _nobody),
        lambda: home.store.dequeue_each([1], "q", "me", _nobody),
    ):
        with pytest.raises(Closed):
            call()


def test_no_batch_is_of_nothing(q: BrokerStore) -> None:
    wrong: list[Any] = [new(0), [], NewMessageRun((HEADER,) * 2, (b"body",) * 3, "q"), "text"]
    wrong += [NewMessageRun("text", (b"body",) * 4, "q"), NewMessageRun((HEADER,), b"body", "q")]  # type: ignore[arg-type]
    for messages in wrong:
        with pytest.raises(InvalidRequest):
            q.enqueue_new(messages, _nobody)


def _nobody(_outcomes: Sequence[StoreError | None]) -> None:
    """Nobody waits."""
