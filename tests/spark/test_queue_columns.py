"""A column of a queue that is declared is in the view of Spark, with its type."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from sparkstore import queue_columns
from sparkstore.core.records import ids_reserved, message_enqueued, opened, queue_created
from sparkstore.embedded import answers
from sparkstore.queue_columns import QueueColumn
from sparkstore.tables.root import Root
from sparkstore.views import views
from tests.support.spark.tables import HEADER, journal

AT = 1_750_000_000_000_000
TOY = QueueColumn("toy", "bigint", "Seven times the messages.", "toys", part="7 * count(*)")


def test_a_column_that_is_declared_is_in_the_view(
    spark: SparkSession, root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_columns, "COLUMNS", [*queue_columns.COLUMNS, TOY])
    monkeypatch.setattr(answers, "_known_schema", answers._known_schema.__wrapped__)
    records = [opened(AT, "w"), queue_created(AT, "q", "{}"), ids_reserved(AT, 100)]
    journal(root, [*records, message_enqueued(AT, "q", 1, HEADER, b"abc")])
    views.register(spark, root, ("queues",))
    rows = spark.sql("SELECT toy, oldest_age_s > 0 AS old, durability FROM queues")
    assert rows.dtypes[0] == ("toy", "bigint")
    assert [tuple(row) for row in rows.collect()] == [(7, True, "unsettled-state")]
