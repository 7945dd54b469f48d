"""Rows of Parquet files: decoded once in file order, then found again in any order.

Parquet is decoded from the start of a row group, so a row far inside costs all before it. Whoever
reads one queue asks for rows in file order, and the next one is in the batch at hand or the next
batch: a group is read as a stream. Where messages of many queues lie mixed, their consumers come
back again and again for rows that were passed. So a batch that is left before all of it was wanted
goes to the scratch file, as Arrow has it in memory and in parts of some rows, each of which is read
back by itself in microseconds. A group is decoded once for all who read it, as far as they read.

Without a scratch file, or when it has let the rows go, they are decoded again. Several who read a
group at places of their own have a stream each: the one next before a row is moved on to it.

Columns of which a group says that all values are null are not decoded: two thirds of a header's.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sparkstore.content.index import GroupKey
from sparkstore.content.rows import Rows
from sparkstore.content.scratch import Scratch, ScratchPlace

_MAX_STREAMS = 12
"""Each has a page of every column at hand: some 7 MB."""
_PARTS = 32
"""A batch is kept in so many parts, some 64 KB each."""
_READ_BUFFER_BYTES = 1 << 16


class ContentFiles:
    """Rows of immutable files. Not thread-safe: its owner locks.

    Args:
        columns: Read those of them that a file has.
        max_rows: In a batch.
        batch_bytes: About how much one batch decodes.
        scratch: Keeps what was decoded; None: nothing is kept.
    """

    def __init__(
        self, columns: Sequence[str], max_rows: int, batch_bytes: int, scratch: Scratch | None
    ) -> None:
        self._columns, self._max_rows, self._batch_bytes = columns, max_rows, batch_bytes
        self._scratch = scratch
        self._groups: dict[GroupKey, _Group] = {}
        self._streams: list[_Stream] = []  # the one that was used last is the last
        self._last: tuple[_Group, int] | None = None  # the part that was read back last
        self._last_rows = self._asked = Rows(pa.record_batch({}))

    def row(self, key: GroupKey, row: int) -> tuple[Rows, int]:
        """Return decoded rows around one that is asked for, and its place among them.

        Raises:
            OSError: The file is gone.
            pyarrow.ArrowException: It is broken.
        """
        rows, place = self._found(key, row)
        rows.is_asked_again, self._asked = rows is self._asked, rows
        return rows, place

    def _found(self, key: GroupKey, row: int) -> tuple[Rows, int]:
        streams = [stream for stream in self._streams if stream.group.key is key]
        stream = next((stream for stream in streams if stream.first_row <= row < stream.end), None)
        if stream is None:
            kept = self._kept(key, row)
            if kept is not None:
                return kept
            stream = self._moved_on(key, row, streams)
        else:
            self._streams.remove(stream)
        self._streams.append(stream)
        for unused in self._streams[:-_MAX_STREAMS]:
            self._keep(unused)
        del self._streams[:-_MAX_STREAMS]
        return stream.rows, row - stream.first_row

    def _moved_on(self, key: GroupKey, row: int, streams: Sequence[_Stream]) -> _Stream:
        """Decode up to a row: by the stream that is next before it, or from the start."""
        before = [stream for stream in streams if stream.end <= row]
        if before:
            stream = max(before, key=lambda stream: stream.end)
            self._streams.remove(stream)  # until it is at the row: one that fails stays out
        else:
            stream = self._opened(key)
        while row >= stream.end:
            self._keep(stream)
            stream.advance()
        return stream

    def _opened(self, key: GroupKey) -> _Stream:
        file = pq.ParquetFile(key.path, buffer_size=_READ_BUFFER_BYTES, pre_buffer=False)
        if key not in self._groups:
            facts = file.metadata.row_group(key.group)
            chunks = [facts.column(index) for index in range(facts.num_columns)]
            has_values = {_name(chunk) for chunk in chunks if not _is_null(chunk)}
            present = has_values.intersection(self._columns)
            size = sum(chunk.total_uncompressed_size for chunk in chunks if _name(chunk) in present)
            count = min(self._max_rows, self._batch_bytes * facts.num_rows // max(1, size))
            names = [name for name in self._columns if name in present]
            self._groups[key] = _Group(key, names, max(1, count))
        return _Stream(file, self._groups[key])

    def _keep(self, stream: _Stream) -> None:
        """Keep the parts of a batch that was not made ready whole, unless they are kept."""
        group, rows = stream.group, stream.rows
        first, is_between = divmod(stream.first_row, group.part_rows)
        if self._scratch is None or is_between or rows.is_ahead:
            return
        parts = range(first, first - (-len(rows) // group.part_rows))
        if any(part not in group.kept or group.kept[part].file.closed for part in parts):
            places = self._scratch.write(rows.serialized(group.part_rows))
            group.kept.update(zip(parts, places, strict=False))

    def _kept(self, key: GroupKey, row: int) -> tuple[Rows, int] | None:
        """Read back the decoded rows around one; None if they are not kept any more."""
        group = self._groups.get(key)
        if group is None or self._scratch is None:
            return None
        part, at = divmod(row, group.part_rows)
        if self._last != (group, part):
            place = group.kept.get(part)
            content = place and self._scratch.read(place)
            if content is None:
                group.kept.pop(part, None)
                return None
            batch = pa.ipc.read_record_batch(pa.py_buffer(content), group.schema)
            self._last, self._last_rows = (group, part), Rows(batch, is_part=True)
        rows = self._last_rows
        return (rows, at) if at < len(rows) else None

    def forget_all_but(self, paths: set[Path]) -> None:
        """Drop what is known of files that are no longer in the table."""
        self._streams = [one for one in self._streams if one.group.key.path in paths]
        self._groups = {key: one for key, one in self._groups.items() if key.path in paths}
        self._last = None


class _Group:
    """A row group: how it is decoded, and which parts of it are kept.

    Attributes:
        key: Which one it is.
        names: Columns that are decoded.
        part_rows: Rows of a part.
        batch_rows: Rows of a batch, which ends where a part does.
        schema: Of every batch and part.
        kept: The parts in the scratch file, by number.
    """

    def __init__(self, key: GroupKey, names: Sequence[str], most_rows: int) -> None:
        self.key, self.names = key, names
        self.part_rows = max(1, most_rows // _PARTS)
        self.batch_rows = most_rows - most_rows % self.part_rows
        self.schema = pa.schema([])
        self.kept: dict[int, ScratchPlace] = {}


class _Stream:
    """A row group decoded from its start, a batch at a time.

    Attributes:
        group: The row group that it decodes.
        first_row: Number in it of the first row at hand.
        end: The row after those that are decoded.
        rows: The batch at hand.
    """

    def __init__(self, file: pq.ParquetFile, group: _Group) -> None:
        self._file, self.group = file, group
        self._batches = file.iter_batches(
            group.batch_rows,
            row_groups=[group.key.group],
            columns=group.names,
            use_threads=False,
        )
        self.first_row = self.end = 0
        self.rows: Rows
        self.advance()

    def advance(self) -> None:
        """Decode the next batch; a stream that failed is never used again: it has lost its place.

        Raises:
            pyarrow.ArrowException: It is broken, or has fewer rows than it says.
        """
        batch = next(self._batches, None)
        if batch is None:
            key = self.group.key
            message = f"{key.path} ends after {self.end} rows of its group {key.group}"
            raise pa.ArrowInvalid(message)
        self.group.schema = batch.schema
        self.first_row, self.end, self.rows = self.end, self.end + len(batch), Rows(batch)


def _name(chunk: pq.ColumnChunkMetaData) -> str:
    return str(chunk.path_in_schema).partition(".")[0]


def _is_null(chunk: pq.ColumnChunkMetaData) -> bool:
    """True if a column is known to have no value in a row group."""
    facts = chunk.statistics
    return facts is not None and facts.has_null_count and facts.null_count == chunk.num_values
