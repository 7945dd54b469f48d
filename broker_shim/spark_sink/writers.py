"""The writers that Spark drives: `write` on its executors, `commit` or `abort` on its driver.

Spark pickles a writer with its tasks, and makes a new one for each micro-batch. So a writer has
values only. What a task has staged it tells the driver in its commit message: its branches, and the
batch that they are of.

A micro-batch is named by the query's id and the batch's number, which Spark hands to tasks as local
properties of their context, the same when it runs the batch again. A batch write is a batch of its
own, unless the options `txnAppId` and `txnVersion` number it. The tasks of one in `foreachBatch`
have the query's id as well: with it the service tells a batch that runs again from one of another
query that was given the same name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from broker_shim.completion import Completion
from broker_shim.errors import InvalidRequest, Unavailable
from broker_shim.spark_sink.message_columns import MessageColumns
from broker_shim.spark_sink.sink_settings import SinkSettings, read_settings
from broker_shim.spark_sink.staged_rows import StagedRows, find_route, roll_back
from broker_shim.spark_sink.task_store import open_store
from sparkstore.core.state_machine.publications import UNNUMBERED
from sparkstore.core.xids import Xid

_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
_ROWS = 1_000


@dataclass(frozen=True, slots=True)
class StagedPart(WriterCommitMessage):
    """The part of a batch that one task has staged.

    Attributes:
        stream: Name of the publication.
        batch: The number of the batch in that stream.
        partition: Number of the task's partition.
        xids: The branches, in the order of the rows.
        writer: The query that this is a task of; None: of none.
    """

    stream: str
    batch: int
    partition: int
    xids: list[Xid] = field(default_factory=list)
    writer: str | None = None


class QueueWriter(DataSourceArrowWriter):
    """Writes a DataFrame to a queue or an exchange, all of it or nothing."""

    def __init__(self, schema: StructType, options: Any, *, overwrite: bool) -> None:
        """Check the call, and that the target is there.

        Args:
            schema: Of the rows.
            options: Of the write, by their names.
            overwrite: True for `mode("overwrite")`, which a queue has not.

        Raises:
            InvalidRequest: An option, a column or the target is not as it must be.
        """
        self._settings = _checked(schema, options, overwrite=overwrite)
        self._schema = schema
        with open_store(self._settings) as store:
            find_route(store, self._settings)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Stage the rows of one task. See `DataSourceArrowWriter.write`."""
        version = self._settings.version
        batch = UNNUMBERED if version is None else version
        return _stage(self._settings, self._schema, iterator, self._settings.stream, batch)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish what all tasks have staged. See `DataSourceWriter.commit`."""
        _publish(self._settings, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Roll back what tasks have staged. See `DataSourceWriter.abort`."""
        _abort(self._settings, messages)


class QueueStreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches to a queue or an exchange, each of them once."""

    def __init__(self, schema: StructType, options: Any, *, overwrite: bool) -> None:
        """Check the options of the write.

        Args:
            schema: Of the rows.
            options: Of the write, by their names.
            overwrite: True for the output mode `complete`, which a queue has not.

        Raises:
            InvalidRequest: An option or a column is not as it must be.
        """
        self._settings = _checked(schema, options, overwrite=overwrite)
        self._schema = schema
        if self._settings.version is not None:
            message = "txnAppId and txnVersion are for batch writes: a stream numbers its batches"
            raise InvalidRequest(message)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Stage the rows of one task. See `DataSourceStreamArrowWriter.write`."""
        stream, batch = _micro_batch()
        return _stage(self._settings, self._schema, iterator, stream, batch)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Publish what all tasks have staged of a batch. See `DataSourceStreamWriter.commit`."""
        for part in _parts(messages):
            if part.batch != batchId:
                message = f"a task staged batch {part.batch}, and Spark commits batch {batchId}"
                raise InvalidRequest(message)
        _publish(self._settings, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Roll back what tasks have staged of a batch. See `DataSourceStreamWriter.abort`."""
        _abort(self._settings, messages)


def _checked(schema: StructType, options: Any, *, overwrite: bool) -> SinkSettings:
    if overwrite:
        message = (
            "a queue cannot be overwritten: write with mode('append'), or outputMode('append') or"
            " ('update')"
        )
        raise InvalidRequest(message)
    settings = read_settings(dict(options))
    MessageColumns(schema)
    return settings


def _micro_batch() -> tuple[str, int]:
    """Read the query and the batch that this task is of.

    Raises:
        InvalidRequest: This is no task of a stream.
    """
    context = TaskContext.get()
    query = None if context is None else context.getLocalProperty(_QUERY)
    batch = None if context is None else context.getLocalProperty(_BATCH)
    if query is None or batch is None:
        message = f"Spark tells no {_QUERY} and {_BATCH}: use PySpark 4.2, which this is made for"
        raise InvalidRequest(message)
    return query, int(batch)


def _stage(
    settings: SinkSettings, schema: StructType, batches: Iterator[Any], stream: str, batch: int
) -> StagedPart:
    context = TaskContext.get()
    partition = 0 if context is None else context.partitionId()
    columns = MessageColumns(schema)
    with open_store(settings) as store:
        route = find_route(store, settings)
        rows = StagedRows(store, stream, batch, partition, settings.wait_s)
        xids = rows.stage(_rows(batches), columns, route)
    writer = None if context is None else context.getLocalProperty(_QUERY)
    return StagedPart(stream, batch, partition, xids, writer)


def _rows(batches: Iterable[Any]) -> Iterator[Sequence[Any]]:
    """Rows of record batches; some at a time, since they are larger as values of Python."""
    return chain.from_iterable(
        zip(*(column.to_pylist() for column in part.columns), strict=True)
        for batch in batches
        for part in (batch.slice(start, _ROWS) for start in range(0, batch.num_rows, _ROWS))
    )


def _parts(messages: Iterable[WriterCommitMessage | None]) -> list[StagedPart]:
    """The commit messages of the tasks, by their partitions."""
    parts = [message for message in messages if isinstance(message, StagedPart)]
    return sorted(parts, key=lambda part: part.partition)


def _publish(settings: SinkSettings, messages: Iterable[WriterCommitMessage | None]) -> None:
    """Publish what a batch has staged.

    Raises:
        StoreError: Nothing of it is on a queue; or Unavailable: that is not known.
    """
    parts = _parts(messages)
    if not parts:
        return
    published = Completion()
    xids = [xid for part in parts for xid in part.xids]
    with open_store(settings) as store:
        store.publish(parts[0].stream, parts[0].batch, xids, published.finish, parts[0].writer)
        try:
            published.complete()
        except Unavailable as reason:
            message = (
                f"the store service did not answer for {settings.wait_s:g} s, so it is not known"
                f" whether this batch is on its queues ({reason}): a stream finds out when it"
                " starts again, and so does a write with txnAppId and txnVersion"
            )
            raise Unavailable(message) from reason


def _abort(settings: SinkSettings, messages: Iterable[WriterCommitMessage | None]) -> None:
    xids = [xid for part in _parts(messages) for xid in part.xids]
    if not xids:
        return
    with open_store(settings) as store:
        roll_back(store, xids)
