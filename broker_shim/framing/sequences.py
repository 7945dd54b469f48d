"""Numbers of 32 bits that wrap (RFC 1982), and sets of them as session controls tell them. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

Ranges = tuple[tuple[int, int], ...]
"""First and last of each range, as on the wire."""

_MODULUS = 1 << 32
_HALF = 1 << 31


def after(number: int, steps: int = 1) -> int:
    """Return the number so many steps after another."""
    return (number + steps) % _MODULUS


def distance(first: int, second: int) -> int:
    """Return the steps from the first to the second number; negative if that comes before."""
    steps = (second - first) % _MODULUS
    return steps if steps < _HALF else steps - _MODULUS


def is_ordered(ranges: Ranges) -> bool:
    """True if no range runs backwards, and each begins after the one before it ended."""
    if any(distance(first, last) < 0 for first, last in ranges):
        return False
    return all(
        distance(ended, begins) > 0 for (_, ended), (begins, _) in itertools.pairwise(ranges)
    )


def contains(ranges: Ranges, number: int) -> bool:
    """True if one of the ranges has the number."""
    return any(0 <= distance(first, number) <= distance(first, last) for first, last in ranges)


def numbers_of(ranges: Ranges) -> Iterator[int]:
    """Every number that the ranges name; not of a peer, who may name 2³¹ of them."""
    for first, last in ranges:
        for step in range(distance(first, last) + 1):
            yield after(first, step)


def ranges_of(numbers: Iterable[int]) -> Ranges:
    """Ranges of numbers that come in their order; neighbours are put together."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and after(ranges[-1][1]) == number:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return tuple((first, last) for first, last in ranges)
