"""A column of integers in as few bytes as they need: offsets from the least, narrow as they fit."""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import lt
from typing import Self, TypeGuard

_CODES = [(code, (1 << 8 * array(code).itemsize) - 1) for code in "BHIQ"]


class Column:
    """Integers of any size; equal ones take nothing, nor do those that rise by one each.

    Attributes:
        base: The least of them.
        offsets: What each is above that; None: they are all equal.
    """

    __slots__ = ("_count", "base", "offsets")

    def __init__(self, base: int, offsets: Sequence[int] | None, count: int) -> None:
        self.base, self.offsets, self._count = base, offsets, count

    def __len__(self) -> int:
        """The number of integers."""
        return self._count

    def __iter__(self) -> Iterator[int]:
        """All integers in order."""
        return iter(self.values())

    @property
    def run(self) -> range:
        """All of them, if each is one more than the one before; else nothing."""
        if self._count > 1 and type(self.offsets) is not range:
            return range(0)
        return range(self.base, self.base + self._count)

    def __getitem__(self, index: int) -> int:
        """A value; the index is neither negative nor too large."""
        return self.base if self.offsets is None else self.base + self.offsets[index]

    def cut(self, start: int, end: int) -> Self:
        """Make a column of the integers from one index to before another, one at least."""
        base, offsets, count = self.base, self.offsets, min(end, self._count) - start
        if type(offsets) is range:
            return type(self)(base + start, range(count), count)
        return type(self)(base, offsets and offsets[start:end], count)

    @property
    def total(self) -> int:
        """The sum of all integers."""
        return self.base * self._count + sum(self.offsets or ())

    def values(self) -> Sequence[int]:
        """Return all integers of the column."""
        return self.run if type(self.offsets) is range else self.part(0, self._count)

    def part(self, start: int, end: int) -> Sequence[int]:
        """Return the integers from one index to before another."""
        base, offsets = self.base, self.offsets
        if offsets is None:
            return [base] * (end - start)
        return [base + offset for offset in offsets[start:end]] if base else offsets[start:end]


def values_at(columns: Iterable[Column], index: int) -> list[int]:
    """Return the value of each column at an index."""
    return [
        column.base if column.offsets is None else column.base + column.offsets[index]
        for column in columns
    ]


class Keys(Column):
    """Integers that never fall; as they come to a queue, each is above the one before."""

    __slots__ = ()

    def find(self, value: int) -> int:
        """Index of the first that is equal to this value; -1 if there is none."""
        offsets, wanted = self.offsets, value - self.base
        if type(offsets) is range:
            return wanted if 0 <= wanted < self._count else -1
        if offsets is None:
            return 0 if wanted == 0 else -1
        index = bisect_left(offsets, wanted)
        return index if index < self._count and offsets[index] == wanted else -1


Integers = Sequence[int] | Column
"""Integers as they come, or packed already: as a table's columns do in a start."""


def cut(values: Integers, start: int, end: int) -> Integers:
    """Take the integers from one index to before another."""
    return values.cut(start, end) if isinstance(values, Column) else values[start:end]


def is_run(values: object) -> TypeGuard[range]:
    """Tell whether values are a `range` that rises by one: another range says nothing of parts."""
    return type(values) is range and values.step == 1


def as_range(values: Sequence[int]) -> Sequence[int]:
    """Return integers as a range, if each is one more than the one before: parts cost nothing.

    All others are no range, not even if they came as one with another step.
    """
    if is_run(values):
        return values
    values = [*values] if type(values) is range else values
    if not values or values[-1] - values[0] != len(values) - 1:
        return values
    run = range(values[0], values[-1] + 1)
    return run if [*values] == [*run] else values


def neighbours_in(values: Sequence[int]) -> Iterator[range]:
    """Part integers, in order, into ranges that rise by one."""
    values = as_range(values)
    if is_run(values):  # as nearly always
        yield values
        return
    start, count = 0, len(values)
    for index in range(1, count + 1):
        if index == count or values[index] != values[index - 1] + 1:
            yield range(values[start], values[index - 1] + 1)
            start = index


