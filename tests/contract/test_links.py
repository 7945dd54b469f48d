"""What every `BrokerStore` promises of links and their unsettled deliveries, by tier."""

from __future__ import annotations

from typing import Any

import pytest

from broker_shim.durability import TerminusDurability
from broker_shim.errors import InvalidRequest
from broker_shim.store.interface import (
    BrokerStore,
    LinkKey,
    MessageHeader,
    Queue,
    StoredMessage,
)
from broker_shim.store.json.json_store import JsonMessageStore
from sparkstore.core.link_records import link_text
from tests.support.stores.stores import Home, ServedMessageStore, done

SUB = LinkKey("client '1'", 'sub","x', "sender")
IN = LinkKey("client '1'", 'sub","x', "receiver")
NONE, CONFIGURATION, UNSETTLED_STATE = TerminusDurability
ACCEPTED = {"outcome": "accepted", "queue": "q", "message_id": 7}


def terminus(durability: int = 2, **more: Any) -> dict[str, Any]:
    """What `attach` is told."""
    source = {"address": "späť 🦊", "filter": [["selector", "a = 'b'"]]}
    return {"version": 1, "source": source, "target": None, "durability": durability, **more}


def tier_of(home: Home) -> TerminusDurability:
    """The highest that the store keeps links at: the JSON store keeps them in another file."""
    return NONE if isinstance(home.store, JsonMessageStore) else home.tier


def unsettled(store: BrokerStore) -> dict[LinkKey, dict[bytes, Any]]:
    """Every delivery that the store remembers."""
    return {key: dict(states) for key, states in store.recover().unsettled.items()}


def test_a_link_is_there_as_it_was_attached(store: BrokerStore) -> None:
    done(store.attach, SUB, terminus())
    done(store.attach, IN, terminus(0))
    assert store.recover().links == {SUB: terminus(), IN: terminus(0)}
    done(store.attach, SUB, terminus(expiry_policy="never"))
    assert store.recover().links[SUB] == terminus(expiry_policy="never")


def test_a_link_that_is_detached_is_kept_and_one_that_is_closed_is_gone(
    store: BrokerStore,
) -> None:
    for key in (SUB, IN):
        done(store.attach, key, terminus())
        done(store.unsettled, key, b"t", None)
    done(store.detach, SUB, closed=False)
    done(store.detach, SUB, closed=False)
    done(store.detach, IN, closed=True)
    assert store.recover().links == {SUB: terminus()}
    assert unsettled(store) == {SUB: {b"t": None}}
    done(store.detach, SUB, closed=True)
    assert (store.recover().links, unsettled(store)) == ({}, {})


def test_a_delivery_is_remembered_until_it_is_settled(store: BrokerStore) -> None:
    done(store.attach, IN, terminus())
    for tag in (b"", b"\x00\xff", b"3"):
        done(store.unsettled, IN, tag, None)
    done(store.unsettled, IN, b"3", ACCEPTED)
    assert unsettled(store) == {IN: {b"": None, b"\x00\xff": None, b"3": ACCEPTED}}
    done(store.settle, IN, [b"", b"", b"never there", b"\x00\xff"])
    assert unsettled(store) == {IN: {b"3": ACCEPTED}}
    done(store.attach, IN, terminus(n=2))
    assert unsettled(store) == {IN: {b"3": ACCEPTED}}
    done(store.settle, IN, [])
    done(store.settle, IN, [b"3"])
    assert unsettled(store) == {}


@pytest.mark.parametrize("durability", [0, 1, 2])
def test_what_survives_a_restart_is_what_the_tier_promises(home: Home, durability: int) -> None:
    store = home.store
    done(store.attach, IN, terminus(durability))
    done(store.unsettled, IN, b"t", ACCEPTED)
    done(store.unsettled, IN, b"u", None)
    done(store.settle, IN, [b"u"])
    done(store.attach, SUB, terminus(durability))
    done(store.detach, SUB, closed=True)
    granted = min(durability, tier_of(home))
    for _ in range(2):
        store = home.reopen()
        assert store.recover().links == ({IN: terminus(durability)} if granted else {})
        assert unsettled(store) == ({IN: {b"t": ACCEPTED}} if granted == 2 else {})


def test_a_link_whose_tier_changes_is_another_one(home: Home) -> None:
    for durability in (2, 0, 1, 2):
        done(home.store.attach, IN, terminus(durability))
        assert unsettled(home.store) == {} or tier_of(home) == NONE
        done(home.store.unsettled, IN, b"t", ACCEPTED)
    kept = tier_of(home) == UNSETTLED_STATE
    assert unsettled(home.reopen()) == ({IN: {b"t": ACCEPTED}} if kept else {})
    if kept:
        done(home.store.attach, IN, terminus(0))
        assert home.reopen().recover().links == {}


