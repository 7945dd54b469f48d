"""Keep values by numbers that rise and wrap, and find them by ranges. Pure."""

from __future__ import annotations

from bisect import bisect_left
from typing import TypeVar

from broker_shim.framing.sequences import Ranges, count_of, distance, numbers_of

V = TypeVar("V")


class Numbered(dict[int, V]):
    """A mapping by number, within half of all numbers, that finds quickly what ranges name.

    A range costs what it finds, however much it spans and however much else is kept: a peer may
    name thousands of ranges in one command. The numbers are in a list in their order, too; what
    was taken out stays there until a search has met enough of it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._order: list[int] = []
        self._is_in_order = True

    def __setitem__(self, number: int, value: V) -> None:
        if number not in self:
            order = self._order
            if order and distance(order[-1], number) <= 0:
                self._is_in_order = False  # one that is put back
            order.append(number)
        super().__setitem__(number, value)

    def chosen(self, ranges: Ranges) -> list[int]:
        """Return the keys that ranges in order (`sequences.is_ordered`) name, in their order."""
        if not self or count_of(ranges) <= _FEW * len(ranges):
            return [number for number in numbers_of(ranges) if number in self] if self else []
        order = self._in_order()
        oldest, numbers, gone = order[0], list[int](), 0
        for first, last in ranges:
            at = bisect_left(order, distance(oldest, first), key=lambda n: distance(oldest, n))
            while at < len(order) and distance(order[at], last) >= 0:
                if order[at] in self:
                    numbers.append(order[at])
                else:
                    gone += 1
                at += 1
        if gone > max(_MOST_GONE, len(order) // 64):
            self._is_in_order = False
        return numbers

    def _in_order(self) -> list[int]:
        if not self._is_in_order or len(self._order) > 2 * len(self) + _MOST_GONE:
            any_one = next(iter(self))
            self._order = sorted(self, key=lambda number: distance(any_one, number))
            self._is_in_order = True
        return self._order


_FEW, _MOST_GONE = 4, 256
