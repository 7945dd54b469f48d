"""What every `BrokerStore` promises of a broker's configuration: kept as wiring is, by tier."""

from __future__ import annotations

from typing import Any

import pytest

from broker_shim.durability import TerminusDurability
from broker_shim.errors import InvalidRequest
from broker_shim.store.interface import BrokerStore, Exchange, Queue
from tests.support.stores.stores import Home, done

KEPT = TerminusDurability.CONFIGURATION
HOST = {"type": "VirtualHost", "attributes": {"name": "späť 🦊", "queues": [1, None, 2.5, True]}}


def configured(store: BrokerStore) -> dict[tuple[str, str], Any]:
    return dict(store.recover().configured)


def test_an_object_is_there_as_it_was_given(store: BrokerStore) -> None:
    done(store.configure, "link", "a", HOST)
    done(store.configure, "link", "", {})
    assert configured(store) == {("link", "a"): HOST, ("link", ""): {}}


def test_an_object_given_again_is_replaced(store: BrokerStore) -> None:
    done(store.configure, "link", "a", HOST)
    done(store.configure, "link", "a", {"n": 2})
    done(store.configure, "xid", "a", {"n": 3})
    assert configured(store) == {("link", "a"): {"n": 2}, ("xid", "a"): {"n": 3}}


def test_an_object_is_removed_and_one_that_is_not_there_may_be(store: BrokerStore) -> None:
    done(store.configure, "link", "a", HOST)
    done(store.configure, "link", "b", HOST)
    done(store.configure, "link", "a", None)
    done(store.configure, "link", "a", None)
    done(store.configure, "?", "?", None)
    assert configured(store) == {("link", "b"): HOST}


def test_what_survives_a_restart_is_what_the_tier_promises(home: Home) -> None:
    for number in (1, 2):
        done(home.store.configure, "link", "a", {"n": number})
    done(home.store.configure, "link", "gone", HOST)
    done(home.store.configure, "link", "gone", None)
    survived = {("link", "a"): {"n": 2}} if home.tier >= KEPT else {}
    assert configured(home.reopen()) == survived
    assert configured(home.reopen()) == survived


def test_an_object_is_no_exchange_and_no_queue(home: Home) -> None:
    """Category and key may have the names of wiring; each goes alone."""
    done(home.store.create, Exchange("same", "topic"))
    done(home.store.create, Queue("same"))
    done(home.store.configure, "same", "same", HOST)
    done(home.store.destroy, Exchange("same", "topic"))
    store = home.reopen()
    found = store.recover()
    assert found.exchanges == []
    assert [queue.name for queue in found.queues] == (["same"] if home.tier >= KEPT else [])
    assert configured(store) == ({("same", "same"): HOST} if home.tier >= KEPT else {})


@pytest.mark.parametrize(
    ("category", "key", "detail"),
    [
        ("half \ud83e", "k", {}),
        ("c", "half \ud83e", {}),
        ("c", "k" * 10_001, {}),
        ("c", "k", {"not": object()}),
        ("c", "k", {"number": float("nan")}),
    ],
)
def test_what_cannot_be_kept_is_refused_and_changes_nothing(
    store: BrokerStore, category: str, key: str, detail: dict[str, Any]
) -> None:
    done(store.configure, "c", "k", HOST)
    with pytest.raises(InvalidRequest):
        done(store.configure, category, key, detail)
    assert configured(store) == {("c", "k"): HOST}
