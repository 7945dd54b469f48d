"""A rule covers a policy's pattern only if it fits every address that the pattern fits."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker_shim.security.rules.permissions import (
    AccessTarget,
    Permission,
    Permissions,
    Principal,
    Rule,
    covers,
)
from sparkstore.core.policies import Policy

WORDS = ("a", "b", "other")
NAMES = [".".join(words) for count in range(1, 5) for words in product(WORDS, repeat=count)]
PATTERNS = st.lists(st.sampled_from(["a", "b", "*", "#"]), min_size=1, max_size=4).map(".".join)


@given(rule=PATTERNS, match=PATTERNS)
@example(rule="a.*", match="a.#")
@example(rule="*.a", match="#.a")
@example(rule="#.*", match="*")
@example(rule="a.#.b", match="a.#")
def test_what_is_covered_is_allowed_name_by_name(rule: str, match: str) -> None:
    """The queues are asked for one by one, as direct orders ask for them."""
    ann = Principal("ann")
    rules = Permissions([Rule(frozenset({"ann"}), rule, frozenset({Permission.ADMIN}))])
    policy = Policy("p", match, 0, {})
    queues = [name for name in NAMES if policy.fits(name)]
    if rules.allow_all_of(ann, Permission.ADMIN, match):
        for queue in queues:
            assert rules.allow(ann, Permission.ADMIN, AccessTarget(queue, queue)), queue
    if not {"#", "*"} & {*match}:
        assert covers(rule, match) is Policy("p", rule, 0, {}).fits(match)


@given(match=PATTERNS)
def test_every_pattern_covers_itself_and_all_cover_it(match: str) -> None:
    assert covers(match, match)
    assert covers("#", match)
    assert covers("#::#", match)


@pytest.mark.parametrize(
    ("rule", "match", "is_covered"),
    [
        ("orders.#", "orders.#", True),
        ("orders.#", "orders", True),
        ("orders.#", "orders.*.new", True),
        ("orders.#", "#", False),
        ("orders.*", "orders.#", False),
        ("orders.*", "orders.new", True),
        ("*.#", "#", False),  # an address has a word, but this errs on the side of refusing
        ("#.#", "#", True),
        ("*.*", "*", False),
        ("#.new", "orders.#.new", True),
        ("#.new", "#.new.*", False),
        ("orders.#::#", "orders.#", True),
        ("orders.#::mine", "orders.#", False),
        ("orders::orders", "orders", False),
        ("temporary", "temporary", False),
    ],
)
def test_a_rule_covers_a_pattern(rule: str, match: str, *, is_covered: bool) -> None:
    assert covers(rule, match) is is_covered