def is_rising(values: Integers) -> bool:
    """Tell whether each value is above the one before; of a `range` or `Keys` that is known."""
    known = is_run(values) or isinstance(values, Keys)
    return known or all(map(lt, values, islice(values, 1, None)))


def pack(values: Integers) -> Column:
    """Pack one value or more into a column; a `range` that rises by one is not looked through."""
    if isinstance(values, Column):
        return values
    if is_run(values):
        return Column(*_packed(values, values[0], values[-1]))
    if values.count(values[0]) == len(values):  # sooner known than the least and the largest
        return Column(values[0], None, len(values))
    return Column(*_packed(values, min(values), max(values)))


def pack_keys(values: Integers) -> Keys:
    """Pack one value or more as keys; none is below the one before."""
    return values if isinstance(values, Keys) else Keys(*_packed(values, values[0], values[-1]))


def _packed(values: Integers, least: int, largest: int) -> tuple[int, Sequence[int] | None, int]:
    span, count = largest - least, len(values)
    if not span:
        return least, None, count
    if span == count - 1 and values[0] == least:
        run = range(least, largest + 1)
        if values == run or [*values] == [*run]:
            return least, range(count), count
    for code, limit in _CODES:
        if span <= limit:
            return least, array(code, [value - least for value in values]), count
    return 0, [*values], count


_PAGE = 4_096
_PLACE_BITS, _END_BITS = 40, 52
_PLACES, _FIRSTS = (1 << 40) - 1, (1 << 12) - 1


class PlacedRanges:
    """Ranges of integers that do not overlap, each with the number of a place.

    However many they are, to add or remove one is a bisection and moves 32 KiB at most: nothing
    grows that is ever copied as a whole. A range of a page is 8 bytes: its last integer there, its
    first (12 bits each) and its place (40 bits), so a page is in order.

    Attributes:
        pages: The ranges by the higher bits of their integers, cut where a page ends.
    """

    __slots__ = ("pages",)

    def __init__(self) -> None:
        self.pages: dict[int, array[int]] = {}

    def get(self, value: int) -> int | None:
        """The place of an integer; None if no range has it."""
        number, low = divmod(value, _PAGE)
        page = self.pages.get(number, ())
        at = bisect_left(page, low << _END_BITS)
        return page[at] & _PLACES if at < len(page) and _first(page[at]) <= low else None

    def add(self, values: range, place: int) -> None:
        """Add a range that rises by one, of which no integer is in another."""
        for number, first, end in _paged(values):
            page = self.pages.get(number) or self.pages.setdefault(number, array("Q"))
            insort(page, end - 1 << _END_BITS | first << _PLACE_BITS | place)

    def remove(self, values: range) -> None:
        """Remove the integers of a range that rises by one, as far as they are in any."""
        for number, first, end in _paged(values):
            page = self.pages.get(number)
            if page is None:
                continue
            start = bisect_left(page, first << _END_BITS)
            stop = bisect_left(page, end << _END_BITS, start)
            kept = array("Q")
            if start < len(page) and _first(page[start]) < first:
                kept.append(first - 1 << _END_BITS | page[start] & (1 << _END_BITS) - 1)
            if stop < len(page) and _first(page[stop]) < end:
                page[stop] += end - _first(page[stop]) << _PLACE_BITS
            page[start:stop] = kept
            if not page:
                del self.pages[number]


def _first(of: int) -> int:
    return of >> _PLACE_BITS & _FIRSTS


def _paged(values: range) -> Iterable[tuple[int, int, int]]:
    """Cut a range by pages: their numbers, and from which to before which of their integers."""
    number, first = divmod(values.start, _PAGE)
    end = first + len(values)
    if end <= _PAGE:
        return ((number, first, end),)
    ends = range(end, 0, -_PAGE)
    return ((number + at, 0 if at else first, min(_PAGE, left)) for at, left in enumerate(ends))
