"""Who writes or calls a store reads small protocols, and the page that lists them is true."""

from __future__ import annotations

import re
from typing import Protocol

from broker_shim.store.interface import (
    BatchCalls,
    BrokerStore,
    CallTarget,
    ContentCalls,
    LinkCalls,
    MessageStore,
    WiringCalls,
)
from tests.architecture.source import TOP

MAX_MEMBERS = 16
PARTS: list[type] = [CallTarget, MessageStore, ContentCalls, WiringCalls, BatchCalls, LinkCalls]
AS_WELL = (CallTarget, BrokerStore)
PAGE = TOP / "docs" / "store-interface.md"
ROW = re.compile(r"^\| `([A-Z]\w+)` \| [^|]+ \| ([^|]+) \|$", re.MULTILINE)


def members(protocol: type) -> list[str]:
    """What a class must have to fit a protocol, inherited or not; twice what it has of two.

    The one method that all others are made of counts where it stands.
    """
    written = [each for each in protocol.__mro__ if getattr(each, "_is_protocol", False)]
    written = [each for each in written if each is not CallTarget or protocol in AS_WELL]
    return [name for each in written for name in vars(each) if not name.startswith("_")]


def test_a_protocol_of_the_store_has_at_most_16_members() -> None:
    counts = {each.__name__: len(members(each)) for each in PARTS}
    assert {name: n for name, n in counts.items() if n > MAX_MEMBERS} == {}


def test_a_brokers_store_is_these_protocols_and_nothing_more() -> None:
    parts = [name for each in PARTS for name in members(each)]
    assert sorted(members(BrokerStore)) == sorted(parts)
    assert len(set(parts)) == len(parts), "a call is in two of them"


def test_the_page_of_the_interface_lists_the_calls_of_each_protocol() -> None:
    listed = {name: re.findall(r"`(\w+)`", calls) for name, calls in ROW.findall(PAGE.read_text())}
    assert listed == {each.__name__: members(each) for each in PARTS}


def test_what_a_protocol_inherits_counts_as_its_own() -> None:
    class Whole(LinkCalls, Protocol):
        def one_more(self) -> None: ...

    assert len(members(Whole)) == 1 + len(members(LinkCalls))
