"""Find the rows of Parquet files that bring content, by message id.

A file's statistics say which message ids it names, but most rows that name an old id only end it
(`dequeued`). So which rows *bring* content is found by reading the narrow columns once for each
row group. What was found is kept by message id: in memory, then in the scratch file.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sparkstore.content.scratch import Scratch, ScratchPlace
from sparkstore.core.records import Kind
from sparkstore.tables.arrow_values import as_list

_MOST_BYTES = 16 << 20
"""Of indexes in memory; a row takes 40 bytes."""
_COLUMNS = ("message_id", "row", "position", "epoch", "body_offset")


@dataclass(frozen=True, eq=False, slots=True)
class GroupKey:
    """A row group of a file; the index makes one of each, which is equal to no other.

    Attributes:
        path: The Parquet file that has it.
        group: Number of the row group in it.
    """

    path: Path
    group: int


class ContentLocation(NamedTuple):
    """Place of a row that brings a message, or a piece of it.

    Attributes:
        key: In which row group.
        row: Number in it.
        position: Position of the record.
        epoch: Epoch of the record.
        body_offset: Where the piece begins; None for the row that enqueues.
    """

    key: GroupKey
    row: int
    position: int
    epoch: int
    body_offset: int | None


class RowIndex:
    """Index over immutable files. Not thread-safe: its owner locks.

    Args:
        scratch: Keeps what has no room in memory; None: that is read again.
    """

    def __init__(self, scratch: Scratch | None) -> None:
        self._scratch = scratch
        self._groups: dict[Path, list[tuple[GroupKey, int, int]]] = {}
        self._indexes: OrderedDict[GroupKey, _GroupIndex] = OrderedDict()
        self._kept: dict[GroupKey, ScratchPlace] = {}
        self._bytes = 0

    def places_of(self, path: Path, message_id: int) -> Iterator[ContentLocation]:
        """The rows of a file that bring this message, or pieces of it, in file order.

        Raises:
            OSError: The file is gone.
            pyarrow.ArrowException: It is broken.
        """
        for key, least, largest in self._groups_of(path):
            if least <= message_id <= largest:
                for row in self._index(key).rows_of(message_id):
                    yield ContentLocation(key, *row)

    def forget_all_but(self, paths: set[Path]) -> None:
        """Drop what is known of files that are no longer in the table."""
        self._groups = {path: known for path, known in self._groups.items() if path in paths}
        self._kept = {key: place for key, place in self._kept.items() if key.path in paths}
        known = ((key, index) for key, index in self._indexes.items() if key.path in paths)
        self._indexes = OrderedDict(known)
        self._bytes = sum(len(index) for index in self._indexes.values())

    def _groups_of(self, path: Path) -> list[tuple[GroupKey, int, int]]:
        """The row groups of a file, with the least and largest message id that each brings."""
        groups = self._groups.get(path)
        if groups is None:
            count = pq.read_metadata(path).num_row_groups
            keys = [GroupKey(path, number) for number in range(count)]
            groups = [(key, *self._index(key).message_ids) for key in keys]
            self._groups[path] = groups
        return groups

    def _index(self, key: GroupKey) -> _GroupIndex:
        index = self._indexes.get(key)
        if index is None:
            place = self._kept.get(key)
            content = place and self._scratch and self._scratch.read(place)
            index = self._indexes[key] = _GroupIndex(content or _read_index(key))
            self._bytes += len(index)
            while self._bytes > _MOST_BYTES and len(self._indexes) > 1:
                self._let_go()
        self._indexes.move_to_end(key)
        return index

    def _let_go(self) -> None:
        """Keep the index that was used longest ago on disk."""
        key, index = self._indexes.popitem(last=False)
        self._bytes -= len(index)
        place = self._kept.get(key)
        if self._scratch is not None and (place is None or place.file.closed):
            self._kept.update((key, place) for place in self._scratch.write([index.encoded]))


class _GroupIndex:
    """Rows of a group that bring content: five numbers of each, rising by message id, then row.

    Args:
        encoded: The columns after each other, 64 bits a number; -1 for no `body_offset`.
    """

    def __init__(self, encoded: bytes) -> None:
        self.encoded = encoded
        numbers = memoryview(encoded).cast("q")
        count = len(numbers) // len(_COLUMNS)
        self._ids, *self._others = (
            numbers[at * count : (at + 1) * count] for at in range(len(_COLUMNS))
        )

    def __len__(self) -> int:
        """Bytes of memory."""
        return len(self.encoded)

    @property
    def message_ids(self) -> tuple[int, int]:
        """Least and largest message id; (1, 0) if no row brings content."""
        return (self._ids[0], self._ids[-1]) if len(self._ids) else (1, 0)

    def rows_of(self, message_id: int) -> Iterator[tuple[int, int, int, int | None]]:
        """Row, position, epoch and body offset of the rows of a message, in file order."""
        for at in range(bisect_left(self._ids, message_id), len(self._ids)):
            if self._ids[at] != message_id:
                break
            row, position, epoch, body_offset = (column[at] for column in self._others)
            yield row, position, epoch, None if body_offset < 0 else body_offset


def _read_index(key: GroupKey) -> bytes:
    """Read the narrow columns of a row group, and encode what a `_GroupIndex` takes."""
    columns = ["kind", "protocol", *_COLUMNS]
    with pq.ParquetFile(key.path) as file:
        narrow = file.read_row_group(key.group, columns=columns, use_threads=False)
    enqueued = pc.and_(
        pc.equal(narrow["kind"], Kind.ENQUEUED.column), narrow["protocol"].is_valid()
    )
    brings = pc.or_(enqueued, pc.equal(narrow["kind"], Kind.CONTENT.column))
    rows = pc.indices_nonzero(brings.combine_chunks()).cast(pa.int64())
    index = narrow.take(rows).append_column("row", rows)
    index = index.sort_by([("message_id", "ascending"), ("row", "ascending")])
    return b"".join(array("q", as_list(pc.fill_null(index[name], -1))) for name in _COLUMNS)
