"""What waits on a queue with one priority, in the order of arrival. Pure.

    PriorityLevel  chunks of slots, by rising index (an index counts the level's arrivals)
    Chunk          array of 64-bit slots:  id > 0   waits          -id   held, or gone

Giving a message back is a change of sign where it was, so nothing is sorted. Invariant: a chunk is
kept while a slot in it waits or is held, so every held message has a place to go back to; what that
costs is one chunk (8 KiB) for each held message at most.

A message is found by its id through the ranges of ids of chunks: ids mostly rise, and then that is
two bisections. Where they do not (messages moved here from another queue), a chunk ends early, so
that few overlap, and those that do are searched one by one.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import islice

_SLOTS = 1024
_LEAST_SLOTS = 64
"""A chunk that has so many is ended by an id that is not the highest so far."""


class PriorityLevel:
    """Messages of one priority.

    Attributes:
        waiting_count: How many wait.
        end: The index that the next to arrive will have.
    """

    __slots__ = ("_chunks", "_head", "_is_rising", "end", "waiting_count")

    def __init__(self) -> None:
        self._chunks: list[Chunk] = []
        self._head = 0  # no chunk before this one has anything that waits
        self._is_rising = True  # every chunk's ids are above those of the chunks before
        self.waiting_count = 0
        self.end = 0

    def append(self, message_id: int) -> None:
        """It waits after all others."""
        chunk = self._chunks[-1] if self._chunks else None
        if chunk is None or chunk.is_full_for(message_id):
            new = Chunk(self.end, message_id)
            self._is_rising = chunk is None or (self._is_rising and message_id > chunk.highest)
            self._chunks.append(new)
            chunk = new
        elif message_id < chunk.lowest and len(self._chunks) > 1:
            self._is_rising = False
        chunk.append(message_id)
        self.waiting_count += 1
        self.end += 1

    def next(self, index: int) -> tuple[int, int] | None:
        """(index, message id) of the first that waits from an index on; something does wait."""
        chunks = self._chunks
        while not chunks[self._head].waiting_count:
            self._head += 1
        start = self._head
        if index > chunks[start].start:
            start = max(start, self._position(index))
        for chunk in islice(chunks, start, None):
            if chunk.waiting_count:
                offset = chunk.next(max(0, index - chunk.start))
                if offset is not None:
                    return chunk.start + offset, chunk.ids[offset]
        return None

    def look(self, index: int, count: int) -> list[tuple[int, int]]:
        """(index, message id) of those that wait from an index on, `count` at most."""
        found: list[tuple[int, int]] = []
        if index >= self.end or not self.waiting_count:
            return found
        start = max(self._head, self._position(index))
        for chunk in islice(self._chunks, start, None):
            if chunk.waiting_count:
                found += islice(chunk.waiting(max(0, index - chunk.start)), count - len(found))
            if len(found) == count:
                break
        return found

    def find(self, message_id: int) -> int | None:
        """The index where a message waits; None if it does not."""
        for chunk in self._chunks_of(message_id):
            offset = chunk.find(message_id)
            if offset is not None:
                return chunk.start + offset
        return None

    def waits(self, index: int, message_id: int) -> bool:
        """True if this message waits at this index."""
        position = self._position(index)
        if position < 0:
            return False
        chunk = self._chunks[position]
        offset = index - chunk.start
        return offset < len(chunk.ids) and chunk.ids[offset] == message_id

    def hold(self, index: int) -> None:
        """What waits here waits no more."""
        chunk = self._chunks[self._position(index)]
        chunk.turn(index - chunk.start, waits=False)
        self.waiting_count -= 1

    def put_back(self, index: int) -> None:
        """What was held waits again."""
        position = self._position(index)
        chunk = self._chunks[position]
        chunk.turn(index - chunk.start, waits=True)
        self.waiting_count += 1
        self._head = min(self._head, position)

    def drop(self, index: int) -> None:
        """What was held is gone; so is its chunk, if it was the last in it."""
        position = self._position(index)
        chunk = self._chunks[position]
        chunk.held_count -= 1
        if not chunk.held_count and not chunk.waiting_count:
            del self._chunks[position]
            self._head -= position < self._head

    def _position(self, index: int) -> int:
        """Of the chunk that an index is in, or would be; -1 before the first."""
        chunks = self._chunks
        if len(chunks) < 2 or index < chunks[1].start:  # most often, and a bisection costs 1 µs
            return 0 if chunks and index >= chunks[0].start else -1
        head = self._head
        if head + 1 < len(chunks) and chunks[head].start <= index < chunks[head + 1].start:
            return head  # where consumers are
        return bisect_right(chunks, index, key=_start) - 1

    def _chunks_of(self, message_id: int) -> Iterator[Chunk]:
        """Those that may hold a message."""
        if self._is_rising:
            position = bisect_right(self._chunks, message_id, key=_lowest) - 1
            if position >= 0:
                yield self._chunks[position]
            return
        for chunk in self._chunks:
            if chunk.waiting_count and chunk.lowest <= message_id <= chunk.highest:
                yield chunk


class Chunk:
    """Some slots in a row.

    Attributes:
        start: Index of the first.
        ids: The slots: the id of a message that waits, negative once it is held or gone.
        waiting_count: Slots that wait.
        held_count: Slots that are held.
        lowest: Of the ids.
        highest: Of the ids.
    """

    __slots__ = (
        "_first",
        "_is_rising",
        "held_count",
        "highest",
        "ids",
        "lowest",
        "start",
        "waiting_count",
    )

    def __init__(self, start: int, message_id: int) -> None:
        self.start = start
        self.ids = array("q")
        self.waiting_count = 0
        self.held_count = 0
        self.lowest = message_id
        self.highest = 0
        self._first = 0  # no slot before this one waits
        self._is_rising = True

    def is_full_for(self, message_id: int) -> bool:
        """True if a message begins another chunk."""
        size = len(self.ids)
        return size >= _SLOTS or (size >= _LEAST_SLOTS and message_id <= self.highest)

    def append(self, message_id: int) -> None:
        """One more slot, that waits."""
        if message_id > self.highest:
            self.highest = message_id
        else:
            self._is_rising = False
            self.lowest = min(self.lowest, message_id)
        self.ids.append(message_id)
        self.waiting_count += 1

    def next(self, offset: int) -> int | None:
        """The first slot that waits from an offset on; some slot here does."""
        ids, first = self.ids, self._first
        while ids[first] < 0:
            first += 1
        self._first = first
        if offset <= first:
            return first
        return next((at for at in range(offset, len(ids)) if ids[at] > 0), None)

    def waiting(self, offset: int) -> Iterator[tuple[int, int]]:
        """(index, message id) of the slots that wait from an offset on."""
        first = max(offset, self._first)
        for index, message_id in enumerate(self.ids[first:], self.start + first):
            if message_id > 0:
                yield index, message_id

    def find(self, message_id: int) -> int | None:
        """The offset where a message waits; None if it does not."""
        if self._is_rising:
            offset = bisect_left(self.ids, message_id, key=abs)
            if offset < len(self.ids) and self.ids[offset] == message_id:
                return offset
            return None
        try:
            return self.ids.index(message_id)
        except ValueError:
            return None

    def turn(self, offset: int, *, waits: bool) -> None:
        """A slot is held from now on, or waits again."""
        assert (self.ids[offset] < 0) is waits
        self.ids[offset] = -self.ids[offset]
        change = 1 if waits else -1
        self.waiting_count += change
        self.held_count -= change
        if waits:
            self._first = min(self._first, offset)


def _start(chunk: Chunk) -> int:
    return chunk.start


def _lowest(chunk: Chunk) -> int:
    return chunk.lowest
