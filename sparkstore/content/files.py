"""Rows of Parquet files, decoded a batch at a time in file order.

Whoever reads a row group reads it as a stream. The next row asked for is nearly always in the batch
at hand or the next one, so it is decoded once, from its start, and kept at hand for the next time.
Messages of several queues may lie in one group, and several consumers read it at places of their
own, in turn. So a group may have several streams, and the one next before a row is moved on to it.
Whose place that was begins anew, from the start, if it comes again: both together decode as many
rows as a second stream would have at once, and less if it does not come.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sparkstore.content.index import GroupKey
from sparkstore.content.rows import Rows

_MAX_STREAMS = 12
"""Each has a page of every column at hand: some 7 MB."""
_READ_BUFFER_BYTES = 1 << 16


class ContentFiles:
    """Streams over immutable files. Not thread-safe: its owner locks.

    Args:
        columns: Read those of them that a file has.
        max_rows: In a batch.
        batch_bytes: About how much one batch decodes.
    """

    def __init__(self, columns: Sequence[str], max_rows: int, batch_bytes: int) -> None:
        self._columns, self._max_rows, self._batch_bytes = columns, max_rows, batch_bytes
        self._streams: list[_Stream] = []  # the one that was used last is the last

    def row(self, key: GroupKey, row: int) -> tuple[Rows, int]:
        """A batch that has a row, and which of its rows that is.

        Raises:
            OSError: The file is gone.
            pyarrow.ArrowException: It is broken.
        """
        stream = self._nearest(key, row)
        if stream is None:
            stream = _Stream(key, self._columns, self._max_rows, self._batch_bytes)
        else:
            self._streams.remove(stream)  # until it is at the row: one that fails stays out
        while row >= stream.end:
            stream.advance()
        self._streams.append(stream)
        del self._streams[:-_MAX_STREAMS]
        return stream.rows, row - stream.first_row

    def _nearest(self, key: GroupKey, row: int) -> _Stream | None:
        """The stream that has the fewest rows to decode up to a row; None: all are past it."""
        before = (each for each in self._streams if each.key == key and each.first_row <= row)
        return max(before, key=lambda each: each.first_row, default=None)

    def forget_all_but(self, paths: set[Path]) -> None:
        """Drop what is known of files that are no longer in the table."""
        self._streams = [stream for stream in self._streams if stream.key.path in paths]


class _Stream:
    """A row group decoded from its start, a batch at a time.

    Attributes:
        key: The row group that it decodes.
        first_row: Number in it of the first row at hand.
        rows: The batch at hand.
    """

    def __init__(
        self, key: GroupKey, columns: Sequence[str], max_rows: int, batch_bytes: int
    ) -> None:
        file = pq.ParquetFile(key.path, buffer_size=_READ_BUFFER_BYTES, pre_buffer=False)
        facts = file.metadata.row_group(key.group)
        names = {name for name in columns if name in file.schema_arrow.names}
        size = sum(
            facts.column(index).total_uncompressed_size
            for index in range(facts.num_columns)
            if facts.column(index).path_in_schema.split(".")[0] in names
        )
        count = max(1, min(max_rows, batch_bytes * facts.num_rows // max(1, size)))
        self._batches = file.iter_batches(
            count, row_groups=[key.group], columns=[*names], use_threads=False
        )
        self._file, self.key = file, key
        self.first_row = 0
        self.rows = Rows(next(self._batches))

    @property
    def end(self) -> int:
        """The row after those that are decoded."""
        return self.first_row + len(self.rows)

    def advance(self) -> None:
        """Decode the next batch; a stream that failed is never used again: it has lost its place.

        Raises:
            pyarrow.ArrowException: It is broken, or has fewer rows than it says.
        """
        batch = next(self._batches, None)
        if batch is None:
            message = f"{self.key.path} ends after {self.end} rows of its group {self.key.group}"
            raise pa.ArrowInvalid(message)
        self.first_row, self.rows = self.end, Rows(batch)
