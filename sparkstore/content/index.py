"""Find the rows of Parquet files that bring content, by message id.

A file's statistics say which message ids it names, but most rows that name an old id only end it
(`dequeued`). So which rows *bring* content is found by reading the narrow columns once for each
row group.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sparkstore.core.records import Kind

_MAX_INDEXES = 16

K = TypeVar("K")
V = TypeVar("V")


class GroupKey(NamedTuple):
    """A row group of a file."""

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
    """Index over immutable files. Not thread-safe: its owner locks."""

    def __init__(self) -> None:
        self._ranges: dict[Path, list[tuple[int, int]]] = {}
        self._indexes: OrderedDict[GroupKey, pa.Table] = OrderedDict()

    def places_of(self, path: Path, message_id: int) -> Iterator[ContentLocation]:
        """The rows of a file that bring this message, or pieces of it, in file order.

        Raises:
            OSError: The file is gone.
            pyarrow.ArrowException: It is broken.
        """
        for group, (least, largest) in enumerate(self._ranges_of(path)):
            if least <= message_id <= largest:
                key = GroupKey(path, group)
                index = self._index(key)
                found = index.filter(pc.equal(index["message_id"], message_id))
                columns = (found[name].to_pylist() for name in ContentLocation._fields[1:])
                for row in zip(*columns, strict=True):
                    yield ContentLocation(key, *row)

    def forget_all_but(self, paths: set[Path]) -> None:
        """Drop what is known of files that are no longer in the table."""
        self._ranges = {path: known for path, known in self._ranges.items() if path in paths}
        forget_all_but(self._indexes, paths)

    def _ranges_of(self, path: Path) -> list[tuple[int, int]]:
        """Least and largest message id that each row group brings; (1, 0) if none."""
        ranges = self._ranges.get(path)
        if ranges is None:
            count = pq.read_metadata(path).num_row_groups
            indexes = (self._index(GroupKey(path, group)) for group in range(count))
            ranges = [
                (1, 0) if ends["min"] is None else (ends["min"], ends["max"])
                for ends in (pc.min_max(index["message_id"]).as_py() for index in indexes)
            ]
            self._ranges[path] = ranges
        return ranges

    def _index(self, key: GroupKey) -> pa.Table:
        index = self._indexes.get(key)
        if index is None:
            index = self._indexes[key] = _read_index(key)
            keep(self._indexes, _MAX_INDEXES)
        self._indexes.move_to_end(key)
        return index


def _read_index(key: GroupKey) -> pa.Table:
    columns = ["message_id", "kind", "protocol", "position", "epoch", "body_offset"]
    with pq.ParquetFile(key.path) as file:
        narrow = file.read_row_group(key.group, columns=columns)
    enqueued = pc.and_(
        pc.equal(narrow["kind"], Kind.ENQUEUED.column), narrow["protocol"].is_valid()
    )
    brings = pc.or_(enqueued, pc.equal(narrow["kind"], Kind.CONTENT.column))
    rows = pc.indices_nonzero(brings.combine_chunks())
    found = narrow.select(["message_id", "position", "epoch", "body_offset"]).take(rows)
    return found.append_column("row", rows)


def keep(kept: OrderedDict[K, V], count: int) -> None:
    """Let what was used longest ago go, down to `count`."""
    while len(kept) > count:
        kept.popitem(last=False)


def forget_all_but(kept: OrderedDict[GroupKey, V], paths: set[Path]) -> None:
    """Drop what is of other files than these."""
    for key in [key for key in kept if key.path not in paths]:
        del kept[key]
