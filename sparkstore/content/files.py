"""Rows of Parquet files, decoded a batch at a time in file order.

A row group is a stream: the next row asked for is nearly always in the batch at hand or the next
one, so it is decoded once, from its start, and kept at hand for the next time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq

from sparkstore.content.index import GroupKey, forget_all_but, keep
from sparkstore.content.rows import Rows

_MAX_STREAMS = 8
_READ_BUFFER_BYTES = 1 << 20


class ContentFiles:
    """Streams over immutable files. Not thread-safe: its owner locks.

    Args:
        columns: Read those of them that a file has.
        max_rows: In a batch.
        batch_bytes: About how much one batch decodes.
    """

    def __init__(self, columns: Sequence[str], max_rows: int, batch_bytes: int) -> None:
        self._columns, self._max_rows, self._batch_bytes = columns, max_rows, batch_bytes
        self._streams: OrderedDict[GroupKey, _Stream] = OrderedDict()

    def row(self, key: GroupKey, row: int) -> tuple[Rows, int]:
        """A batch that has a row, and which of its rows that is.

        Raises:
            OSError: The file is gone.
            pyarrow.ArrowException: It is broken.
        """
        stream = self._streams.get(key)
        if stream is None or row < stream.first_row:
            stream = self._streams[key] = _Stream(
                key, self._columns, self._max_rows, self._batch_bytes
            )
            keep(self._streams, _MAX_STREAMS)
        self._streams.move_to_end(key)
        while row >= stream.first_row + len(stream.rows):
            stream.advance()
        return stream.rows, row - stream.first_row

    def forget_all_but(self, paths: set[Path]) -> None:
        """Drop what is known of files that are no longer in the table."""
        forget_all_but(self._streams, paths)


class _Stream:
    """A row group decoded from its start, a batch at a time."""

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
        self._file = file
        self.first_row = 0
        self.rows = Rows(next(self._batches))

    def advance(self) -> None:
        """Decode the next batch."""
        self.first_row += len(self.rows)
        self.rows = Rows(next(self._batches))
