"""What every `LinkStore` does, by the tier it says it keeps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_shim.durability import TerminusDurability
from broker_shim.errors import Closed, StoreError
from broker_shim.links import ExpiryPolicy, Filter, LinkStore, LinkTerms, Role, Source, Target
from tests.support.stores.links import LINK_STORES, receiver, sender, terms
from tests.support.stores.stores import done


class Home:
    """A place with an open link store, and what it has to show."""

    def __init__(self, kind: str, folder: Path) -> None:
        folder.mkdir()
        self.kind, self._folder = kind, folder
        self.store: LinkStore = LINK_STORES[kind](folder)

    @property
    def is_keeping(self) -> bool:
        return self.store.highest > TerminusDurability.NONE

    def reopen(self) -> LinkStore:
        """Close it and open it again: everything that completed is there."""
        self.store.close()
        self.store = LINK_STORES[self.kind](self._folder)
        return self.store

    def kept(self) -> object:
        """What is there, if the store keeps anything."""
        return self.store.recover()


@pytest.fixture(params=LINK_STORES)
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    """A place with an empty link store that is open."""
    place = Home(request.param, tmp_path / "links")
    yield place
    place.store.close()


WHOLE = LinkTerms(
    Role.SENDER,
    Source(
        "prices",
        TerminusDurability.CONFIGURATION,
        ExpiryPolicy.CONNECTION_CLOSE,
        4_294_967_295,
        dynamic=True,
        capabilities=("topic", "shared"),
        distribution_mode="move",
        outcomes=("amqp:accepted:list", "amqp:released:list"),
        default_outcome={"outcome": "modified", "delivery_failed": True},
        filters=(
            Filter("jms-selector", "apache.org:selector-filter:string", "a = '🦊'"),
            Filter("no-local", 0x468C00000003, []),
            Filter("bare", None, {"deep": [1, 2.5, None, True]}),
        ),
    ),
    Target("here", capabilities=("queue",)),
)


def test_a_new_store_has_nothing(home: Home) -> None:
    assert home.store.recover() == {}


def test_a_terminus_is_there_after_the_store_was_opened_again_exactly_as_it_was(home: Home) -> None:
    done(home.store.attach, sender("s"), WHOLE)
    assert home.reopen().recover() == ({sender("s"): WHOLE} if home.is_keeping else {})


def test_either_end_may_be_missing(home: Home) -> None:
    only_source = LinkTerms(Role.SENDER, Source("a", TerminusDurability.CONFIGURATION), None)
    only_target = LinkTerms(Role.RECEIVER, None, Target("b", TerminusDurability.CONFIGURATION))
    done(home.store.attach, sender("s"), only_source)
    done(home.store.attach, receiver("r"), only_target)
    expected = {sender("s"): only_source, receiver("r"): only_target}
    assert home.reopen().recover() == (expected if home.is_keeping else {})


def test_links_of_one_name_differ_by_container_and_by_role(home: Home) -> None:
    links = {
        sender("n"): terms(address="1"),
        receiver("n"): terms(Role.RECEIVER, address="2"),
        sender("n", "c/n"): terms(address="3"),
        sender("n/n", "c"): terms(address="4"),
        sender("", ""): terms(address="5"),
        sender("naïve 🦊\n\x00", "\x7f\"'\\"): terms(address="6"),
    }
    for key, each in links.items():
        done(home.store.attach, key, each)
    assert home.reopen().recover() == (links if home.is_keeping else {})
    done(home.store.detach, sender("n"), closed=True)
    del links[sender("n")]
    assert home.reopen().recover() == (links if home.is_keeping else {})


def test_a_later_attach_replaces_what_was_kept(home: Home) -> None:
    done(home.store.attach, sender("s"), terms(address="old", timeout_s=5))
    done(home.store.attach, sender("s"), terms(address="new"))
    expected = {sender("s"): terms(address="new")}
    assert home.reopen().recover() == (expected if home.is_keeping else {})


def test_a_detach_keeps_the_terminus_and_a_close_forgets_it(home: Home) -> None:
    for name in ("left", "closed"):
        done(home.store.attach, sender(name), terms())
    done(home.store.detach, sender("left"), closed=False)
    done(home.store.detach, sender("closed"), closed=True)
    assert home.reopen().recover() == ({sender("left"): terms()} if home.is_keeping else {})


def test_attach_and_close_leave_the_store_as_it_was(home: Home) -> None:
    done(home.store.attach, sender("other"), terms())
    before = home.kept()
    done(home.store.attach, sender("s"), terms())
    done(home.store.detach, sender("s"), closed=False)
    done(home.store.detach, sender("s"), closed=True)
    assert home.kept() == before
    assert home.reopen().recover() == before


def test_a_detach_of_what_is_not_kept_succeeds(home: Home) -> None:
    done(home.store.detach, sender("unknown"), closed=True)
    done(home.store.detach, sender("unknown"), closed=False)
    assert home.reopen().recover() == {}


def test_what_completed_survives_without_a_close(home: Home) -> None:
    """The file is read while the store is open: as if the process were gone now."""
    done(home.store.attach, sender("s"), terms())
    assert home.kept() == ({sender("s"): terms()} if home.is_keeping else {})


def test_completions_fire_in_the_order_of_the_calls(home: Home) -> None:
    fired: list[tuple[int, StoreError | None]] = []
    for number in range(50):
        home.store.attach(
            sender(f"{number % 7}"),
            terms(address=f"{number}"),
            lambda error, number=number: fired.append((number, error)),
        )
    done(home.store.detach, sender("0"), closed=True)
    assert fired == [(number, None) for number in range(50)]


def test_a_closed_store_is_closed(home: Home) -> None:
    if not home.is_keeping:
        return
    home.store.close()
    with pytest.raises(Closed):
        home.store.attach(sender("s"), terms(), lambda _error: None)
    with pytest.raises(Closed):
        home.store.detach(sender("s"), lambda _error: None, closed=True)
    with pytest.raises(Closed):
        home.store.recover()
    home.store.close()
