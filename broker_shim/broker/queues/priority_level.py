"""The waiting messages of one priority of a queue, in the order of arrival. Pure.

    PriorityLevel  chunks of slots, by rising index (an index counts the level's arrivals)
    Chunk          array of slots:  n > 0   the message base + n waits      -n   held, or gone

A slot has 16 bits, which is enough while the ids of a chunk lie close together, else 64. While all
of a chunk's messages wait, or all are held, and their ids rise by one, its slots are a `range`:
they take no room, and what is done to all of them takes one step.

Giving a message back is a change of sign where it was, so nothing is sorted. Invariant: a chunk is
kept while a slot in it waits or is held, so every held message has a place to go back to. That
costs one chunk (2 or 8 KiB) for each held message at most.

A message is found by its id through the ranges of ids of chunks: ids mostly rise, and then that is
two bisections. Where they do not (messages moved here from another queue), a chunk ends early, so
that few overlap, and those that do are searched one by one.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice
from operator import neg

from sparkstore.core.packed_integers import is_rising, is_run, neighbours_in

_SLOTS = 1024
_MOST_NARROW = (1 << 15) - 1
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

    @property
    def highest(self) -> int:
        """No message has a higher id, whether it waits or is held."""
        chunks = self._chunks[-1:] if self._is_rising else self._chunks
        return max((chunk.highest for chunk in chunks), default=0)

    def extend(self, message_ids: Sequence[int]) -> None:
        """Add messages that wait after all others, in this order."""
        at = 0
        while at < len(message_ids):
            message_id = message_ids[at]
            chunk = self._chunks[-1] if self._chunks else None
            if chunk is None or chunk.is_full_for(message_id):
                new = Chunk(self.end, message_id)
                self._is_rising = chunk is None or (self._is_rising and message_id > chunk.highest)
                self._chunks.append(new)
                chunk = new
            elif message_id < chunk.lowest and len(self._chunks) > 1:
                self._is_rising = False
            count = chunk.extend(message_ids[at : at + _SLOTS])
            self.waiting_count += count
            self.end += count
            at += count

    def look(self, index: int, count: int) -> list[tuple[int, int]]:
        """Get the index and id of messages that wait from an index on, `count` at most."""
        waiting: list[tuple[int, int]] = []
        if index >= self.end or not self.waiting_count:
            return waiting
        while not self._chunks[self._head].waiting_count:
            self._head += 1
        start = max(self._head, self._position(index))
        for chunk in islice(self._chunks, start, None):
            if chunk.waiting_count:
                waiting += chunk.waiting(max(0, index - chunk.start), count - len(waiting))
            if len(waiting) == count:
                break
        return waiting

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
        return offset < len(chunk.slots) and chunk.slots[offset] == message_id - chunk.base

    def hold(self, indexes: Sequence[int]) -> None:
        """Mark waiting messages as held."""
        for index, count in self._pieces(indexes):
            self.hold_run(index, count)

    def find_run(self, message_ids: range) -> tuple[int, int] | None:
        """Find the first of these messages, and those after it that wait behind it, in a chunk.

        Returns:
            The index of the first, and how many; None if the first does not wait.
        """
        for chunk in self._chunks_of(message_ids[0]):
            offset = chunk.find(message_ids[0])
            if offset is not None:
                return chunk.start + offset, chunk.run_length(offset, len(message_ids))
        return None

    def hold_run(self, index: int, count: int) -> None:
        """Mark messages as held that `find_run` found."""
        chunk = self._chunks[self._position(index)]
        chunk.hold_run(index - chunk.start, count)
        self.waiting_count -= count

    def put_back(self, index: int) -> None:
        """Mark a held message as waiting again, at its old place."""
        position = self._position(index)
        chunk = self._chunks[position]
        chunk.waits_again(index - chunk.start)
        self.waiting_count += 1
        self._head = min(self._head, position)

    def drop(self, indexes: Sequence[int]) -> None:
        """Forget held messages, and each chunk that has none left."""
        for index, count in self._pieces(indexes):
            self.drop_run(index, count)

    def drop_run(self, index: int, count: int) -> None:
        """Forget messages that `hold_run` marked as held."""
        chunk = self._chunks[self._position(index)]
        chunk.held_count -= count
        if not chunk.held_count and not chunk.waiting_count:
            self._end_chunk(index)

    def _pieces(self, indexes: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Part indexes, in order, into those that follow each other in one chunk."""
        for some in neighbours_in(indexes):
            index, end = some[0], some[-1] + 1
            while index < end:
                chunk = self._chunks[self._position(index)]
                count = min(end, chunk.start + len(chunk.slots)) - index
                yield index, count
                index += count

    def _end_chunk(self, index: int) -> None:
        position = self._position(index)
        del self._chunks[position]
        head = self._head - (position < self._head)
        # Never past the last one, which may have room: what arrives waits there.
        self._head = max(0, min(head, len(self._chunks) - 1))

    def _position(self, index: int) -> int:
        """Find the chunk that an index is in, or would be; -1 before the first."""
        chunks = self._chunks
        if len(chunks) < 2 or index < chunks[1].start:  # most often, and a bisection costs 1 µs
            return 0 if chunks and index >= chunks[0].start else -1
        head = self._head
        if head + 1 < len(chunks) and chunks[head].start <= index < chunks[head + 1].start:
            return head  # where consumers are
        return bisect_right(chunks, index, key=_start) - 1

    def _chunks_of(self, message_id: int) -> Iterator[Chunk]:
        """Find the chunks that may hold a message."""
        if self._is_rising:
            position = bisect_right(self._chunks, message_id, key=_lowest) - 1
            if position >= 0:
                yield self._chunks[position]
            return
        for chunk in self._chunks:
            if chunk.waiting_count and chunk.lowest <= message_id <= chunk.highest:
                yield chunk


