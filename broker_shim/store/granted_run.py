"""The messages that a service grants to one subscription together, as columns. Pure.

GRANTED says it so, with one value where all of a column are alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any, NamedTuple

from broker_shim.store import protocol as wire
from sparkstore.core.entries import Entries
from sparkstore.core.entry_chunk import Entry, EntryChunk
from sparkstore.core.packed_integers import is_run


class GrantedRun(NamedTuple):
    """Messages that are acquired for one consumer.

    Attributes:
        subscription: The number by which the member calls the consumer's subscription.
        message_ids: In their order.
        facts: What the entry of each says, as columns in the order of the protocol's `entry`.
        headers: The header of each, if it comes along; else None.
        contents: The content of each, likewise.
    """

    subscription: int
    message_ids: Sequence[int]
    facts: Sequence[Sequence[Any]]
    headers: Sequence[Any]
    contents: Sequence[bytes | None]

    def packed(self) -> tuple[Any, ...]:
        """The run as GRANTED has it."""
        contents = self.contents[:1] if not any(map(_is_there, self.contents)) else self.contents
        columns = [*map(_shared, self.facts)], _shared(self.headers), contents
        return (self.subscription, [*self.message_ids], *columns)

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Iterate over its messages, one by one."""
        entries = zip(*self.facts, strict=True)
        return zip(repeat(self.subscription), self.message_ids, entries, *self[3:], strict=False)

    def parts(self, most_bytes: int) -> Iterator[tuple[int, GrantedRun]]:
        """Cut it into runs that take so many bytes at most, or are of one; bytes, and the run."""
        sizes = [
            200 + len(content or b"") + (header.header_bytes if header else 0)
            for header, content in zip(self.headers, self.contents, strict=True)
        ]
        if sum(sizes) <= most_bytes:
            yield sum(sizes), self
            return
        start = size = 0
        for index, more in enumerate(sizes):
            if index > start and size + more > most_bytes:
                yield size, self._part(slice(start, index))
                start, size = index, 0
            size += more
        yield size, self._part(slice(start, None)) if start else self

    def _part(self, part: slice) -> GrantedRun:
        columns = [column[part] for column in self.facts], self.headers[part], self.contents[part]
        return GrantedRun(self.subscription, self.message_ids[part], *columns)


def columns_of(entries: Entries, message_ids: Sequence[int]) -> list[list[Any]]:
    """Tell entries as the columns of a grant; KeyError if one is not there."""
    columns = entries.packed(message_ids, EntryChunk.columns) if is_run(message_ids) else None
    if columns is None:
        rows = [shown(entries[message_id]) for message_id in message_ids]
        columns = [[*column] for column in zip(*rows, strict=True)]
    return columns


def shown(entry: Entry) -> tuple[Any, ...]:
    """An entry without its holder, as LINK and LOOKED tell it."""
    return (
        entry.position,
        entry.at,
        entry.priority,
        entry.expires_at,
        entry.message_bytes,
        entry.delivery_count,
        entry.detail,
    )


def runs_of(body: wire.Body) -> Iterator[GrantedRun]:
    """Read GRANTED. Raises ValueError if it lies about its lengths."""
    return map(_unpacked, body)


def _unpacked(body: wire.Body) -> GrantedRun:
    subscription, message_ids, facts, headers, contents = body
    columns = [_each(column, len(message_ids)) for column in (*facts, headers, contents)]
    return GrantedRun(subscription, message_ids, columns[:-2], *columns[-2:])


def _is_there(content: object) -> bool:
    return content is not None


def _shared(column: Sequence[Any]) -> Sequence[Any]:
    """Return the one value that all of a column are, in a list; else the column."""
    return column[:1] if column.count(column[0]) == len(column) else column


def _each(column: tuple[Any, ...], count: int) -> tuple[Any, ...]:
    if len(column) == 1:
        return column * count
    if len(column) != count:
        message = f"a run of {count} messages with a column of {len(column)}"
        raise ValueError(message)
    return column
