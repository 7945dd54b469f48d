"""Messages by the time at which something is due, in some 16 bytes each and no timer. Pure.

A hierarchical timing wheel: what is far away lies in a bucket of 71 minutes, what is nearer in one
of 67 seconds, then of one second; there it is sorted. A bucket is opened when its time comes, and
what is in it is put into smaller ones. So a message is touched four times, however many there are.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from heapq import heappop, heappush

_SHIFTS = (32, 26, 20)
"""A bucket of each level has 2 to this power µs."""


class TimingWheel:
    """Message ids by a time, UTC µs; `len` counts them, also those that nobody waits for."""

    __slots__ = ("_count", "_levels", "_sorted", "_starts", "_until")

    def __init__(self) -> None:
        self._count = 0
        self._levels: list[dict[int, array[int]]] = [{} for _ in _SHIFTS]
        self._starts: list[list[int]] = [[] for _ in _SHIFTS]  # heaps of the numbers of buckets
        self._until = [0] * len(_SHIFTS)  # buckets of each level below this one were opened
        self._sorted: list[tuple[int, int]] = []  # a heap

    def __len__(self) -> int:
        """The number of ids that are not due yet, or were not asked for."""
        return self._count

    @property
    def next_us(self) -> int | None:
        """Nothing is due before; it may be later than this. None: there is nothing."""
        starts = [
            heap[0] << shift for shift, heap in zip(_SHIFTS, self._starts, strict=True) if heap
        ]
        starts += [at_us for at_us, _id in self._sorted[:1]]
        return min(starts, default=None)

    def add(self, at_us: int, message_id: int) -> None:
        """Note that a message is due at a time."""
        self._count += 1
        self._put(at_us, message_id)

    def due(self, now_us: int, most: int) -> list[int]:
        """Take out messages whose time has come, in the order of their times.

        Who asks again as long as `next_us` has come gets all of them: some calls only open buckets.

        Args:
            now_us: What time it is, UTC µs.
            most: So many messages are touched at most.
        """
        for number, shift in enumerate(_SHIFTS):
            while most and (starts := self._starts[number]) and starts[0] <= now_us >> shift:
                most -= self._open(number, most)
        message_ids: list[int] = []
        while self._sorted and self._sorted[0][0] <= now_us and len(message_ids) < most:
            message_ids.append(heappop(self._sorted)[1])
        self._count -= len(message_ids)
        return message_ids

    def _open(self, number: int, most: int) -> int:
        """Put what is in the first bucket of a level into smaller ones; how many."""
        start = self._starts[number][0]
        pairs = self._levels[number][start]
        some = pairs[-2 * most :]
        del pairs[-2 * most :]
        if not pairs:
            self._until[number] = max(self._until[number], start + 1)
            del self._levels[number][heappop(self._starts[number])]
        for index in range(0, len(some), 2):
            self._put(some[index], some[index + 1], number + 1)
        return len(some) // 2

    def _put(self, at_us: int, message_id: int, first: int = 0) -> None:
        for number in range(first, len(_SHIFTS)):
            start = at_us >> _SHIFTS[number]
            if start >= self._until[number]:
                bucket = self._levels[number].get(start)
                if bucket is None:
                    bucket = self._levels[number][start] = array("q")
                    heappush(self._starts[number], start)
                bucket.extend((at_us, message_id))
                return
        heappush(self._sorted, (at_us, message_id))

    def keep(self, is_wanted: Callable[[int], bool]) -> None:
        """Forget messages that nobody waits for any more."""
        self._sorted = sorted(pair for pair in self._sorted if is_wanted(pair[1]))  # is a heap
        self._count = len(self._sorted)
        for level in self._levels:
            for pairs in level.values():
                timed = pairs[:]
                del pairs[:]
                for index in range(0, len(timed), 2):
                    if is_wanted(timed[index + 1]):
                        pairs.extend(timed[index : index + 2])
                self._count += len(pairs) // 2
