"""Keep entries of a queue that follow each other as columns: 20 bytes each instead of 300."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress, groupby, repeat
from typing import Any, NamedTuple

from sparkstore.core.annotations import plain_time, plain_time_of
from sparkstore.core.packed_integers import (
    Column,
    Integers,
    PlacedRanges,
    cut,
    is_rising,
    neighbours_in,
    pack,
    pack_keys,
    values_at,
)

CHUNK = 4_096
NEVER = -(1 << 63)
"""Stands for no expiry, and for no delivery time."""
NO_EXPIRY = (1 << 63) - 1
"""The soonest expiry of entries of which none expires."""


@dataclass(slots=True, eq=True)
class Entry:
    """An entry of a queue, which stands for a message on it.

    Attributes:
        position: Position of the record that enqueued it: entries of a queue are in this order.
        at: When it was enqueued, UTC µs.
        priority: 0 to 9.
        expires_at: UTC µs, None for never.
        message_bytes: Header and body.
        acquired_by: The holder of the message; None while it is available.
        delivery_count: Failed deliveries so far.
        detail: What it adds to its message's annotations (`annotations`, JSON); None also says that
            it was never given back.
    """

    position: int
    at: int
    priority: int
    expires_at: int | None
    message_bytes: int
    acquired_by: str | None = None
    delivery_count: int = 0
    detail: str | None = None


Held = tuple[str | None, int, str | None]
"""Holder, delivery count and detail."""

NOBODY: Held = (None, 0, None)
"""Of nearly every entry."""


class Columns(NamedTuple):
    """Entries that follow each other, by the attributes of `Entry`; `NEVER` where none expires.

    Attributes:
        held: Holder, delivery count and detail of each; nothing if all are `NOBODY`.
    """

    positions: Integers
    ats: Integers
    priorities: Integers
    expires_at: Integers
    message_bytes: Integers
    held: Sequence[Held] = ()

    def cut(self, start: int, end: int) -> Columns:
        """Take the columns of the entries from one index to before another."""
        numbers = [cut(column, start, end) for column in self[:-1]]
        return Columns._make((*numbers, self.held[start:end]))


class EntryChunk:
    """A run of a queue's entries, stored as columns.

    Attributes:
        number: Number of the chunk: those of one queue rise.
        keys: Its ids, rising.
        run: Its ids, if each is one more than the one before; else nothing.
        is_there: 1 for each entry, 0 once it was removed.
        held: What is neither `NOBODY` nor just delayed, by index.
        soonest: Nothing that waits here expires before, UTC µs; `NO_EXPIRY`: nothing does.
    """

    __slots__ = (
        "_columns",
        "_delays",
        "_gone",
        "_order",
        "held",
        "ids",
        "is_there",
        "keys",
        "number",
        "run",
        "soonest",
    )

    def __init__(self, number: int, message_ids: Integers, columns: Columns) -> None:
        *numbers, held = columns
        self.number = number
        self.ids: Column
        self._order: array[int] | None = None  # the index of each key, if the ids do not rise
        if is_rising(message_ids):
            self.ids = self.keys = pack_keys(message_ids)
        else:
            self.ids = pack(message_ids)
            order = sorted(range(len(message_ids)), key=message_ids.__getitem__)
            self.keys, self._order = pack_keys([message_ids[at] for at in order]), array("H", order)
        self.run = self.ids.run
        self._columns: tuple[Column, ...] = tuple(map(pack, numbers))
        self.is_there = bytearray(repeat(1, len(message_ids)))
        self.held: dict[int, Held] = {}
        self._delays: Column | None = None  # ms; a million delayed messages are a column, no texts
        if held.count(NOBODY) != len(held):
            same: dict[Held, Held] = {}  # messages that died in one turn are annotated alike
            delays = [_delay_of(holding) for holding in held]
            if delays.count(NEVER) != len(delays):
                self._delays = pack(delays)
            self.held = {
                index: same.setdefault(holding, holding)
                for index, holding in enumerate(held)
                if holding != NOBODY and delays[index] == NEVER
            }
        self._gone = 0
        self.soonest = _soonest(self._columns[3])

    @property
    def is_wasteful(self) -> bool:
        """True if half of the entries are removed; if all that are were the first, seven eighths.

        Those that leave in the order in which they came soon leave an empty chunk anyway.
        """
        count, gone = len(self.is_there), self._gone
        return gone * 2 > count and (gone * 8 >= count * 7 or self.is_there.find(1) != gone)

    def find(self, message_id: int) -> int:
        """The index of an entry that is there; -1 if none has this id."""
        index = self.keys.find(message_id)
        if index >= 0 and self._order is not None:
            index = self._order[index]
        return index if index < 0 or self.is_there[index] else -1

    def entry(self, index: int) -> Entry:
        """An entry as it is now."""
        position, at, priority, end, size = values_at(self._columns, index)
        expires_at = None if end == NEVER else end
        return Entry(position, at, priority, expires_at, size, *self.held_of(index))

    def held_of(self, index: int) -> Held:
        """Return an entry's holder, its delivery count and its annotations."""
        held = self.held.get(index)
        return self._unheld(index) if held is None else held

    def _unheld(self, index: int) -> Held:
        delay = NEVER if self._delays is None else self._delays[index]
        return NOBODY if delay == NEVER else (None, 0, plain_time(delay))

    def message_ids(self) -> Sequence[int]:
        """Return the ids of the entries that are left, in order."""
        if self.run and not self._gone:
            return self.run
        return [*compress(self.ids.values(), self.is_there)]

    def priorities(self) -> Integers:
        """Return the priorities of the entries that are left, in order."""
        priorities = self._columns[2]
        if priorities.offsets is None:
            return priorities.cut(self._gone, len(priorities))
        return [*compress(priorities, self.is_there)]

    def marked(self) -> Iterator[tuple[int, Entry]]:
        """Iterate in order over entries that are acquired, came back before or are annotated."""
        for index in sorted(self.held) if self._delays is None else range(len(self.is_there)):
            if self.is_there[index] and self.held_of(index) != NOBODY:
                yield self.ids[index], self.entry(index)

    def holder(self, index: int) -> tuple[str | None, int]:
        """Return the holder of an entry, and its position."""
        return self.held.get(index, NOBODY)[0], self._columns[0][index]

    def message_bytes(self, start: int, end: int) -> int:
        """Headers and bodies of entries."""
        return sum(self._columns[4].part(start, end))

    def came_at(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The time at which entries came, and how many of them, in their order."""
        for at, group in groupby(self._columns[1].part(start, end)):
            yield at, len([*group])

    def facts(self, start: int, end: int) -> tuple[Iterable[Any], ...]:
        """Tell entries as columns: `at`, `expires_at`, `message_bytes` and `detail`."""
        columns, count = self._columns, end - start
        ends: Iterable[int | None] = columns[3].part(start, end)
        if columns[3].offsets is None and columns[3].base == NEVER:
            ends = [None] * count
        else:
            ends = [None if at == NEVER else at for at in ends]
        held_of = self.held.get if self._delays is None else self.held_of
        details = [held and held[2] for held in map(held_of, range(start, end))]
        return columns[1].part(start, end), ends, columns[4].part(start, end), details

    def columns(self, start: int, end: int) -> tuple[Iterable[Any], ...]:
        """Tell entries as `Columns`, but for who holds them."""
        ats, ends, sizes, details = self.facts(start, end)
        positions, priorities = self._columns[0], self._columns[2]
        counts = [held[1] if held else 0 for held in map(self.held.get, range(start, end))]
        about = ats, priorities.part(start, end), ends, sizes
        return (positions.part(start, end), *about, counts, details)

    def free_until(self, start: int, end: int, holder: str | None) -> int:
        """Find where the entries end that are there, are kept, and that nobody else holds."""
        gone = self.is_there.find(0, start, end)
        end = end if gone < 0 else gone
        if self._columns[0].base <= 0:  # some are kept in memory only
            positions = self._columns[0].part(start, end)
            end = next((start + n for n, at in enumerate(positions) if at <= 0), end)
        if self.held:
            for index, held in enumerate(map(self.held.get, range(start, end)), start):
                if held is not None and held[0] is not None and held[0] != holder:
                    return index
        return end

    def alike_until(self, start: int, most: int) -> int:
        """Find where the entries end that are there and kept alike, have rising ids and one holder.

        Args:
            start: The index of the first, which is there.
            most: Look at no more.
        """
        end, ids, first = min(start + most, len(self.is_there)), self.ids, self.ids[start] - start
        if not self.run:
            end = next((at for at in range(start, end) if ids[at] - at != first), end)
        gone = self.is_there.find(0, start, end)
        end = end if gone < 0 else gone
        if self._columns[0].base <= 0:  # some are kept in memory only
            is_kept = [position > 0 for position in self._columns[0].part(start, end)]
            end = start + [*is_kept, not is_kept[0]].index(not is_kept[0])
        if self.held or self._delays is not None:
            held = self.held_of(start)
            end = next((at for at in range(start, end) if self.held_of(at) != held), end)
        return end

    def about(self, start: int, end: int) -> tuple[Held, bool, Column, Column, Column]:
        """Tell what entries have in common, and their priorities, expiries and sizes."""
        positions, _ats, *columns = self._columns
        priorities, ends, sizes = (column.cut(start, end) for column in columns)
        return self.held_of(start), positions[start] > 0, priorities, ends, sizes

    def hold(self, start: int, end: int, holder: str | None) -> None:
        """Mark entries as acquired by one holder."""
        held, fresh = self.held, (holder, 0, None)
        if self._delays is not None or holder is None:
            for index in range(start, end):
                self.set_held(index, (holder, *self.held_of(index)[1:]))
            return
        for index in range(start, end):
            before = held.get(index)
            held[index] = fresh if before is None else (holder, *before[1:])

    def expired(self, now_us: int) -> list[int]:
        """Return the ids of expired entries that nobody has; `soonest` is exact then."""
        waits = bytearray(self.is_there)
        for index, held in self.held.items():
            if held[0] is not None:
                waits[index] = 0
        ends = self._columns[3].values()
        pending = [end for end in compress(ends, waits) if end != NEVER]
        self.soonest = min(pending, default=NO_EXPIRY)
        if self.soonest > now_us:
            return []
        expired = [NEVER < end <= now_us for end in ends]
        return [self.ids[at] for at in compress(range(len(waits)), waits) if expired[at]]

    def expires_at(self, index: int) -> int:
        """Return the time at which an entry expires; `NO_EXPIRY`: it does not."""
        end = self._columns[3][index]
        return NO_EXPIRY if end == NEVER else end

    def set_held(self, index: int, held: Held) -> None:
        """Set an entry's holder, its delivery count and its annotations."""
        if held[0] is None:
            self.soonest = min(self.soonest, self.expires_at(index))
        if held == self._unheld(index):
            self.held.pop(index, None)
        else:
            self.held[index] = held

    def remove(self, start: int, end: int) -> None:
        """Mark entries that are there as removed from the queue."""
        self.is_there[start:end] = bytes(end - start)
        for index in range(start, end) if self.held else ():
            self.held.pop(index, None)
        self._gone += end - start

    def without_gaps(self) -> EntryChunk:
        """Return the chunk without its removed entries."""
        flags = self.is_there
        first, end = flags.find(1), flags.rfind(1) + 1
        if flags.count(1, first, end) == end - first:  # what came first has left first
            left: Sequence[int] = range(first, end)
            columns = [column.cut(first, end) for column in self._columns]
        else:
            left = [*compress(range(len(flags)), flags)]
            columns = [pack([*compress(column, flags)]) for column in self._columns]
        is_run = bool(self.run) and type(left) is range
        ids = self.run[first:end] if is_run else [self.ids[index] for index in left]
        is_held = self.held or self._delays is not None
        held = [self.held_of(index) for index in left] if is_held else ()
        return EntryChunk(self.number, ids, Columns._make((*columns, held)))


def _soonest(ends: Column) -> int:
    if ends.base != NEVER and type(ends.offsets) is not list:
        return ends.base
    timed = () if ends.offsets is None else ends
    return min((end for end in timed if end != NEVER), default=NO_EXPIRY)


def _delay_of(held: Held) -> int:
    """The delivery time of an entry that is otherwise like nearly every other."""
    holder, count, detail = held
    at_ms = plain_time_of(detail) if holder is None and not count else None
    return NEVER if at_ms is None else at_ms


class PackedEntries:
    """The old entries of a queue, in chunks.

    How an id is found: the ids of a queue rise nearly always. The least id of each chunk that is
    above all before it on the queue rises, too: one bisection finds the chunk, another the entry.
    An id below others before it is a *stray*: enqueued out of turn, moved here, or one of two
    members' blocks of ids. Ranges say which chunk has it. So a range of strays costs 8 bytes, and
    no call is long because there are many.

    Attributes:
        chunks: In the order of the queue.
        count: Entries that are there.
    """

    __slots__ = ("_firsts", "_highest", "_near", "_next", "_strays", "chunks", "count")

    def __init__(self) -> None:
        self.chunks: list[EntryChunk] = []
        self.count = 0
        self._firsts: list[int] = []  # of each chunk: ids below it are strays there
        self._strays = PlacedRanges()  # numbers of chunks
        self._highest = 0  # of all ids packed since it was empty
        self._near = _NO_CHUNK  # where something was found last: what is next is there, too
        self._next = 0

    def find(self, message_id: int) -> tuple[EntryChunk, int] | None:
        """The chunk that has an entry, and its index there; None if no chunk has it."""
        near = self._near
        if message_id in near.run and near.is_there[index := message_id - near.run.start]:
            return near, index
        if message_id > self._highest:
            return None
        number = self._strays.get(message_id) if self._strays.pages else None
        chunk = near
        if number != near.number:
            at = bisect_right(self._firsts, message_id) - 1 if number is None else self._at(number)
            if at < 0:
                return None
            chunk = self.chunks[at]
        index = chunk.find(message_id)
        if index < 0:
            return None
        self._near = chunk
        return chunk, index

    def append(self, message_ids: Integers, columns: Columns) -> EntryChunk:
        """Put a chunk of entries at the end; no more than `CHUNK` of them."""
        highest = self._highest
        self.chunks.append(chunk := EntryChunk(self._next, message_ids, columns))
        self._next += 1
        keys, count = chunk.keys, len(message_ids)
        strays = bisect_right(keys, highest) if keys[0] <= highest else 0
        for message_range in neighbours_in(keys.cut(0, strays).values()) if strays else ():
            self._strays.add(message_range, chunk.number)
        self._firsts.append(keys[strays] if strays < count else highest + 1)
        self._highest = max(highest, keys[count - 1])
        self.count += count
        return chunk

    def remove(self, chunk: EntryChunk, start: int, end: int) -> None:
        """Remove an entry of a chunk, or several whose ids rise by one."""
        if self._strays.pages:
            first = chunk.ids[start]
            self._strays.remove(range(first, first + end - start))
        self.count -= end - start
        chunk.remove(start, end)
        if chunk.is_wasteful:
            self._shrink(chunk)

    def _shrink(self, chunk: EntryChunk) -> None:
        """Leave the entries that are gone out of a chunk; an empty one goes."""
        self._near = _NO_CHUNK
        at = self._at(chunk.number)
        if not any(chunk.is_there):
            del self.chunks[at], self._firsts[at]
            self._highest = self._highest if self.chunks else 0
            return
        self.chunks[at] = chunk.without_gaps()

    def _at(self, number: int) -> int:
        return bisect_left(self.chunks, number, key=_number_of)


def _number_of(chunk: EntryChunk) -> int:
    return chunk.number


_NO_CHUNK = EntryChunk(-1, (-1,), Columns((0,), (0,), (0,), (NEVER,), (0,)))
_NO_CHUNK.run = range(0)
