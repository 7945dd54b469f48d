"""Numbers that wrap around at 2³² (RFC 1982), and the lowest number that is free."""

from __future__ import annotations

import heapq

WRAP = 1 << 32
_HALF = 1 << 31


def plus(number: int, count: int) -> int:
    """`number` moved on, or back by a negative count."""
    return (number + count) % WRAP


def distance(first: int, second: int) -> int:
    """Return how far `second` lies after `first`, in [-2³¹, 2³¹): negative if it lies before."""
    return (second - first + _HALF) % WRAP - _HALF


class FreeNumbers:
    """Hands out the lowest number that nobody has, as channels and handles are."""

    def __init__(self) -> None:
        self._next = 0
        self._returned: list[int] = []

    def take(self) -> int:
        """Take a number that is free."""
        if self._returned:
            return heapq.heappop(self._returned)
        self._next += 1
        return self._next - 1

    def give_back(self, number: int) -> None:
        """Free a number that `take` returned."""
        heapq.heappush(self._returned, number)
