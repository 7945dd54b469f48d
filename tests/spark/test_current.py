"""The tables of `current`, written without Spark, say what the views say."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from sparkstore.core.annotations import as_detail
from sparkstore.core.records import (
    MessageHeader,
    ids_reserved,
    message_acquired,
    message_enqueued,
    message_released,
    opened,
    queue_created,
)
from sparkstore.current.publication import publish
from sparkstore.tables.root import Root
from sparkstore.views import views
from sparkstore.views.spark_tables import delta_name
from tests.support.spark.tables import HEADER, journal

NOT_THERE = {
    "oldest_age_s", "header", "body", "death_reason", "death_queue", "death_attempts", "died_at",
    "visible_at", "delayed",
}  # fmt: skip
AT = 1_750_000_000_123_456
DETAIL = as_detail(
    {
        "x-opt-death-queue": ("string", "orders"),
        "x-opt-death-time": ("timestamp", "1750000000120"),
        "then": ("timestamp", "1750000000000"),
        "never": ("timestamp", "999999999999999"),
        "before": ("timestamp", "-1"),
    }
)
TYPED = MessageHeader(
    "amqp-1.0",
    b"hh",
    priority=7,
    created_at=AT,
    expires_at=AT + 10**9,
    subject="s",
    header_bytes=2,
    body_bytes=3,
    properties=(("b", "2"), ("a", "ü")),
)


def _rows(spark: SparkSession, columns: str, table: str) -> list[tuple[object, ...]]:
    found = spark.sql(f"SELECT {columns} FROM {table} ORDER BY queue, {columns.split(', ')[1]}")
    return [tuple(row) for row in found.collect()]


@pytest.mark.slow
@pytest.mark.thorough
def test_current_has_the_columns_the_types_and_the_rows_of_the_views(
    spark: SparkSession, root: Root
) -> None:
    records = [opened(AT, "w"), queue_created(AT, "q", "{}"), queue_created(AT, "dead", "{}")]
    put = [
        message_enqueued(AT, "q", 1, TYPED, b"abc"),
        message_enqueued(AT, "q", 2, HEADER, b"abc"),
        message_enqueued(AT, "dead", 3, HEADER, b"abc", detail=DETAIL),
    ]
    held = [
        message_acquired(AT, "q", 1, "one"),
        message_acquired(AT, "q", 2, "other"),
        message_released(AT, "q", 2, 3),
    ]
    journal(root, [*records, ids_reserved(AT, 100), *put, *held])
    publish(root)
    views.register(spark, root, ("queues", "queue_messages"))
    for view, left_out in (
        ("queues", {"as_of", "as_of_position"}),
        ("queue_messages", {"block"}),
    ):
        table = delta_name(root.table(f"current/{view}"))
        there = {field.name: field.dataType for field in spark.table(table).schema}
        viewed = {field.name: field.dataType for field in spark.table(view).schema}
        kept = [name for name in there if name not in left_out]
        assert kept == [name for name in viewed if name not in NOT_THERE]
        assert {name: there[name].simpleString() for name in kept} == {
            name: viewed[name].simpleString() for name in kept
        }
        columns = ", ".join(f"`{name}`" for name in kept)
        assert _rows(spark, columns, table) == _rows(spark, columns, view)
