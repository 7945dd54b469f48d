"""Rows that bring a message, found in Parquet files by message id and decoded a batch at a time.

A file's statistics say which message ids it names, but most rows that name an old id only end it
(`dequeued`); so which rows *bring* content is found by reading the narrow columns once for each
row group. After that a row group is a stream: batches are decoded in file order, and the next row
asked for is nearly always in the batch at hand or the next one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sparkstore.records import Kind, Record
from sparkstore.rows import to_records
from sparkstore.schema import ROW

_MAX_INDEXES = 8
_MAX_STREAMS = 4
_MAX_BATCH_ROWS = 1024
_READ_BUFFER_BYTES = 1 << 20
_COLUMNS = [name for name in ROW.names if name != "segment"]

K = TypeVar("K")
V = TypeVar("V")

Placed = tuple[int, int, Record]
"""(position, epoch, record) of one row."""


class GroupKey(NamedTuple):
    """A row group of a file."""

    path: Path
    group: int


class Index(NamedTuple):
    """Which rows of a row group bring content: row numbers and, beside them, message ids."""

    rows: pa.Array
    message_ids: pa.Array

    def find(self, message_id: int) -> list[int]:
        """Numbers of the rows that bring this message, or pieces of it."""
        found: list[int] = self.rows.filter(pc.equal(self.message_ids, message_id)).to_pylist()
        return found


class ContentFiles:
    """Index and streams over immutable files. Not thread-safe: its owner locks.

    Args:
        batch_bytes: About how much one batch decodes.
        on_batch: Gets every batch that was decoded, for a cache.
    """

    def __init__(self, batch_bytes: int, on_batch: Callable[[list[Placed]], None]) -> None:
        self._batch_bytes = batch_bytes
        self._on_batch = on_batch
        self._ranges: dict[Path, list[tuple[int, int]]] = {}
        self._indexes: OrderedDict[GroupKey, Index] = OrderedDict()
        self._streams: OrderedDict[GroupKey, _Stream] = OrderedDict()

    def rows_of(self, path: Path, message_id: int) -> Iterator[Placed]:
        """The rows of a file that bring this message, or pieces of it, in file order.

        Raises:
            OSError: The file is gone.
            pyarrow.ArrowException: It is broken.
        """
        for group, (least, largest) in enumerate(self._ranges_of(path)):
            if least <= message_id <= largest:
                key = GroupKey(path, group)
                for row in self._index(key).find(message_id):
                    yield self._row(key, row)

    def forget_all_but(self, paths: set[Path]) -> None:
        """Drop what is known of files that are no longer in the table."""
        self._ranges = {path: known for path, known in self._ranges.items() if path in paths}
        for kept in (self._indexes, self._streams):
            for key in [key for key in kept if key.path not in paths]:
                del kept[key]

    def _ranges_of(self, path: Path) -> list[tuple[int, int]]:
        """Least and largest message id that each row group brings; (1, 0) if none."""
        ranges = self._ranges.get(path)
        if ranges is None:
            count = pq.read_metadata(path).num_row_groups
            indexes = (self._index(GroupKey(path, group)) for group in range(count))
            ranges = [
                (least["min"] or 1, least["max"] or 0)
                for least in (pc.min_max(index.message_ids).as_py() for index in indexes)
            ]
            self._ranges[path] = ranges
        return ranges

    def _index(self, key: GroupKey) -> Index:
        index = self._indexes.get(key)
        if index is None:
            index = self._indexes[key] = _read_index(key)
            _keep(self._indexes, _MAX_INDEXES)
        self._indexes.move_to_end(key)
        return index

    def _row(self, key: GroupKey, row: int) -> Placed:
        stream = self._streams.get(key)
        if stream is None or row < stream.first_row:
            stream = self._streams[key] = _Stream(key, self._batch_bytes)
            _keep(self._streams, _MAX_STREAMS)
        self._streams.move_to_end(key)
        while row >= stream.first_row + len(stream.batch):
            self._on_batch(stream.advance())
        return stream.batch[row - stream.first_row]


class _Stream:
    """A row group decoded from its start, a batch at a time."""

    def __init__(self, key: GroupKey, batch_bytes: int) -> None:
        file = pq.ParquetFile(key.path, buffer_size=_READ_BUFFER_BYTES, pre_buffer=False)
        facts = file.metadata.row_group(key.group)
        row_bytes = max(1, facts.total_byte_size // max(1, facts.num_rows))
        rows = max(1, min(_MAX_BATCH_ROWS, batch_bytes // row_bytes))
        columns = [name for name in _COLUMNS if name in file.schema_arrow.names]
        self._batches = file.iter_batches(
            rows, row_groups=[key.group], columns=columns, use_threads=False
        )
        self.first_row = 0
        self.batch: list[Placed] = []

    def advance(self) -> list[Placed]:
        """Decode the next batch."""
        first_row = self.first_row + len(self.batch)
        self.batch = list(to_records(pa.Table.from_batches([next(self._batches)])))
        self.first_row = first_row
        return self.batch


def _read_index(key: GroupKey) -> Index:
    with pq.ParquetFile(key.path) as file:
        narrow = file.read_row_group(key.group, columns=["message_id", "kind", "protocol"])
    enqueued = pc.and_(
        pc.equal(narrow["kind"], Kind.ENQUEUED.column), narrow["protocol"].is_valid()
    )
    brings = pc.or_(enqueued, pc.equal(narrow["kind"], Kind.CONTENT.column))
    rows = pc.indices_nonzero(brings.combine_chunks())
    return Index(rows, narrow["message_id"].combine_chunks().take(rows))


def _keep(kept: OrderedDict[K, V], count: int) -> None:
    while len(kept) > count:
        kept.popitem(last=False)