@pytest.mark.parametrize(
    "wrong",
    [{"version": 2}, {"version": None}, {"source": "q"}, {"target": 1}, {"durability": None}],
)
def test_a_link_of_which_no_reader_could_tell_the_termini_is_refused(
    store: BrokerStore, wrong: dict[str, Any]
) -> None:
    with pytest.raises(InvalidRequest):
        done(store.attach, SUB, {**terminus(), **wrong})
    (name,) = wrong
    without = {key: value for key, value in terminus().items() if key != name}
    with pytest.raises(InvalidRequest):
        done(store.attach, SUB, without)
    assert store.recover().links == {}


def message(store: BrokerStore) -> StoredMessage:
    """A new one."""
    return store.message(MessageHeader(header=b"h"), b"body")


def test_a_message_and_its_delivery_are_stored_together(home: Home) -> None:
    store = home.store
    done(store.create, Queue("q"))
    done(store.attach, IN, terminus())
    for tag, ends in ((b"kept", store.commit), (b"undone", store.abort)):
        transaction, new = store.begin(), message(store)
        done(store.enqueue, new, "q", transaction=transaction)
        done(store.unsettled, IN, tag, ACCEPTED, transaction=transaction)
        assert tag not in unsettled(store).get(IN, {})
        done(ends, transaction)
    assert unsettled(store) == {IN: {b"kept": ACCEPTED}}
    assert len(store.recover().entries["q"]) == 1
    store = home.reopen()
    kept = tier_of(home) == UNSETTLED_STATE
    assert unsettled(store) == ({IN: {b"kept": ACCEPTED}} if kept else {})
    assert len(store.recover().entries.get("q", ())) == kept


def test_a_transaction_forgets_what_it_remembered(store: BrokerStore) -> None:
    done(store.attach, IN, terminus())
    done(store.unsettled, IN, b"old", None)
    transaction = store.begin()
    done(store.unsettled, IN, b"new", None, transaction=transaction)
    done(store.settle, IN, [b"old", b"new", b"?"], transaction=transaction)
    assert unsettled(store) == {IN: {b"old": None}}
    done(store.commit, transaction)
    assert unsettled(store) == {}


def test_a_link_that_is_closed_before_the_commit_takes_nothing_else_with_it(
    store: BrokerStore,
) -> None:
    done(store.create, Queue("q"))
    done(store.attach, IN, terminus())
    transaction = store.begin()
    done(store.enqueue, message(store), "q", transaction=transaction)
    done(store.unsettled, IN, b"t", None, transaction=transaction)
    done(store.detach, IN, closed=True)
    done(store.commit, transaction)
    assert (len(store.recover().entries["q"]), unsettled(store)) == (1, {})


def test_what_a_durable_link_acquired_it_holds_after_a_restart(home: Home) -> None:
    """It is no prefix's, so that it may come back at another member of the service."""
    store = home.store
    done(store.create, Queue("q"))
    done(store.attach, SUB, terminus())
    new = message(store)
    done(store.enqueue, new, "q")
    done(store.acquire, new.message_id, "q", link_text(SUB))
    store = home.reopen()
    if tier_of(home) == UNSETTLED_STATE:
        assert store.recover().entries["q"][new.message_id].acquired_by == link_text(SUB)
        if isinstance(store, ServedMessageStore):
            there = store.served.recover().entries["q"][new.message_id]
            assert there.acquired_by == link_text(SUB)
        done(store.dequeue, new.message_id, "q", link_text(SUB))
        assert len(store.recover().entries["q"]) == 0


@pytest.mark.parametrize(
    ("key", "detail"),
    [
        (SUB._replace(name="half \ud83e"), terminus()),
        (SUB._replace(remote_container_id="c" * 10_001), terminus()),
        (SUB._replace(role="both"), terminus()),
        (SUB, {}),
        (SUB, terminus(3)),
        (SUB, terminus(source={"number": float("nan")})),
    ],
)
def test_a_link_that_cannot_be_kept_is_refused(
    store: BrokerStore, key: LinkKey, detail: dict[str, Any]
) -> None:
    done(store.attach, IN, terminus())
    with pytest.raises(InvalidRequest):
        done(store.attach, key, detail)
    assert store.recover().links == {IN: terminus()}


def test_calls_about_a_link_that_is_not_there_are_refused(store: BrokerStore) -> None:
    done(store.attach, IN, terminus())
    with pytest.raises(InvalidRequest):
        done(store.detach, SUB, closed=False)
    with pytest.raises(InvalidRequest):
        done(store.unsettled, SUB, b"t", None)
    with pytest.raises(InvalidRequest):
        done(store.settle, SUB, [])
    with pytest.raises(InvalidRequest):
        done(store.unsettled, IN, b"t" * 33, None)
    with pytest.raises(InvalidRequest):
        done(store.unsettled, IN, b"t", {"not": object()})
    transaction = store.begin()
    with pytest.raises(InvalidRequest):
        done(store.unsettled, SUB, b"t", None, transaction=transaction)
    with pytest.raises(InvalidRequest):
        done(store.commit, transaction)
    assert (store.recover().links, unsettled(store)) == ({IN: terminus()}, {})