class Chunk:
    """A run of slots with rising indexes.

    Attributes:
        start: Index of the first.
        slots: What is above `base` of the id of a message, negative once it is held or gone.
        base: Below all ids of the chunk.
        waiting_count: Slots that wait.
        held_count: Slots that are held.
        lowest: Of the ids.
        highest: Of the ids.
    """

    __slots__ = (
        "_first",
        "_is_rising",
        "base",
        "held_count",
        "highest",
        "lowest",
        "slots",
        "start",
        "waiting_count",
    )

    def __init__(self, start: int, message_id: int) -> None:
        self.start = start
        self.slots: array[int] | range = range(1, 1)
        self.base = message_id - 1
        self.waiting_count = 0
        self.held_count = 0
        self.lowest = message_id
        self.highest = 0
        self._first = 0  # no slot before this one waits
        self._is_rising = True

    def is_full_for(self, message_id: int) -> bool:
        """True if a message begins another chunk."""
        size = len(self.slots)
        return size >= _SLOTS or (size >= _LEAST_SLOTS and message_id <= self.highest)

    def extend(self, message_ids: Sequence[int]) -> int:
        """Add waiting slots, as many as rise and fit, or one that does not rise; how many."""
        first = message_ids[0]
        if first > self.highest:
            some = message_ids[: _SLOTS - len(self.slots)]
            if not is_rising(some):
                some = some[:1]
            self.highest = some[-1]
        else:
            some = message_ids[:1]
            self._is_rising = False
            self.lowest = min(self.lowest, first)
        if not self.base < first <= some[-1] <= self.base + _MOST_NARROW:
            self._widen()
        base, slots = self.base, self.slots
        is_one_run = is_run(some) or len(some) == 1
        if is_one_run and type(slots) is range and slots.stop == first - base:
            self.slots = range(slots.start, some[-1] - base + 1)
        else:
            self.loose().extend([message_id - base for message_id in some])
        self.waiting_count += len(some)
        return len(some)

    def loose(self) -> array[int]:
        """Have a number for each slot, and return them, to be changed."""
        if isinstance(self.slots, range):
            self.slots = array("h", self.slots)
        return self.slots

    def run_length(self, offset: int, most: int) -> int:
        """Count slots that wait and whose ids rise by one, from an offset on."""
        slots, end = self.slots, min(offset + most, len(self.slots))
        if isinstance(slots, range):
            return end - offset
        at, wanted = offset, slots[offset]
        while at < end and slots[at] == wanted:  # what is no run is left at once
            at += 1
            wanted += 1
        return at - offset

    def hold_run(self, offset: int, count: int) -> None:
        """Hold slots that wait, from an offset on."""
        slots = self.slots
        if isinstance(slots, range) and count == len(slots):
            self.slots = range(-slots.start, -slots.stop, -1)
        else:
            slots, end = self.loose(), offset + count
            slots[offset:end] = array(slots.typecode, map(neg, slots[offset:end]))
        self.waiting_count -= count
        self.held_count += count

    def _widen(self) -> None:
        """Let a slot hold a whole id from now on, as the ids lie far apart."""
        slots = self.loose()
        if slots.typecode == "q":
            return
        base, self.base = self.base, 0
        self.slots = array("q", [n + base if n > 0 else n - base for n in slots])

    def waiting(self, offset: int, count: int) -> list[tuple[int, int]]:
        """Get the index and id of slots that wait from an offset on, `count` at most."""
        slots, base, first = self.slots, self.base, self._first
        while slots[first] < 0:  # some slot waits
            first += 1
        self._first = first
        at, waiting = max(offset, first), list[tuple[int, int]]()
        while at < len(slots) and len(waiting) < count:
            some = slots[at : at + count - len(waiting)]
            start = self.start + at
            waiting += [(index, base + n) for index, n in enumerate(some, start) if n > 0]
            at += len(some)
        return waiting

    def find(self, message_id: int) -> int | None:
        """The offset where a message waits; None if it does not."""
        slot = message_id - self.base
        if self._is_rising:
            offset = bisect_left(self.slots, slot, key=abs)
            if offset < len(self.slots) and self.slots[offset] == slot:
                return offset
            return None
        try:
            return self.slots.index(slot)
        except ValueError:
            return None

    def waits_again(self, offset: int) -> None:
        """Mark a held slot as waiting."""
        slots = self.loose()
        assert slots[offset] < 0
        slots[offset] = -slots[offset]
        self.waiting_count += 1
        self.held_count -= 1
        self._first = min(self._first, offset)


def _start(chunk: Chunk) -> int:
    return chunk.start


def _lowest(chunk: Chunk) -> int:
    return chunk.lowest
