"""The entries of a queue, in its order: young ones as objects, old ones packed, a few bytes each.

A short queue is a dictionary. When it grows long, its older half is packed into chunks of columns.
An `Entry` with its place in a dictionary takes 300 bytes, a packed one about 20 (measured), which
is what lets millions of messages wait. What happens to a packed entry is written where it is, so
nothing is ever unpacked to be changed, whatever order consumers work in.

How what has expired is found: each chunk, and the young entries together, know a time before which
nothing of theirs expires. Only those whose time has come are looked through, and their time is
exact then. So a message costs nothing for its expiry, and one without expiry is never looked at.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from itertools import chain, compress, islice
from typing import Any, NamedTuple

from sparkstore.core.annotations import DELIVERY_TIME, delivery_time_of
from sparkstore.core.entry_chunk import (
    CHUNK,
    NEVER,
    NO_EXPIRY,
    NOBODY,
    Columns,
    Entry,
    EntryChunk,
    PackedEntries,
)
from sparkstore.core.packed_integers import Integers, cut, is_run, pack

__all__ = ["NEVER", "NO_EXPIRY", "Columns", "Entries", "Entry", "Expired", "Stretch", "stretches"]

_YOUNG = 8_192
"""So many entries at most are objects."""
LEAST_CHUNK = 32
"""Entries that come together and are as many are columns from the beginning."""
_CHUNKS_A_LOOK = 4
"""Chunks that one look for what has expired goes through: 2 ms."""


ChunkColumns = Callable[[EntryChunk, int, int], tuple[Iterable[Any], ...]]


class Expired(NamedTuple):
    """Expired messages that wait on a queue.

    Attributes:
        message_ids: Some of it.
        is_all: There is no more of it now.
    """

    message_ids: list[int]
    is_all: bool


class Stretch(NamedTuple):
    """Entries that follow each other on a queue, as columns.

    Attributes:
        message_ids: In the order of the queue.
        priorities: The priority of each.
        marked: Those that are acquired, came back before, or are annotated: few, nearly always.
    """

    message_ids: Sequence[int]
    priorities: Integers
    marked: Sequence[tuple[int, Entry]]


class EntryFacts(NamedTuple):
    """Columns that some entries of a queue make; 0 and None for what is not there.

    Attributes:
        came_at: When each was enqueued, UTC µs.
        expires_at: UTC µs, None for never.
        message_bytes: Header and body.
        details: What each adds to its message's annotations.
    """

    came_at: Sequence[int | None] = ()
    expires_at: Sequence[int | None] = ()
    message_bytes: Sequence[int] = ()
    details: Sequence[str | None] = ()

    def part(self, part: slice) -> EntryFacts:
        """The same of some of these entries."""
        came_at, expires_at, message_bytes, details = self
        return EntryFacts(came_at[part], expires_at[part], message_bytes[part], details[part])


def facts_of(entries: Mapping[int, Entry], message_ids: Sequence[int]) -> EntryFacts:
    """Tell what entries say of these messages; quickly of a range that is packed."""
    if isinstance(entries, Entries) and is_run(message_ids):
        facts = entries.packed(message_ids, EntryChunk.facts)
        if facts is not None:
            return EntryFacts(*facts)
    get = entries.get
    rows = [
        (None, None, 0, None)
        if (entry := get(message_id)) is None
        else (entry.at, entry.expires_at, entry.message_bytes, entry.detail)
        for message_id in message_ids
    ]
    return EntryFacts(*zip(*rows, strict=True))


def stretches(entries: Mapping[int, Entry]) -> Iterator[Stretch]:
    """Iterate over the entries of a queue in order, many at a time, without an object for each."""
    if isinstance(entries, Entries):
        return entries.stretches()
    return iter([_stretch(entries)] if entries else [])


class Entries(Mapping[int, Entry]):
    """Entries by message id. What is got of it is to be read only: change it by the methods.

    Attributes:
        message_bytes: Bytes of all messages there: headers and bodies.
        soonest: Nothing that waits expires before, UTC µs; `NO_EXPIRY`: nothing does.
        has_delays: Some entry was to be delivered not before a time, since the start.
        old: The older entries, packed.
        young: The others, as objects, which came after them.
    """

    __slots__ = (
        "_young_soonest",
        "has_delays",
        "message_bytes",
        "old",
        "soonest",
        "young",
    )

    def __init__(self) -> None:
        self.young: dict[int, Entry] = {}
        self.old = PackedEntries()
        self.message_bytes = 0
        self.has_delays = False
        self.soonest = self._young_soonest = NO_EXPIRY

    def add(self, message_id: int, entry: Entry) -> None:
        """Put an entry at the end of the queue, which does not have it yet."""
        young = self.young
        young[message_id] = entry
        self.message_bytes += entry.message_bytes
        if entry.detail is not None:
            self._note(entry.detail)
        if entry.expires_at is not None:
            self._expires(entry.expires_at)
        if len(young) > _YOUNG:
            self._pack_older_half()

    def extend(self, message_ids: Integers, columns: Columns) -> None:
        """Put many entries at the end, in their order; the queue has none of them yet."""
        count = len(message_ids)
        self.message_bytes += pack(columns.message_bytes).total
        for detail in filter(None, (held[2] for held in columns.held)):
            self._note(detail)
        if count < LEAST_CHUNK and len(self.young) < _YOUNG:
            few = EntryChunk(0, message_ids, columns)
            self.young.update(zip(message_ids, map(few.entry, range(count)), strict=True))
            self._expires(few.soonest)
            return
        self._pack_all()
        for at in range(0, count, CHUNK):
            self._append_columns(cut(message_ids, at, at + CHUNK), columns.cut(at, at + CHUNK))

    def remove(self, message_ids: Sequence[int]) -> None:
        """Remove entries from the queue, of a range those of a chunk together; KeyError if gone."""
        for chunk, start, end in self._pieces(message_ids):
            if chunk is None:
                self.message_bytes -= self.young.pop(start).message_bytes
            else:
                self.message_bytes -= chunk.message_bytes(start, end)
                self.old.remove(chunk, start, end)

    def hold(self, message_ids: Sequence[int], holder: str | None) -> None:
        """Mark entries as acquired by `holder`, of a range those of a chunk together."""
        for chunk, start, end in self._pieces(message_ids):
            if chunk is None:
                self.young[start].acquired_by = holder
            else:
                chunk.hold(start, end, holder)

    def free(self, message_ids: range, holder: str | None) -> int:
        """Count the first of these messages that are kept here, and that nobody else holds.

        Args:
            message_ids: One at least.
            holder: Who may hold them; None: nobody may.
        """
        count, most = 0, len(message_ids)
        while count < most:
            entry = self.young.get(message_ids[count])
            if entry is not None:
                if entry.position <= 0 or entry.acquired_by not in (None, holder):
                    break
                count += 1
                continue
            place = self.old.find(message_ids[count])
            if place is None:
                break
            chunk, index = place
            end = min(index + most - count, len(chunk.run) or index + 1)
            until = chunk.free_until(index, end, holder)
            count += until - index
            if until < end:
                break
        return count

    def came_at(self, message_ids: Sequence[int]) -> Iterator[tuple[int, int]]:
        """The time at which messages came to the queue, and how many of them, in their order.

        KeyError if one is not there.
        """
        for chunk, start, end in self._pieces(message_ids):
            if chunk is None:
                yield self.young[start].at, 1
            else:
                yield from chunk.came_at(start, end)

    def _pieces(self, message_ids: Sequence[int]) -> Iterator[tuple[EntryChunk | None, int, int]]:
        """Where entries are: a chunk, and from which index to which; or None, and one's id."""
        at, stop, rises_by_one = 0, len(message_ids), is_run(message_ids)
        while at < stop:
            first = message_ids[at]
            if first in self.young:
                at += 1
                yield None, first, 0
                continue
            chunk, index = self._place(first)
            end = (
                min(index + stop - at, len(chunk.run)) if rises_by_one and chunk.run else index + 1
            )
            at += end - index
            yield chunk, index, end

    def packed(self, message_ids: range, columns: ChunkColumns) -> list[list[Any]] | None:
        """Tell packed entries as columns of a chunk; None if one is not there, or is young."""
        try:
            parts = [at and columns(at, start, end) for at, start, end in self._pieces(message_ids)]
        except KeyError:
            return None
        if None in parts:
            return None
        return [[*chain.from_iterable(column)] for column in zip(*filter(None, parts), strict=True)]

    def oldest(self) -> Entry | None:
        """Return the first entry of the queue; None if it is empty."""
        return next(iter(self.values()), None)

    def give_back(self, message_id: int, delivery_count: int, detail: str | None = None) -> None:
        """Make an entry available again, with a new detail if not None; KeyError if it is gone."""
        entry = self.young.get(message_id)
        if detail is not None:
            self._note(detail)
        if entry is not None:
            entry.acquired_by, entry.delivery_count = None, delivery_count
            if detail is not None:
                entry.detail = detail
            if entry.expires_at is not None:
                self._expires(entry.expires_at)
        else:
            chunk, index = self._place(message_id)
            before = chunk.held_of(index)[2]
            kept = before if detail is None else detail
            chunk.set_held(index, (None, delivery_count, kept))
            self.soonest = min(self.soonest, chunk.soonest)

    def expired(self, now_us: int, count: int) -> Expired:
        """Return expired messages that wait: `count` at most, from `_CHUNKS_A_LOOK` chunks at most.

        Who asks again after that has gone, and for what is not all, gets the rest.
        """
        message_ids: list[int] = []
        looks = 0
        for chunk in self.old.chunks:
            if chunk.soonest <= now_us:
                if looks == _CHUNKS_A_LOOK or len(message_ids) >= count:
                    return Expired(message_ids[:count], is_all=False)
                message_ids += chunk.expired(now_us)
                looks += 1
        if self._young_soonest <= now_us:
            if len(message_ids) >= count:
                return Expired(message_ids[:count], is_all=False)
            message_ids += self._expired_young(now_us)
        packed = min((chunk.soonest for chunk in self.old.chunks), default=NO_EXPIRY)
        self.soonest = min(packed, self._young_soonest)
        return Expired(message_ids[:count], is_all=len(message_ids) <= count)

    def _expired_young(self, now_us: int) -> list[int]:
        ends = {
            message_id: entry.expires_at
            for message_id, entry in self.young.items()
            if entry.expires_at is not None and entry.acquired_by is None
        }
        self._young_soonest = min(ends.values(), default=NO_EXPIRY)
        return [message_id for message_id, end in ends.items() if end <= now_us]

    def _note(self, detail: str) -> None:
        self.has_delays = self.has_delays or DELIVERY_TIME in detail

    def _expires(self, at_us: int) -> None:
        if at_us < self._young_soonest:
            self._young_soonest = at_us
            self.soonest = min(self.soonest, at_us)

    def __getitem__(self, message_id: int) -> Entry:
        """The entry as it is now."""
        entry = self.young.get(message_id)
        if entry is not None:
            return entry
        chunk, index = self._place(message_id)
        return chunk.entry(index)

    def get(self, message_id: int, default: None = None) -> Entry | None:  # type: ignore[override]
        """Return an entry or the default, as `Mapping.get`, without the cost of an exception."""
        entry = self.young.get(message_id)
        if entry is not None:
            return entry
        place = self.old.find(message_id)
        return default if place is None else place[0].entry(place[1])

    def holder(self, message_id: int) -> tuple[str | None, int] | None:
        """Return an entry's holder and position; None if it is not on the queue.

        Cheaper than `get`.
        """
        entry = self.young.get(message_id)
        if entry is not None:
            return entry.acquired_by, entry.position
        place = self.old.find(message_id)
        return None if place is None else place[0].holder(place[1])

    def __contains__(self, message_id: object) -> bool:
        """True if the message is on the queue."""
        if message_id in self.young:
            return True
        return isinstance(message_id, int) and self.old.find(message_id) is not None

    def __len__(self) -> int:
        """The number of entries on the queue."""
        return self.old.count + len(self.young)

    def __iter__(self) -> Iterator[int]:
        """Message ids in queue order."""
        for chunk in [*self.old.chunks]:
            yield from chunk.message_ids()
        yield from self.young

    def items(self) -> ItemsView[int, Entry]:
        """Ids and entries in queue order, made as they are asked for."""
        return _Items(self)

    def values(self) -> ValuesView[Entry]:
        """Entries in queue order."""
        return _Values(self)

    def walk(self) -> Iterator[tuple[int, Entry]]:
        """Iterate over ids and entries in queue order."""
        for chunk in [*self.old.chunks]:
            for index in compress(range(len(chunk.is_there)), chunk.is_there):
                yield chunk.ids[index], chunk.entry(index)
        yield from self.young.items()

    def marked(self) -> Iterator[tuple[int, Entry]]:
        """Iterate over the few entries that are acquired, came back before, or are annotated."""
        for chunk in [*self.old.chunks]:
            yield from chunk.marked()
        yield from _marked(self.young)

    def delayed_count(self, now_us: int) -> int:
        """Count entries that nobody has, and nobody may get yet."""
        details = (e.detail for _, e in self.marked() if e.acquired_by is None)
        return int(self.has_delays and sum((delivery_time_of(d) or 0) > now_us for d in details))

    def parts(self) -> Iterator[Sequence[int]]:
        """Iterate over the ids as of now, in queue order, many at a time; `range` where they rise.

        The queue may change meanwhile: what left may still be named, what came is not. A chunk gets
        no others, and the young are listed now.
        """
        chunks = [*self.old.chunks]
        return chain((chunk.message_ids() for chunk in chunks), ([*self.young],))

    def stretches(self) -> Iterator[Stretch]:
        """Iterate over the entries in queue order, many at a time.

        The queue may change between two: none is left out that is there all the time, as the young
        ones get another dictionary when some are packed. What left may still be told.
        """
        chunks, young = [*self.old.chunks], self.young
        for chunk in chunks:
            yield Stretch(chunk.message_ids(), chunk.priorities(), [*chunk.marked()])
        yield from map(_stretch, filter(None, (young,)))

    def __repr__(self) -> str:
        """Show the entries as a dictionary."""
        return f"Entries({dict(self.walk())})"

    def _place(self, message_id: int) -> tuple[EntryChunk, int]:
        place = self.old.find(message_id)
        if place is None:
            raise KeyError(message_id)
        return place

    def _pack_older_half(self) -> None:
        walk = iter(self.young.items())
        for _ in range(_YOUNG // 2 // CHUNK):
            self._append_entries([*islice(walk, CHUNK)])
        self.young = dict(walk)

    def _pack_all(self) -> None:
        walk = iter(self.young.items())
        while part := [*islice(walk, CHUNK)]:
            self._append_entries(part)
        self.young = {}

    def _append_columns(self, message_ids: Integers, columns: Columns) -> None:
        self.soonest = min(self.soonest, self.old.append(message_ids, columns).soonest)

    def _append_entries(self, part: list[tuple[int, Entry]]) -> None:
        entries = [entry for _, entry in part]
        self._append_columns(
            [message_id for message_id, _ in part],
            Columns(
                [entry.position for entry in entries],
                [entry.at for entry in entries],
                [entry.priority for entry in entries],
                [NEVER if entry.expires_at is None else entry.expires_at for entry in entries],
                [entry.message_bytes for entry in entries],
                [(entry.acquired_by, entry.delivery_count, entry.detail) for entry in entries],
            ),
        )


def _marked(entries: Mapping[int, Entry]) -> Iterator[tuple[int, Entry]]:
    for message_id, entry in entries.items():
        if (entry.acquired_by, entry.delivery_count, entry.detail) != NOBODY:
            yield message_id, entry


def _stretch(entries: Mapping[int, Entry]) -> Stretch:
    return Stretch([*entries], [e.priority for e in entries.values()], [*_marked(entries)])


class _Items(ItemsView[int, Entry]):
    """Ids and entries, without a look-up for each."""

    _mapping: Entries

    def __iter__(self) -> Iterator[tuple[int, Entry]]:
        return self._mapping.walk()


class _Values(ValuesView[Entry]):
    """Entries, without a look-up for each."""

    _mapping: Entries

    def __iter__(self) -> Iterator[Entry]:
        return (entry for _, entry in self._mapping.walk())
