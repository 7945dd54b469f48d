"""Keep runs of numbers that rise and wrap, and find them by ranges. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Generic, Protocol, Self, TypeVar

from broker_shim.framing.sequences import Ranges, distance

_number_of = attrgetter("number")


class Numbered(Protocol):
    """A run of things whose numbers follow each other, one at least; `number` is the first."""

    number: int

    def __len__(self) -> int:
        """The number of numbers."""

    def cut(self, count: int) -> Self:
        """Keep the first `count` numbers, some but not all, and return the rest."""


R = TypeVar("R", bound=Numbered)


class NumberedRuns(Generic[R]):
    """Runs in the order of their numbers, within half of all numbers; each number is in one.

    Their own numbers count on where those of the peer wrap. A range costs what it finds, however
    much it spans and however much else is kept: a peer may name thousands of ranges in one command.
    Whatever is named by itself cuts its run. The list of runs is copied once at most, from the
    first run that a command names to the last: a peer may settle every second message singly.
    """

    def __init__(self) -> None:
        self._runs: list[R] = []
        self._count = self._last = 0

    def __len__(self) -> int:
        """The number of numbers that are kept."""
        return self._count

    def __iter__(self) -> Iterator[R]:
        """Iterate over the runs in their order, as they are now."""
        return iter([*self._runs])

    def add(self, run: R) -> None:
        """Keep a run whose number is the peer's; it is cut from now on by nobody else."""
        run.number = number = self._last + distance(self._last, run.number)
        self._count += len(run)
        if not self._runs or number > self._runs[-1].number:
            self._last = number
            self._runs.append(run)
        else:  # one that is put back
            self._runs.insert(bisect_left(self._runs, number, key=_number_of), run)

    def take(self, ranges: Ranges) -> list[R]:
        """Take out what ranges in order (`sequences.is_ordered`) name, and return it."""
        taken, kept, places = list[R](), list[R](), self._parted(ranges)
        start = end = places[0][0] if places else 0
        for begin, stop in places:
            kept += self._runs[end:begin]
            taken += self._runs[begin:stop]
            end = stop
        self._runs[start:end] = kept
        self._count -= sum(map(len, taken))
        return taken

    def named(self, ranges: Ranges) -> list[R]:
        """Return what ranges in order name, which is kept."""
        return [run for begin, stop in self._parted(ranges) for run in self._runs[begin:stop]]

    def since(self, number: int) -> list[R]:
        """Return what has this number and later ones, which is kept."""
        return self.named(((number, (number + (1 << 31) - 1) % (1 << 32)),))

    def drop(self, is_dropped: Callable[[R], bool]) -> None:
        """Take out each run of which this is true."""
        self._runs = [run for run in self._runs if not is_dropped(run)]
        self._count = sum(map(len, self._runs))

    def _parted(self, ranges: Ranges) -> list[tuple[int, int]]:
        """Cut runs where ranges begin and end; where in the list is what each range names."""
        spans, number = list[tuple[int, int]](), self._last
        for first, last in ranges:  # the first is the nearest to what came last, the others rise
            begin = number + distance(number, first)
            number = begin + distance(first, last)
            spans.append((begin, number + 1))
        self._cut_at([place for span in spans for place in span])
        places, at = list[tuple[int, int]](), 0
        for first, stop in spans:
            begin = bisect_left(self._runs, first, lo=at, key=_number_of)
            at = bisect_left(self._runs, stop, lo=begin, key=_number_of)
            if at > begin:
                places.append((begin, at))
        return places

    def _cut_at(self, numbers: list[int]) -> None:
        """Have no run go across these numbers, which rise: the last of a run is cut off first."""
        runs, rests = self._runs, list[tuple[int, R]]()
        for number in reversed(numbers):
            at = bisect_left(runs, number, key=_number_of)
            if at and (before := runs[at - 1]).number + len(before) > number:
                rests.append((at, before.cut(number - before.number)))
        if rests:
            cut = list[R]()
            start = begin = rests[-1][0]
            for at, rest in reversed(rests):
                cut += [*runs[begin:at], rest]
                begin = at
            runs[start:begin] = cut
