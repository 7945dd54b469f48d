"""Which subscription a link is on, as Qpid JMS names its links; termini there and back."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_shim.amqp_1_0 import composites as amqp
from broker_shim.amqp_1_0.primitives import Symbol, ULong
from broker_shim.durability import TerminusDurability
from broker_shim.links import LinkKey
from broker_shim.listener_1_0.attach.own_queue import looked_up, queue_of, subscription_of
from broker_shim.listener_1_0.termini import (
    as_source,
    as_target,
    filter_set_of,
    granted_source,
    granted_target,
    peers_target,
    read_filters,
)
from broker_shim.protocol_1_0.codec.values import Described
from tests.support.stores.links import sender

SHARED, GLOBAL = ("topic", "shared"), ("topic", "shared", "global")


@pytest.mark.parametrize(
    ("name", "capabilities", "is_durable", "expected"),
    [
        ("news", ("topic",), True, ("shop", "news")),
        ("news|2", ("topic",), True, ("shop", "news|2")),
        ("news", SHARED, True, ("shop", "news")),
        ("news|2", SHARED, True, ("shop", "news")),
        ("news|global", GLOBAL, True, ("", "news|global")),
        ("news|global2", GLOBAL, True, ("", "news|global")),
        ("news|volatile1", SHARED, False, ("shop", "news|volatile")),
        ("news|global-volatile2", GLOBAL, False, ("", "news|global|volatile")),
    ],
)
def test_the_links_of_a_subscription_have_one_terminus(
    name: str, capabilities: tuple[str, ...], *, is_durable: bool, expected: tuple[str, str]
) -> None:
    found = subscription_of(sender(name, "shop"), capabilities, is_durable=is_durable)
    assert found.key == LinkKey(*expected, "sender")
    assert found.is_shared == ("shared" in capabilities)
    assert found.is_volatile == (found.is_shared and not is_durable)


def test_a_look_up_finds_what_the_first_link_of_a_subscription_made() -> None:
    for name, capabilities in (("news", SHARED), ("news|global", GLOBAL), ("news", ())):
        made = subscription_of(sender(name, "shop"), capabilities, is_durable=True)
        assert looked_up(sender(name, "shop"), capabilities) == made.key


def test_two_subscriptions_never_have_one_queue() -> None:
    parts = ["", "a", ".", "%", "a.b", "a::b", "%2E", "%252E", "|"]
    keys = [sender(name, container) for name, container in product(parts, parts)]
    names = {queue_of(key) for key in keys}
    assert len(names) == len(keys)
    assert not any("::" in name for name in names)


_TEXT = st.text(max_size=8)
_FILTERS: st.SearchStrategy[dict[Any, Any]] = st.dictionaries(
    _TEXT.map(Symbol),
    st.builds(Described, _TEXT.map(Symbol) | st.integers(0, 2**64 - 1).map(ULong), _TEXT) | _TEXT,
    max_size=3,
)
_ASKED: dict[str, Any] = {
    "address": st.none() | _TEXT,
    "durable": st.integers(0, 2),
    "expiry_policy": st.sampled_from(["link-detach", "session-end", "connection-close", "never"]),
    "timeout": st.integers(0, 2**32 - 1),
    "dynamic": st.booleans(),
    "capabilities": st.sampled_from([None, ("topic",), ("queue", "shared")]),
}


_NODE = {Symbol("lifetime-policy"): amqp.DeleteOnClose()}
"""What is told of a queue that the peer had us make."""


@given(
    st.builds(
        amqp.Source,
        **_ASKED,
        distribution_mode=st.none() | st.sampled_from(["move", "copy"]),
        filter=_FILTERS,
    )
)
def test_a_source_that_is_granted_as_asked_is_answered_as_asked(asked: amqp.Source) -> None:
    granted = granted_source(
        asked,
        asked.address,
        TerminusDurability(asked.durable),
        asked.filter,
        asked.capabilities or (),
    )
    asked.filter = asked.filter or None
    asked.distribution_mode = asked.distribution_mode or "move"
    asked.dynamic_node_properties = _NODE if asked.dynamic else None
    assert as_source(granted) == asked


@given(st.builds(amqp.Target, **_ASKED))
def test_a_target_likewise(asked: amqp.Target) -> None:
    durability = TerminusDurability(asked.durable)
    granted = granted_target(asked, asked.address, durability, asked.capabilities or ())
    asked.dynamic_node_properties = _NODE if asked.dynamic else None
    assert as_target(granted) == asked


def test_a_coordinator_and_no_target_are_no_target_of_ours() -> None:
    assert peers_target(None) is None
    assert peers_target(amqp.Coordinator()) is None


def test_a_selector_that_was_kept_selects_the_same() -> None:
    name = Symbol("apache.org:selector-filter:string")
    for told in ({Symbol("jms-selector"): Described(name, "a = 1")}, {"jms-selector": "a = 1"}):
        filters = read_filters(told)
        kept = granted_source(amqp.Source("q"), "q", TerminusDurability.NONE, filters.answer)
        again = read_filters(filter_set_of(kept))
        assert again.selector is not None
        assert again.selector.fits({"a": 1}.get)
        assert not again.selector.fits({"a": 2}.get)
