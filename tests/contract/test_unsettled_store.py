"""What every `UnsettledStore` does, by the tier it says it keeps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_shim.durability import TerminusDurability
from broker_shim.errors import StoreError
from broker_shim.links import UnsettledStore
from tests.support.stores.links import UNSETTLED_STORES, receiver
from tests.support.stores.stores import done

ACCEPTED = {"outcome": "accepted"}


class Home:
    """A place with an open store of deliveries."""

    def __init__(self, kind: str, folder: Path) -> None:
        folder.mkdir()
        self.kind, self._folder = kind, folder
        self.store: UnsettledStore = UNSETTLED_STORES[kind](folder)

    def reopened(self, expected: object) -> bool:
        """Whether so much is there after a restart, as the tier promises; and was before."""
        was = self.store.recover()
        is_keeping = self.store.highest is TerminusDurability.UNSETTLED_STATE
        self.store.close()
        self.store = UNSETTLED_STORES[self.kind](self._folder)
        return was == expected and self.store.recover() == (expected if is_keeping else {})


@pytest.fixture(params=UNSETTLED_STORES)
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    """A place with an empty store that is open."""
    place = Home(request.param, tmp_path / "unsettled")
    yield place
    place.store.close()


def test_a_new_store_has_nothing(home: Home) -> None:
    assert home.store.recover() == {}


def test_it_is_either_of_the_highest_tier_or_keeps_nothing(home: Home) -> None:
    tiers = {TerminusDurability.NONE, TerminusDurability.UNSETTLED_STATE}
    assert home.store.highest in tiers


def test_deliveries_are_kept_by_link_and_tag_with_what_is_known_of_them(home: Home) -> None:
    done(home.store.unsettled, receiver("a"), b"\x00\xff", ACCEPTED)
    done(home.store.unsettled, receiver("a"), b"", None)
    done(home.store.unsettled, receiver("b"), b"\x00\xff", {"outcome": "rejected", "why": "🦊"})
    assert home.reopened(
        {
            receiver("a"): {b"\x00\xff": ACCEPTED, b"": None},
            receiver("b"): {b"\x00\xff": {"outcome": "rejected", "why": "🦊"}},
        }
    )


def test_a_state_is_replaced(home: Home) -> None:
    done(home.store.unsettled, receiver("a"), b"1", None)
    done(home.store.unsettled, receiver("a"), b"1", ACCEPTED)
    assert home.reopened({receiver("a"): {b"1": ACCEPTED}})


def test_what_is_settled_is_forgotten_and_nothing_else(home: Home) -> None:
    for tag in (b"1", b"2", b"3"):
        done(home.store.unsettled, receiver("a"), tag, ACCEPTED)
    done(home.store.unsettled, receiver("b"), b"1", ACCEPTED)
    done(home.store.settle, receiver("a"), [b"1", b"3"])
    assert home.reopened({receiver("a"): {b"2": ACCEPTED}, receiver("b"): {b"1": ACCEPTED}})


def test_remember_and_settle_leave_the_store_as_it_was(home: Home) -> None:
    done(home.store.unsettled, receiver("a"), b"1", ACCEPTED)
    done(home.store.settle, receiver("a"), [b"1"])
    assert home.reopened({})


def test_settling_what_is_not_kept_succeeds(home: Home) -> None:
    done(home.store.settle, receiver("unknown"), [b"1"])
    done(home.store.settle, receiver("unknown"), [])
    assert home.reopened({})


def test_completions_fire_in_the_order_of_the_calls(home: Home) -> None:
    fired: list[tuple[int, StoreError | None]] = []
    for number in range(50):
        home.store.unsettled(
            receiver("a"),
            b"%d" % number,
            None,
            lambda error, number=number: fired.append((number, error)),
        )
    done(home.store.settle, receiver("a"), [b"%d" % number for number in range(50)])
    assert fired == [(number, None) for number in range(50)]
    assert home.reopened({})
