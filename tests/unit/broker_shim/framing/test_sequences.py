"""Command ids wrap, and sets of them run backwards, overlap, or name very many."""

from __future__ import annotations

import pytest

from broker_shim.framing.sequences import (
    Ranges,
    after,
    contains,
    distance,
    is_ordered,
    numbers_of,
    ranges_of,
)

LAST = (1 << 32) - 1


def test_numbers_wrap() -> None:
    assert (after(LAST), after(LAST, 3)) == (0, 2)
    assert (distance(LAST, 1), distance(1, LAST)) == (2, -2)
    assert list(numbers_of(((LAST - 1, 1),))) == [LAST - 1, LAST, 0, 1]
    assert ranges_of([LAST - 1, LAST, 0, 2]) == ((LAST - 1, 0), (2, 2))


@pytest.mark.parametrize(
    ("ranges", "ordered"),
    [
        ((), True),
        (((1, 1),), True),
        (((1, 3), (5, 5)), True),
        (((LAST, 0), (1, 1)), True),
        (((3, 1),), False),
        (((1, 3), (3, 4)), False),
        (((5, 6), (1, 2)), False),
    ],
)
def test_ranges_are_in_order_or_they_are_not(ranges: Ranges, *, ordered: bool) -> None:
    assert is_ordered(ranges) is ordered


def test_a_range_has_its_ends_and_may_wrap() -> None:
    assert contains(((5, 9),), 7)
    assert not contains(((5, 9),), 10)
    assert contains(((LAST, 2),), 0)
