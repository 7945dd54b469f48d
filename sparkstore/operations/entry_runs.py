"""Runs of a queue's entries: neighbours of which a rule says the same, as columns. Pure.

A run ends where entries differ in who holds them, in their failed deliveries, in their annotations,
or in whether they are kept. Their priorities, expiries and sizes differ freely.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple, TypeVar

from sparkstore.core.entries import Entries, Entry
from sparkstore.core.entry_chunk import NEVER, Held
from sparkstore.core.packed_integers import Column, neighbours_in, pack
from sparkstore.core.records import MessageHeader

T = TypeVar("T")
_KNOWN = MessageHeader(None)
_BEFORE, _BETWEEN = _KNOWN[:3], _KNOWN[6:-3]
_new = tuple.__new__  # a NamedTuple's own constructor is a call of Python for each


class EntryRun(NamedTuple):
    """Entries of one queue whose ids rise by one.

    Attributes:
        message_ids: One at least.
        held: Who has all of them, their failed deliveries, and their annotations.
        is_kept: The log has their content; else it is in the store's memory only.
        priorities: The priority of each.
        expires_at: UTC µs, `NEVER` for none.
        message_bytes: Header and body.
    """

    message_ids: range
    held: Held
    is_kept: bool
    priorities: Column
    expires_at: Column
    message_bytes: Column

    @property
    def acquired_by(self) -> str | None:
        """The holder of all of them; None while they are available."""
        return self.held[0]

    @property
    def delivery_count(self) -> int:
        """The failed deliveries of each."""
        return self.held[1]

    @property
    def detail(self) -> str | None:
        """The annotations that each adds to its message's, as JSON."""
        return self.held[2]

    @property
    def first_expiry(self) -> int | None:
        """When the first of them expires, UTC µs; None for never."""
        return None if self.expires_at[0] == NEVER else self.expires_at[0]

    def part(self, start: int, end: int) -> EntryRun:
        """Take those from one index to before another, one at least."""
        columns = (column.cut(start, end) for column in self[3:])
        return EntryRun(self.message_ids[start:end], self.held, self.is_kept, *columns)

    def parts(self, values: Sequence[T]) -> Iterator[tuple[T, EntryRun]]:
        """Cut it where a value of each differs from that of the one before."""
        if values.count(values[0]) == len(values):
            yield values[0], self
            return
        start = 0
        for value, same in groupby(values):
            end = start + len([*same])
            yield value, self.part(start, end)
            start = end

    def headers(self, ends: Column | None = None) -> Sequence[MessageHeader]:
        """Make what an entry elsewhere needs of each header: one, if all are alike.

        The size of header and body is one sum: an entry keeps no more.

        Args:
            ends: When they expire there, `NEVER` for none; None: when they do here.
        """
        columns = (self.priorities, ends or self.expires_at, self.message_bytes)
        if all(column.offsets is None for column in columns):
            return (_header(*(column.base for column in columns)),)
        return [*map(_header, *columns)]

    def expiring(self, at_us: int | None) -> Column:
        """Make the column by which all of them expire at one time, UTC µs, or never."""
        return Column(NEVER if at_us is None else at_us, None, len(self.message_ids))


def _header(priority: int, end: int, size: int) -> MessageHeader:
    expires_at = None if end == NEVER else end
    fields = *_BEFORE, priority, None, expires_at, *_BETWEEN, size, 0, ()
    return _new(MessageHeader, fields)


def runs_of(entries: Mapping[int, Entry], message_ids: Sequence[int]) -> Iterator[EntryRun]:
    """Iterate over the runs of these messages, in their order; what is not there is left out."""
    find = entries.old.find if isinstance(entries, Entries) else _nowhere
    single = entries.young if isinstance(entries, Entries) else entries
    for neighbours in neighbours_in(message_ids):
        at = 0
        while at < len(neighbours):
            left = neighbours[at:]
            alike = _alike(single, left)
            place = None if alike else find(left[0])
            if alike:
                yield _run(left[: len(alike)], alike)
            elif place is not None:
                chunk, start = place
                end = chunk.alike_until(start, len(left))
                yield EntryRun(left[: end - start], *chunk.about(start, end))
                at += end - start
            at += len(alike) or place is None


def _nowhere(_message_id: int) -> None:
    """Find nothing, as nothing is packed."""


def _alike(entries: Mapping[int, Entry], message_ids: range) -> list[Entry]:
    """Get the entries of the first of these messages, as long as they are there and alike."""
    alike = list[Entry]()
    for message_id in message_ids:
        entry = entries.get(message_id)
        if entry is None or (alike and _about(entry) != _about(alike[0])):
            break
        alike.append(entry)
    return alike


def _about(entry: Entry) -> tuple[Held, bool]:
    held = entry.acquired_by, entry.delivery_count, entry.detail
    return held, entry.position > 0


def _run(message_ids: range, alike: Sequence[Entry]) -> EntryRun:
    ends = [NEVER if entry.expires_at is None else entry.expires_at for entry in alike]
    sizes = [entry.message_bytes for entry in alike]
    columns = pack([entry.priority for entry in alike]), pack(ends), pack(sizes)
    return EntryRun(message_ids, *_about(alike[0]), *columns)
