"""The tasks of a write, run as Spark runs them but without a JVM, each by a pickled writer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.serializers import CPickleSerializer
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, StructField, StructType

from broker_shim.spark_sink.writers import QueueStreamWriter, QueueWriter

QUERY = "2b9c1d0e-7a3f-4a55-8f0e-3f6c2a1d9b77"
BODY = StructType([StructField("body", BinaryType())])
Writer = QueueWriter | QueueStreamWriter
Rows = Sequence[Sequence[Any]]


def as_sent(value: Any) -> Any:
    """A value as it comes out at the other end of what Spark sends it through."""
    serializer = CPickleSerializer()
    return serializer.loads(serializer.dumps(value))


@contextmanager
def task(partition: int, query: str | None = None, batch: int | None = None) -> Iterator[None]:
    """Within this the process is a task of Spark: of a stream, if it has a query and a batch."""
    properties = {} if query is None else {"sql.streaming.queryId": query}
    if batch is not None:
        properties["streaming.sql.batchId"] = str(batch)
    told: Any = {"partitionId": partition, "localProperties": properties}
    TaskContext._setTaskContext(None)  # type: ignore[arg-type]
    TaskContext(**told)
    try:
        yield
    finally:
        TaskContext._setTaskContext(None)  # type: ignore[arg-type]


def record_batches(schema: StructType, rows: Rows, size: int = 10_000) -> list[Any]:
    """Rows as Spark hands them to a writer."""
    arrow = to_arrow_schema(schema, timezone="UTC")
    named = [dict(zip(arrow.names, row, strict=True)) for row in rows]
    return [
        pa.RecordBatch.from_pylist(named[start : start + size], schema=arrow)
        for start in range(0, len(named), size)
    ]


def run_tasks(
    writer: Writer,
    schema: StructType,
    partitions: Sequence[Rows],
    query: str | None = None,
    batch: int | None = None,
) -> list[Any]:
    """What each task tells the driver."""
    messages = []
    for number, rows in enumerate(partitions):
        own: Writer = as_sent(writer)
        with task(number, query, batch):
            told = own.write(iter(record_batches(schema, rows)))
        messages.append(as_sent(told))
    return messages
