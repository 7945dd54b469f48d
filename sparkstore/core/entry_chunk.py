"""Keep entries of a queue that follow each other as columns: 20 bytes each instead of 300."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress, repeat

from sparkstore.core.annotations import plain_time, plain_time_of
from sparkstore.core.packed_integers import Column, Keys, pack, pack_keys, values_at

_NEVER = -(1 << 63)
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


Columns = tuple[
    Sequence[int],
    Sequence[int],
    Sequence[int],
    Sequence[int | None],
    Sequence[int],
    Sequence[str | None],
    Sequence[int],
    Sequence[str | None],
]
"""One for each attribute of `Entry`, in its order."""


Held = tuple[str | None, int, str | None]
"""Holder, delivery count and detail."""

NOBODY: Held = (None, 0, None)
"""Of nearly every entry."""


class EntryChunk:
    """A run of a queue's entries, stored as columns.

    Attributes:
        number: Number of the chunk: those of one queue rise.
        run: Its ids, if each is one more than the one before; else nothing.
        is_there: 1 for each entry, 0 once it was removed.
        held: What is neither `NOBODY` nor just delayed, by index.
        soonest: Nothing that waits here expires before, UTC µs; `NO_EXPIRY`: nothing does.
    """

    __slots__ = (
        "_columns",
        "_delays",
        "_gone",
        "held",
        "ids",
        "is_there",
        "keys",
        "number",
        "run",
        "soonest",
    )

    def __init__(
        self, number: int, keys: Sequence[int], message_ids: Sequence[int], columns: Columns
    ) -> None:
        positions, ats, priorities, expires_at, sizes, *held = columns
        self.number = number
        self.keys: Keys = pack_keys(keys)
        self.ids: Column = self.keys if keys is message_ids else pack(message_ids)
        self.run = self.ids.run
        self._columns: tuple[Column, ...] = (
            pack(positions),
            pack(ats),
            pack(priorities),
            _packed_ends(expires_at),
            pack(sizes),
        )
        self.is_there = bytearray(repeat(1, len(message_ids)))
        self.held: dict[int, Held] = {}
        self._delays: Column | None = None  # ms; a million delayed messages are a column, no texts
        if not all(map(_is_all, NOBODY, held)):
            same: dict[Held, Held] = {}  # messages that died in one turn are annotated alike
            delays = [_delay_of(holding) for holding in zip(*held, strict=True)]
            if not _is_all(_NEVER, delays):
                self._delays = pack(delays)
            self.held = {
                index: same.setdefault(holding, holding)
                for index, holding in enumerate(zip(*held, strict=True))
                if holding != NOBODY and delays[index] == _NEVER
            }
        self._gone = 0
        self.soonest = min((end for end in expires_at if end is not None), default=NO_EXPIRY)

    @property
    def is_wasteful(self) -> bool:
        """True if half of the entries are removed, or all."""
        return self._gone * 2 > len(self.is_there)

    def entry(self, index: int) -> Entry:
        """An entry as it is now."""
        position, at, priority, end, size = values_at(self._columns, index)
        expires_at = None if end == _NEVER else end
        return Entry(position, at, priority, expires_at, size, *self.held_of(index))

    def held_of(self, index: int) -> Held:
        """Return an entry's holder, its delivery count and its annotations."""
        held = self.held.get(index)
        return self._unheld(index) if held is None else held

    def _unheld(self, index: int) -> Held:
        delay = _NEVER if self._delays is None else self._delays[index]
        return NOBODY if delay == _NEVER else (None, 0, plain_time(delay))

    def message_ids(self) -> Sequence[int]:
        """Return the ids of the entries that are left, in order."""
        if self.run and not self._gone:
            return self.run
        return [*compress(self.ids.values(), self.is_there)]

    def priorities(self) -> list[int]:
        """Return the priorities of the entries that are left, in order."""
        return [*compress(self._columns[2].values(), self.is_there)]

    def marked(self) -> Iterator[tuple[int, Entry]]:
        """Iterate in order over entries that are acquired, came back before or are annotated."""
        for index in sorted(self.held) if self._delays is None else range(len(self.is_there)):
            if self.is_there[index] and self.held_of(index) != NOBODY:
                yield self.ids[index], self.entry(index)

    def holder(self, index: int) -> tuple[str | None, int]:
        """Return the holder of an entry, and its position."""
        return self.held.get(index, NOBODY)[0], self._columns[0][index]

    def message_bytes(self, index: int) -> int:
        """Header and body of an entry."""
        return self._columns[4][index]

    def expired(self, now_us: int) -> list[int]:
        """Return the ids of expired entries that nobody has; `soonest` is exact then."""
        waits = bytearray(self.is_there)
        for index, held in self.held.items():
            if held[0] is not None:
                waits[index] = 0
        ends = self._columns[3].values()
        pending = [end for end in compress(ends, waits) if end != _NEVER]
        self.soonest = min(pending, default=NO_EXPIRY)
        if self.soonest > now_us:
            return []
        expired = [_NEVER < end <= now_us for end in ends]
        return [self.ids[at] for at in compress(range(len(waits)), waits) if expired[at]]

    def expires_at(self, index: int) -> int:
        """Return the time at which an entry expires; `NO_EXPIRY`: it does not."""
        end = self._columns[3][index]
        return NO_EXPIRY if end == _NEVER else end

    def set_held(self, index: int, held: Held) -> None:
        """Set an entry's holder, its delivery count and its annotations."""
        if held[0] is None:
            self.soonest = min(self.soonest, self.expires_at(index))
        if held == self._unheld(index):
            self.held.pop(index, None)
        else:
            self.held[index] = held

    def remove(self, index: int) -> None:
        """Mark an entry as removed from the queue."""
        self.is_there[index] = 0
        self.held.pop(index, None)
        self._gone += 1

    def without_gaps(self) -> EntryChunk:
        """Return the chunk without its removed entries."""
        left = [*compress(range(len(self.is_there)), self.is_there)]
        ids = [self.ids[index] for index in left]
        keys = ids if self.ids is self.keys else [self.keys[index] for index in left]
        columns = [[column[index] for index in left] for column in self._columns]
        held = [self.held_of(index) for index in left]
        positions, ats, priorities, ends, sizes = columns
        expires_at = [None if at == _NEVER else at for at in ends]
        return EntryChunk(
            self.number,
            keys,
            ids,
            (
                positions,
                ats,
                priorities,
                expires_at,
                sizes,
                [holder for holder, _, _ in held],
                [count for _, count, _ in held],
                [detail for _, _, detail in held],
            ),
        )


def _delay_of(held: Held) -> int:
    """The delivery time of an entry that is otherwise like nearly every other."""
    holder, count, detail = held
    at_ms = plain_time_of(detail) if holder is None and not count else None
    return _NEVER if at_ms is None else at_ms


def _packed_ends(expires_at: Sequence[int | None]) -> Column:
    if _is_all(None, expires_at):
        return Column(_NEVER, None, len(expires_at))
    return pack([_NEVER if at is None else at for at in expires_at])


def _is_all(value: object, values: Sequence[object]) -> bool:
    return values.count(value) == len(values)
