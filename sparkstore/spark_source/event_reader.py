"""The reader of a stream of events: offsets in the driver, record batches in tasks.

Why no event is missed or seen twice. An offset is a position that counts, which is durable
(`record_log`), and a batch is the records after one offset up to the next. Positions have no gap
and records never change, so a batch is a fixed set of records: whatever compaction, trim, merge or
restart moves between `latestOffset` and `read`, a task reads each position of its range once, or
fails (`record_range`). Partitions cut the range without overlap. A batch that Spark runs again has
the same offsets, and so the same records.

An offset names its root and the record that it ends with. A root that was restored, or a promoted
replica that lacked the newest records, has another record at that position, or none. Then the
records from that point on, as the stream has read them, are lost: the stream ends, or goes on with
those that took their place (`failOnDataLoss`).

Where executors have not the root's folder (option `readInDriver`), and of a root in a bucket, the
driver reads the ranges, and a partition has the rows themselves. The driver has a copy of the
bucket, which `latestOffset` brings up.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from sparkstore.bucket.bucket_download import BucketCopy
from sparkstore.core.records import Kind
from sparkstore.errors import InvalidRequest
from sparkstore.spark_source.columns import as_asked
from sparkstore.spark_source.event_columns import (
    check_event_columns,
    has_content,
    stored_columns,
    with_content,
    with_sizes,
)
from sparkstore.spark_source.range_plan import planned_ranges
from sparkstore.spark_source.record_log import RecordLog, RecordPlace
from sparkstore.spark_source.record_range import (
    RecordRange,
    RecordsLost,
    read_range,
)
from sparkstore.spark_source.stream_options import EventStreamSettings
from sparkstore.spark_source.stream_position import StreamPosition
from sparkstore.storage.objects import is_object_uri
from sparkstore.tables.root import open_root

_BATCH_ROWS = 1 << 14
_WINDOW = 1 << 16
"""So many records are looked at together for their sizes."""
_MOST_SHIPPED = 1_000_000
_SHIPPED_RECORDS, _SHIPPED_BYTES = 100_000, 64 << 20
"""What a batch has at most that the driver reads, unless its stream is limited otherwise: it is in
the driver's memory, and in the descriptions of its tasks."""
_SIZES = ("position", "kind", "header_bytes", "body_bytes")


class RangePartition(InputPartition):
    """A range of positions, which one task reads."""


class EventStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the events of a root as its log has them. See `DataSourceStreamReader`."""

    def __init__(self, settings: EventStreamSettings, schema: StructType) -> None:
        """Check that the columns are there.

        Args:
            settings: The options of the stream, checked.
            schema: The columns that are asked for.

        Raises:
            InvalidRequest: A column is not there, or there is no root.
        """
        check_event_columns(schema.names)
        if not settings.reads_in_driver:
            open_root(settings.root)
        elif not (settings.max_records or settings.max_bytes):
            settings = settings._replace(max_records=_SHIPPED_RECORDS, max_bytes=_SHIPPED_BYTES)
        self._settings, self._schema = settings, schema
        self._copy: BucketCopy | None = None
        self._target: RecordPlace | None = None
        self._ended = RecordPlace()

    def __reduce__(self) -> tuple[Any, ...]:
        """Go to a task without what this process knows of the log."""
        return EventStreamReader, (self._settings, self._schema)

    @cached_property
    def _log(self) -> RecordLog:
        """The log of the folder, or of a copy of the bucket, which is made now."""
        if not is_object_uri(self._settings.root):
            return RecordLog(self._settings.root)
        self._copy = BucketCopy(self._settings.root)
        self._copy.bring_up()
        return RecordLog(str(self._copy.folder))

    @cached_property
    def _place(self) -> StreamPosition:
        return StreamPosition(self._log, self._settings)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return where a new stream begins, as the option startingPosition says.

        Raises:
            InvalidRequest: It names a position or a time that is not there, or the option queue
                one that is not.
        """
        return self._place.offset(self._place.first())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of the options; the other one holds as well, if both are given."""
        if self._settings.max_records:
            return ReadMaxRows(self._settings.max_records)
        if self._settings.max_bytes:
            return ReadMaxBytes(self._settings.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember the log's end as it is now: this run reads no further."""
        self._target = self._log.end()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next batch; `start` as it is if there is nothing new.

        Raises:
            InvalidRequest: The offset is of another root, or records are lost.
        """
        if self._copy is not None:
            self._copy.bring_up()
        after = self._place.resumed(start)
        end = self._log.end()
        if self._target is not None and self._target.position < end.position:
            end = self._target
        self._ended = end if end.position <= after else RecordPlace(after)
        if end.position <= after:
            return start
        last = self._limited(after, end.position, limit)
        if last < end.position:
            place = self._log.at_position(last)
            end = RecordPlace(last) if place is None else place
        self._ended = end
        return self._place.offset(end)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """Say for the progress of the query how far it is behind, in records and in seconds."""
        end, read = self._log.end(), self._ended.position
        oldest = self._log.at_position(read + 1) if read < end.position else None
        behind_us = time.time_ns() // 1000 - oldest.at if oldest else 0
        behind = {"recordsBehind": max(0, end.position - read)}
        return self._place.offset(end) | behind | {"secondsBehind": max(0, behind_us) / 1_000_000}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Cut a batch into ranges, each for one task.

        Raises:
            InvalidRequest: The offset is of another root, or records are lost.
        """
        after, last = self._place.resumed(start), self._place.resumed(end)
        if after >= last:
            return []
        journal, history = self._log.files()
        wanted, names = RecordRange(after, last), self._schema.names
        ranges = planned_ranges(history, journal, wanted, has_content=has_content(names))
        if self._settings.reads_in_driver:
            return [RangePartition(_encoded(self._rows(part))) for part in ranges]
        return [RangePartition(tuple(part)) for part in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a range of positions, in a task; or what the driver has read of it.

        Raises:
            InvalidRequest: Its first records are gone, and the stream fails on that.
        """
        schema = to_arrow_schema(self._schema, timezone="UTC")
        if isinstance(partition.value, bytes):
            rows = pa.ipc.open_stream(partition.value).read_all()
        else:
            rows = self._rows(RecordRange(*partition.value))
        for batch in rows.to_batches(_BATCH_ROWS):
            yield as_asked(batch, schema)

    def _rows(self, wanted: RecordRange) -> pa.Table:
        columns = [*dict.fromkeys([*stored_columns(self._schema.names), "position"])]
        rows = self._rows_left(wanted, columns)
        rows = with_content(self._log.root(), rows, self._settings)
        return with_sizes(rows) if "message_bytes" in self._schema.names else rows

    def _rows_left(self, wanted: RecordRange, columns: list[str]) -> pa.Table:
        """Read a range; what retention has dropped of it is an error, or left out."""
        root, where = self._log.root(), _filter(self._settings)
        try:
            return read_range(root, wanted, columns, where)
        except RecordsLost as reason:
            if self._settings.fails_on_loss:
                advice = "set failOnDataLoss = false to go on with it"
                raise InvalidRequest(f"{reason}: {advice}") from reason
            left = RecordRange(min(reason.first_left - 1, wanted.last), wanted.last)
            return read_range(root, left, columns, where)

    def _limited(self, after: int, end: int, limit: ReadLimit) -> int:
        """Return the last position of the next batch."""
        if isinstance(limit, ReadAllAvailable):
            return end
        last = min(end, after + (self._settings.max_records or end))
        if isinstance(limit, ReadMaxRows):
            last = min(last, after + limit.max_rows)
        if self._settings.max_bytes is None:
            return last
        return self._cut_by_bytes(after, last, self._settings.max_bytes)

    def _cut_by_bytes(self, after: int, last: int, most: int) -> int:
        """Return the last position up to which the stream's messages have so many bytes.

        The batch has one message at least.
        """
        position, left = after, most
        while position < last:
            window = RecordRange(position, min(last, position + _WINDOW))
            rows = self._rows_left(window, [*_SIZES])
            total = pc.cumulative_sum(_sizes(rows))
            over = pc.index(pc.greater(total, left), True).as_py()
            if over >= 0:
                cut: int = rows["position"][over].as_py() - 1
                is_first = left == most and not (over and total[over - 1].as_py())
                return cut + 1 if is_first else cut
            left -= total[-1].as_py() if len(total) else 0
            position = window.last
        return last


class EventBatchReader(DataSourceReader):
    """Reads the events that a new stream would have in its first batch. See `DataSourceReader`."""

    def __init__(self, settings: EventStreamSettings, schema: StructType) -> None:
        """Take the options of a stream, but for limits of a batch, as `EventStreamReader` does.

        Raises:
            InvalidRequest: An option would have no effect.
        """
        if settings.max_records or settings.max_bytes:
            raise InvalidRequest("a read has no trigger: limit a stream, or filter on position")
        self._stream = EventStreamReader(settings, schema)
        self._reads_in_driver = settings.reads_in_driver

    def partitions(self) -> Sequence[InputPartition]:
        """Cut the records that there are now into ranges, each for one task."""
        start = self._stream.initialOffset()
        end = self._stream.latestOffset(start, ReadAllAvailable())
        count = end["position"] - start["position"]
        if self._reads_in_driver and count > _MOST_SHIPPED:
            message = f"these are {count:,} records, and the driver reads {_MOST_SHIPPED:,} at most"
            raise InvalidRequest(f"{message}: give startingPosition, or use a stream")
        return self._stream.partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a range of positions, in a task."""
        return self._stream.read(partition)


def _encoded(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    return bytes(sink.getvalue())


def _sizes(rows: pa.Table) -> pa.ChunkedArray:
    sizes = pc.add(pc.coalesce(rows["header_bytes"], 0), pc.coalesce(rows["body_bytes"], 0))
    return pc.if_else(pc.equal(rows["kind"], Kind.ENQUEUED.column), sizes, 0)


def _filter(settings: EventStreamSettings) -> ds.Expression | None:
    """Return which records are of the stream, None: all."""
    condition: ds.Expression | None = None
    if settings.kinds:
        condition = ds.field("kind").isin(settings.kinds)
    if settings.queue:
        of_queue = ds.field("queue") == settings.queue
        condition = of_queue if condition is None else condition & of_queue
    return condition
