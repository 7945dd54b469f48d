"""Termini and their registry, one by one (any order of them: properties)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from broker_shim.durability import TerminusDurability as Tier
from broker_shim.errors import CorruptData, InvalidRequest, StoreError
from broker_shim.links import (
    EndedScope,
    EndpointPlace,
    ExpiryPolicy,
    LinkKey,
    LinkRegistry,
    LinkTerms,
    MemoryUnsettledStore,
    NoLinkStore,
    Role,
    Terminus,
    granted_durability,
    link_text,
)
from broker_shim.links.termini.proof import Answers
from broker_shim.links.termini.terminus import Termini
from broker_shim.links.termini.terminus_expiry import expires_at_ms
from tests.support.stores.links import KeptDeliveries, KeptLinks, receiver, sender, terms

HERE, THERE = EndpointPlace("conn 1", 1), EndpointPlace("conn 2", 1)
ACCEPTED = {"outcome": "accepted"}


def registry() -> LinkRegistry:
    return LinkRegistry(KeptLinks({}), KeptDeliveries({}))


def granted(links: LinkRegistry, name: str = "s", place: EndpointPlace = HERE, **fields: object):  # noqa: ANN201
    """The endpoint of a link that was attached and granted."""
    endpoint = links.attach(sender(name), place).endpoint
    errors: list[StoreError | None] = []
    assert links.grant(endpoint, terms(**fields), errors.append)  # type: ignore[arg-type]
    assert errors == [None]
    return endpoint


def test_a_look_up_gives_the_terminus_and_by_it_the_endpoint() -> None:
    links = registry()
    assert links.find(sender("s")) is None
    endpoint = granted(links)
    terminus = links.find(sender("s"))
    assert terminus is not None
    assert terminus.endpoint is endpoint
    assert endpoint.terminus is terminus
    assert links.find(receiver("s")) is None


def test_an_attach_that_was_not_granted_yet_is_not_found() -> None:
    links = registry()
    links.attach(sender("s"), HERE)
    assert links.find(sender("s")) is None


def test_an_endpoint_is_made_anew_for_the_terminus_that_is_left() -> None:
    links = registry()
    first = granted(links, address="a")
    terminus = first.terminus
    assert links.detach(first, 0, closed=False) is None
    assert not first.is_attached
    assert terminus.endpoint is None
    second, stolen = links.attach(sender("s"), THERE)
    assert stolen is None
    assert second is not first
    assert second.terminus is terminus
    assert terminus.terms == terms(address="a")


@pytest.mark.parametrize("place", [HERE, THERE])
def test_a_second_attach_takes_the_link_from_the_first(place: EndpointPlace) -> None:
    links = registry()
    first = granted(links)
    second, stolen = links.attach(sender("s"), place)
    assert stolen is first
    assert (first.is_attached, second.is_attached) == (False, True)


def test_a_stolen_endpoint_changes_nothing_any_more() -> None:
    links = registry()
    first = granted(links, durability=2)
    second = links.attach(sender("s"), THERE).endpoint
    called: list[StoreError | None] = []
    assert not links.grant(first, terms(address="mine"), called.append)
    assert links.detach(first, 0, closed=True) is None
    assert links.end_session(HERE, 0) == []
    assert links.end_connection(HERE.connection, 0) == []
    links.settle(first, [b"1"])
    assert called == []
    assert second.is_attached
    assert second.terminus.terms == terms(durability=2)


def test_a_delivery_is_remembered_for_the_terminus_after_its_endpoint_was_lost() -> None:
    links = registry()
    first = links.attach(receiver("r"), HERE).endpoint
    links.grant(first, terms(Role.RECEIVER, 2), lambda _error: None)
    second = links.attach(receiver("r"), THERE).endpoint
    told: list[StoreError | None] = []
    assert links.remember(first, b"1", ACCEPTED, told.append)
    assert told == [None]
    assert second.terminus.unsettled == {b"1": ACCEPTED}
    over = links.detach(second, 0, closed=True)
    assert over is first.terminus
    assert not links.remember(first, b"2", ACCEPTED, told.append)
    assert told == [None]


def test_a_stolen_endpoint_settles_nothing_of_what_is_the_thiefs_now() -> None:
    kept: dict[LinkKey, dict[bytes, Any]] = {}
    links, key = LinkRegistry(KeptLinks({}), KeptDeliveries(kept)), receiver("r")
    first = links.attach(key, HERE).endpoint
    links.grant(first, terms(Role.RECEIVER, 2), lambda _error: None)
    second = links.attach(key, THERE).endpoint
    links.remember(second, b"1", ACCEPTED, lambda _error: None)
    told: list[StoreError | None] = []
    assert not links.settle(first, [b"1"], told.append)
    assert told == []
    assert second.terminus.unsettled == kept[key] == {b"1": ACCEPTED}
    assert links.settle(second, [b"1"], told.append)
    assert told == [None]
    assert second.terminus.unsettled == {}


def test_a_container_may_be_on_two_connections_with_links_of_other_names() -> None:
    links = registry()
    first, second = granted(links, "a", HERE), granted(links, "b", THERE)
    assert first.is_attached
    assert second.is_attached
    links.end_connection(HERE.connection, 0)
    assert (first.is_attached, second.is_attached) == (False, True)


def test_a_close_drops_the_terminus_and_tells_the_store_once() -> None:
    kept = {}
    links = LinkRegistry(KeptLinks(kept), KeptDeliveries({}))
    endpoint = granted(links)
    assert kept
    told: list[StoreError | None] = []
    assert links.detach(endpoint, 0, closed=True) is endpoint.terminus
    assert links.detach(endpoint, 0, closed=True) is None
    assert kept
    assert len(links) == 0
    links.forget(endpoint.terminus, told.append)
    assert kept == {}
    assert told == [None]


def test_a_link_that_is_granted_anew_before_the_old_one_is_forgotten_is_kept() -> None:
    kept, deliveries = {}, {}
    links = LinkRegistry(KeptLinks(kept), KeptDeliveries(deliveries))
    old, new = links.attach(receiver("r"), HERE).endpoint, None
    links.grant(old, terms(Role.RECEIVER, 2), lambda _error: None)
    for tag in (b"1", b"2"):
        links.remember(old, tag, None, lambda _error: None)
    over = links.detach(old, 0, closed=True)
    assert over is not None
    new = links.attach(receiver("r"), HERE).endpoint
    links.grant(new, terms(Role.RECEIVER, 2, address="new"), lambda _error: None)
    links.remember(new, b"2", None, lambda _error: None)
    told: list[StoreError | None] = []
    links.forget(over, told.append)
    assert told == [None]
    assert kept == {receiver("r"): terms(Role.RECEIVER, 2, address="new")}
    assert deliveries == {receiver("r"): {b"2": None}}


def test_a_terminus_may_be_kept_and_dropped_without_a_link() -> None:
    kept, told = {}, list[StoreError | None]()
    links = LinkRegistry(KeptLinks(kept), KeptDeliveries({}))
    terminus = links.keep(sender("s"), terms(), told.append)
    assert links.keep(sender("s"), terms(address="new"), told.append) is terminus
    assert kept == {sender("s"): terms(address="new")}
    endpoint = links.attach(sender("s"), HERE).endpoint
    assert links.drop(sender("s")) is None
    links.detach(endpoint, 0, closed=False)
    assert links.drop(sender("s")) is terminus
    assert links.drop(sender("s")) is None
    links.forget(terminus, told.append)
    assert kept == {}
    assert told == [None] * 3


def test_a_new_link_that_was_refused_leaves_nothing() -> None:
    links = registry()
    endpoint = links.attach(sender("s"), HERE).endpoint
    assert links.detach(endpoint, 0, closed=False) is endpoint.terminus
    assert len(links) == 0


def test_an_attach_that_was_refused_leaves_the_terminus_that_was_there() -> None:
    links = registry()
    links.detach(granted(links, durability=2), 0, closed=False)
    endpoint = links.attach(sender("s"), THERE).endpoint
    assert links.detach(endpoint, 0, closed=False) is None
    terminus = links.find(sender("s"))
    assert terminus is not None
    assert terminus.terms == terms(durability=2)


def test_what_is_to_survive_nothing_is_no_business_of_the_store() -> None:
    kept = {}
    links = LinkRegistry(KeptLinks(kept), KeptDeliveries({}))
    granted(links, durability=0)
    assert kept == {}
    assert links.find(sender("s")) is not None


def test_a_lower_durability_than_before_is_forgotten_by_the_store() -> None:
    kept = {}
    links = LinkRegistry(KeptLinks(kept), KeptDeliveries({}))
    granted(links, durability=2)
    granted(links, durability=0)
    assert kept == {}


def test_more_durability_than_can_be_kept_is_a_fault_of_the_caller() -> None:
    links = LinkRegistry(NoLinkStore(), MemoryUnsettledStore())
    endpoint = links.attach(sender("s"), HERE).endpoint
    with pytest.raises(InvalidRequest, match="durability 1 was not granted"):
        links.grant(endpoint, terms(durability=1), lambda _error: None)


@pytest.mark.parametrize(
    ("asked", "of_links", "of_deliveries", "expected"),
    [
        (asked, of_links, of_deliveries, min(asked, highest))
        for of_links, of_deliveries, highest in [
            (Tier.NONE, Tier.NONE, 0),
            (Tier.NONE, Tier.UNSETTLED_STATE, 0),
            (Tier.CONFIGURATION, Tier.NONE, 1),
            (Tier.CONFIGURATION, Tier.UNSETTLED_STATE, 1),
            (Tier.UNSETTLED_STATE, Tier.NONE, 1),
            (Tier.UNSETTLED_STATE, Tier.UNSETTLED_STATE, 2),
        ]
        for asked in Tier
    ],
)
def test_what_is_granted_is_what_both_stores_can_keep(
    asked: Tier, of_links: Tier, of_deliveries: Tier, expected: int
) -> None:
    assert granted_durability(asked, of_links, of_deliveries) == expected


@pytest.mark.parametrize(
    ("policy", "starts_with"),
    [
        (ExpiryPolicy.LINK_DETACH, EndedScope.LINK),
        (ExpiryPolicy.SESSION_END, EndedScope.SESSION),
        (ExpiryPolicy.CONNECTION_CLOSE, EndedScope.CONNECTION),
    ],
)
def test_the_time_of_a_terminus_runs_from_the_end_that_its_policy_names(
    policy: ExpiryPolicy, starts_with: EndedScope
) -> None:
    expected = {each: 1_005_000 if each >= starts_with else None for each in EndedScope}
    assert {each: expires_at_ms(policy, 5, each, 1_000_000) for each in EndedScope} == expected
    assert expires_at_ms(ExpiryPolicy.NEVER, 5, EndedScope.CONNECTION, 0) is None


def test_a_terminus_lives_for_its_timeout_and_no_longer() -> None:
    links = registry()
    endpoint = granted(links, policy=ExpiryPolicy.LINK_DETACH, timeout_s=10)
    assert links.next_expiry_ms() is None
    assert links.detach(endpoint, 5_000, closed=False) is None
    assert links.next_expiry_ms() == 15_000
    assert links.expire(14_999) == []
    assert links.expire(15_000) == [endpoint.terminus]
    assert links.find(sender("s")) is None
    assert links.next_expiry_ms() is None


def test_an_attach_stops_the_time() -> None:
    links = registry()
    endpoint = granted(links, policy=ExpiryPolicy.LINK_DETACH, timeout_s=10)
    links.detach(endpoint, 0, closed=False)
    links.attach(sender("s"), THERE)
    assert links.next_expiry_ms() is None
    assert links.expire(10_000) == []


def test_the_time_runs_on_from_the_first_end_that_started_it() -> None:
    links = registry()
    endpoint = granted(links, policy=ExpiryPolicy.LINK_DETACH, timeout_s=10)
    links.detach(endpoint, 0, closed=False)
    assert links.end_session(HERE, 6_000) == []
    assert links.end_connection(HERE.connection, 8_000) == []
    assert links.next_expiry_ms() == 10_000


def test_the_end_of_a_session_ends_its_links_alone() -> None:
    links = registry()
    here = granted(links, "a", policy=ExpiryPolicy.SESSION_END, durability=0)
    left = granted(links, "b", policy=ExpiryPolicy.SESSION_END, durability=0)
    other = granted(links, "c", EndpointPlace(HERE.connection, 2), durability=0)
    links.detach(left, 0, closed=False)
    assert {each.key.name for each in links.end_session(HERE, 0)} == {"a", "b"}
    assert not here.is_attached
    assert other.is_attached


def test_recovered_termini_are_detached_and_their_time_runs_anew() -> None:
    links, deliveries = {}, {}
    first = LinkRegistry(KeptLinks(links), KeptDeliveries(deliveries))
    granted(first, "short", policy=ExpiryPolicy.SESSION_END)
    granted(first, "long", policy=ExpiryPolicy.CONNECTION_CLOSE, timeout_s=60)
    granted(first, "ever", durability=2)
    granted(first, "lost", durability=0)
    again, told = LinkRegistry(KeptLinks(links), KeptDeliveries(deliveries)), list[object]()
    termini = again.recover(1_000, told.append)
    assert {each.key.name for each in termini} == {"short", "long", "ever"}
    assert told == [None] * 3
    (over,) = again.expire(1_000)
    assert over.key == sender("short")
    again.forget(over)
    assert again.next_expiry_ms() == 61_000
    assert links.keys() == {sender("long"), sender("ever")}


def test_unsettled_deliveries_stay_with_the_terminus_and_survive() -> None:
    links, deliveries = {}, {}
    first = LinkRegistry(KeptLinks(links), KeptDeliveries(deliveries))
    endpoint = first.attach(receiver("r"), HERE).endpoint
    first.grant(endpoint, terms(Role.RECEIVER, 2), lambda _error: None)
    for tag in (b"1", b"2"):
        assert first.remember(endpoint, tag, ACCEPTED, lambda _error: None)
    first.detach(endpoint, 0, closed=False)
    second = first.attach(receiver("r"), HERE).endpoint
    assert second.terminus.unsettled == {b"1": ACCEPTED, b"2": ACCEPTED}
    first.settle(second, [b"1"])
    again = LinkRegistry(KeptLinks(links), KeptDeliveries(deliveries))
    (terminus,) = again.recover(0, lambda _error: None)
    assert terminus.unsettled == {b"2": ACCEPTED}
    third = again.attach(receiver("r"), HERE).endpoint
    over = again.detach(third, 0, closed=True)
    assert over is not None
    again.forget(over)
    assert (links, deliveries) == ({}, {})


def test_associate_and_dissociate_leave_a_terminus_as_it_was() -> None:
    terminus = Terminus(sender("s"), terms())
    assert terminus.dissociate() is None
    endpoint = terminus.associate(HERE)
    assert terminus.dissociate() is endpoint
    assert terminus.endpoint is None
    assert terminus.terms == terms()


def test_a_holder_tells_its_link_and_no_other() -> None:
    assert link_text(sender("news 🦊", 'a "client"')) == '["a \\"client\\"","news 🦊","sender"]'
    parts = ["", "a", "/", '"', '","', "\\", "a/b", "sender"]
    pairs = [(name, container) for name in parts for container in parts]
    keys = [make(name, container) for make in (sender, receiver) for name, container in pairs]
    assert len({link_text(key) for key in keys}) == len(keys)


def test_the_json_of_a_newer_version_is_refused() -> None:
    shown = terms().as_json()
    assert LinkTerms.from_json("sender", shown) == terms()
    with pytest.raises(CorruptData, match="a link of version 2, this sparkstore knows 1"):
        LinkTerms.from_json("sender", shown | {"version": 2})
    with pytest.raises(CorruptData, match="not a link"):
        LinkTerms.from_json("sender", {"version": 1})


def test_the_durability_of_a_link_is_that_of_our_own_end() -> None:
    two = terms(Role.RECEIVER, 2)
    assert two.durability == 2
    assert replace(two, role=Role.SENDER).durability == 0
    assert LinkTerms(Role.SENDER, None, two.target).durability == 0


def test_an_answer_is_proved_by_a_delivery_beyond_what_was_allowed_when_it_was_written() -> None:
    answers = Answers()
    answers.granted(2)
    answers.started()
    answers.answered(b"0")
    answers.started()
    assert answers.proved() == []
    answers.granted(1)
    assert answers.proved() == []
    answers.started()
    assert answers.proved() == [b"0"]
    assert answers.proved() == []


def test_credit_that_is_told_again_proves_nothing() -> None:
    answers = Answers()
    answers.granted(5)
    answers.started()
    answers.answered(b"0")
    answers.granted(4)
    for _ in range(4):
        answers.started()
    assert answers.proved() == []
    assert len(answers) == 1


def test_termini_are_counted_by_whose_they_are() -> None:
    termini = Termini()
    keys = [sender(name, container) for name in "ab" for container in ("ann/c", "ann/d", "anybody")]
    for key in keys:
        termini[key] = Terminus(key)
        termini[key] = termini.setdefault(key, Terminus(key))
    assert [termini.of(owner) for owner in ("ann/", "", "bob/")] == [4, 2, 0]
    assert termini.setdefault(sender("c", "bob/"), Terminus(sender("c", "bob/")))
    for key in (*keys, sender("c", "bob/")):
        del termini[key]
    assert not termini
    assert not termini._counts
