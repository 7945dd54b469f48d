"""Exchanges, addresses and settings: pure."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_shim.addressing.bindings import AddressManager
from broker_shim.addressing.topics import MOST_WORDS, TopicBindings
from broker_shim.broker.settings import read_settings
from broker_shim.broker.wiring.address import (
    AnonymousNode,
    ExchangeNode,
    QueueNode,
    node_of,
    refusal_to_create,
)
from broker_shim.broker.wiring.routing import FanoutBindings, Router
from broker_shim.durability import TerminusDurability
from broker_shim.errors import InvalidRequest
from broker_shim.store.interface import Exchange, ExchangeBindingKey, Queue
from tests.support.work import lines_of

WORDS = st.sampled_from(["a", "b", "*", "#", ""])
PATTERNS = st.lists(WORDS, min_size=1, max_size=9).map(".".join)
KEYS = st.lists(st.sampled_from(["a", "b", "c", ""]), min_size=1, max_size=6).map(".".join)


def fits(pattern: list[str], key: list[str]) -> bool:
    """The specification, word by word: the model."""
    if not pattern:
        return not key
    if pattern[0] == "#":
        return fits(pattern[1:], key) or (bool(key) and fits(pattern, key[1:]))
    return bool(key) and pattern[0] in {"*", key[0]} and fits(pattern[1:], key[1:])


@given(st.lists(PATTERNS, max_size=8), KEYS)
def test_a_topic_routes_to_the_patterns_that_fit(patterns: list[str], key: str) -> None:
    bindings = TopicBindings()
    for pattern in patterns:
        bindings.bind(pattern, f"queue of {pattern}")
    expected = {f"queue of {p}" for p in patterns if fits(p.split("."), key.split("."))}
    assert bindings.route(key) == expected


@given(st.lists(PATTERNS, max_size=8), st.sets(st.integers(0, 7)), KEYS)
def test_unbinding_leaves_what_was_never_bound(
    patterns: list[str], gone: set[int], key: str
) -> None:
    bindings, never = TopicBindings(), TopicBindings()
    for number, pattern in enumerate(patterns):
        bindings.bind(pattern, str(number))
        if number not in gone:
            never.bind(pattern, str(number))
    for number, pattern in enumerate(patterns):
        if number in gone:
            bindings.unbind(pattern, str(number))
    assert bindings.route(key) == never.route(key)


def test_a_pattern_of_many_hashes_is_no_trap() -> None:
    bindings = TopicBindings()
    bindings.bind(".".join(["#", "a"] * 200), "q")
    assert bindings.route(".".join(["a"] * 1000)) == {"q"}


@pytest.mark.parametrize(
    "start",
    [
        ["#", "*"] * 124,
        ["#", "a"] * 124,
        ["#", *["a", "*"] * 123],
        ["*", "#", "a", "*", "a"] * 49,
        ["a", "*"] * 124,
        [*["*"] * 120, *["#", "a", "#", "*"] * 32],
    ],
    ids=range(6),
)
@pytest.mark.parametrize("count", [1, 10])
def test_a_look_up_costs_words_times_patterns_however_long_these_are(
    start: list[str], count: int
) -> None:
    bindings = TopicBindings()
    for number in range(count):
        varied = ["a" if number >> n & 1 and word == "*" else word for n, word in enumerate(start)]
        bindings.bind(".".join(varied), str(number))
    key = ".".join(["a"] * MOST_WORDS)
    assert lines_of(lambda: bindings.route(key)) <= 40 * MOST_WORDS * (count + 1)


def test_patterns_that_mean_the_same_are_kept_until_each_is_unbound() -> None:
    for one, other in (("#.*", "*.#"), ("#.#.a.b.c.d.e", "#.a.b.c.d.e")):
        bindings = TopicBindings()
        bindings.bind(one, "q")
        bindings.bind(other, "q")
        bindings.unbind(one, "q")
        bindings.unbind(one, "q")
        assert bindings.route("a.b.c.d.e") == {"q"}
        bindings.unbind(other, "q")
        assert bindings.route("a.b.c.d.e") == set()


def test_a_queue_bound_twice_to_a_fanout_stays_until_both_are_gone() -> None:
    bindings = FanoutBindings()
    bindings.bind("x", "q")
    bindings.bind("y", "q")
    bindings.unbind("x", "q")
    assert bindings.route("anything") == {"q"}
    bindings.unbind("y", "q")
    assert bindings.route("anything") == set()


def test_a_destroyed_queue_is_in_no_exchange() -> None:
    router = Router()
    router.add_exchange(Exchange("t", "topic"))
    router.add_exchange(Exchange("d", "direct"))
    router.bind("t", "#", "q")
    router.bind("d", "k", "q")
    router.unbind_queue("q")
    assert router.route("t", "k") | router.route("d", "k") | router.route("no", "k") == set()


def test_an_unknown_type_of_exchange_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=re.escape("direct, fanout, topic, headers")):
        Router().add_exchange(Exchange("x", "tree"))


@pytest.mark.parametrize(
    ("address", "node"),
    [
        ("q", QueueNode("q")),
        ("x", ExchangeNode("x")),
        ("x/a.b/c", ExchangeNode("x", "a.b/c")),
        ("x/", ExchangeNode("x", "")),
        ("x/q", QueueNode("x/q")),
        ("y/a", QueueNode("y/a")),
        ("both", QueueNode("both")),
        ("", AnonymousNode()),
        (None, AnonymousNode()),
    ],
)
def test_an_address_names(address: str | None, node: object) -> None:
    addresses = AddressManager()
    for queue in ("q", "x/q", "both"):
        addresses.add(queue)
    assert node_of(address, addresses=addresses, exchanges={"x", "both"}) == node


def test_names_of_the_brokers_own_and_of_exchanges_are_not_created_on_demand() -> None:
    assert refusal_to_create("a/b.c d") is None
    assert refusal_to_create("a::amq.b", {"x"}) is None
    assert "amq." in (refusal_to_create("amq.topci") or "")
    assert "amq." in (refusal_to_create("amq.topic::q") or "")
    for name in ("temporary-x", "temporary-x::orders.eu", "orders::temporary-x"):
        assert "the broker's" in (refusal_to_create(name) or "")
    for name in ("temporary", "temporary::orders.eu", "orders::temporary"):
        assert "the broker's" in (refusal_to_create(name) or "")
    assert refusal_to_create("temporary.x::temporaryx") is None
    assert "is an exchange" in (refusal_to_create("x::q", {"x"}) or "")


def test_wiring_is_read_from_toml(tmp_path: Path) -> None:
    file = tmp_path / "sparkstore.toml"
    file.write_text(
        '[store]\nack = "wal"\n[broker]\ncredit = 5\nidle_timeout_s = 3\n'
        'queues = [{name = "q", durability = "configuration", arguments = {exclusive = true}}]\n'
        'exchanges = [{name = "x", type = "topic"}]\n'
        'bindings = [{exchange = "x", key = "k.#", queue = "q"}]\n'
    )
    settings = read_settings(file)
    assert (settings.credit, settings.idle_timeout_s) == (5, 3)
    assert settings.queues == (Queue("q", TerminusDurability.CONFIGURATION, {"exclusive": True}),)
    assert settings.exchanges == (Exchange("x", "topic"),)
    assert settings.bindings == (ExchangeBindingKey("x", "q", "k.#"),)


def test_a_queue_may_be_a_name_alone(tmp_path: Path) -> None:
    file = tmp_path / "sparkstore.toml"
    file.write_text('[broker]\nqueues = ["orders", {name = "bills"}, "late::orders"]\n')
    named = [Queue(name) for name in ("orders", "bills", "late::orders")]
    assert [*read_settings(file).queues] == named


@pytest.mark.parametrize(
    "text",
    [
        "credits = 5",
        'credit = "5"',
        "credit = 0",
        "queues = 3",
        "queues = [{}]",
        'queues = [{name = "q", durability = "some"}]',
        "queues = [3]",
        'queues = [""]',
        'queues = ["temporary"]',
        'exchanges = ["x"]',
        "not toml",
    ],
)
def test_a_wrong_setting_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "sparkstore.toml"
    file.write_text(f"[broker]\n{text}\n")
    with pytest.raises(InvalidRequest):
        read_settings(file)
