"""Each rule of the fold, on a few literal rows: in the views, and in state after a compaction."""

from __future__ import annotations

import pytest
from chispa import assert_df_equality
from pyspark.sql import SparkSession

from sparkstore import compact, views
from sparkstore.records import (
    Record,
    content_staged,
    ids_reserved,
    message_acquired,
    message_dequeued,
    message_enqueued,
    message_released,
    opened,
    queue_created,
    queue_destroyed,
)
from sparkstore.root import Root
from tests.spark.support import HEADER, journal

START = [opened(1, "w"), ids_reserved(1, 100), queue_created(1, "q", "{}")]
PUT = message_enqueued(2, "q", 7, HEADER, b"abc")
AGAIN = message_enqueued(9, "q", 7, HEADER.known(), None)
ACQUIRED = message_acquired(3, "q", 7, "anna")
RELEASED = message_released(4, "q", 7, 1)
DEQUEUED = message_dequeued(5, "q", 7, "anna")
DESTROYED = queue_destroyed(6, "q")
CREATED = queue_created(7, "q", "{}")
COLUMNS = "queue string, message_id bigint, position bigint, acquired_by string, count int"

RULES: dict[str, tuple[list[Record], list[Record], list[tuple[object, ...]]]] = {
    "an enqueued message is available": ([], [PUT], [("q", 7, 4, None, 0)]),
    "an acquired message stays on its queue": ([PUT], [ACQUIRED], [("q", 7, 4, "anna", 0)]),
    "a release makes it available and sets its delivery count": (
        [PUT, ACQUIRED],
        [RELEASED],
        [("q", 7, 4, None, 1)],
    ),
    "the last acquire or release decides who holds it": (
        [PUT, ACQUIRED, RELEASED],
        [message_acquired(8, "q", 7, "bo")],
        [("q", 7, 4, "bo", 1)],
    ),
    "a dequeued message is gone": ([PUT, ACQUIRED], [DEQUEUED], []),
    "a message enqueued again is at its new place, available and not counted": (
        [PUT, ACQUIRED, RELEASED],
        [DEQUEUED, AGAIN],
        [("q", 7, 8, None, 0)],
    ),
    "a destroyed queue drops what nobody touched": ([PUT], [DESTROYED], []),
    "a queue created again is empty": ([PUT, ACQUIRED], [DESTROYED, CREATED], []),
    "a queue created again holds what was enqueued since": (
        [PUT],
        [DESTROYED, CREATED, AGAIN],
        [("q", 7, 7, None, 0)],
    ),
    "what was enqueued and dequeued in one step leaves nothing": ([], [PUT, DEQUEUED], []),
}


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_rule(spark: SparkSession, root: Root, rule: str) -> None:
    folded, tail, rows = RULES[rule]
    expected = spark.createDataFrame(rows, COLUMNS)
    last = journal(root, [*START, *folded])
    compact.run(spark, root)
    journal(root, tail, first=last + 1)
    views.register(spark, root)
    query = "SELECT queue, message_id, position, acquired_by, delivery_count AS count"
    assert_df_equality(spark.sql(f"{query} FROM queue_messages"), expected, ignore_nullable=True)
    compact.run(spark, root)
    state = spark.read.format("delta").load(str(root.state)).where("part = 'entry'")
    assert_df_equality(
        state.selectExpr(*query.removeprefix("SELECT ").split(", ")),
        expected,
        ignore_nullable=True,
    )


@pytest.mark.slow
def test_queues_counts_messages_bytes_holders_and_the_oldest(
    spark: SparkSession, root: Root
) -> None:
    second = message_enqueued(5_000_000, "q", 8, HEADER, b"abc")
    journal(root, [*START, queue_created(1, "empty", "{}"), PUT, second, ACQUIRED])
    views.register(spark, root)
    found = spark.sql(
        "SELECT queue, depth, bytes, acquired, acquired_by['anna'] anna, oldest_at,"
        " oldest_age_s > 1000000000 AS old FROM queues"
    )
    expected = spark.sql(
        "SELECT * FROM VALUES ('q', 2L, 8L, 1L, 1L, timestamp_micros(2), true),"
        " ('empty', 0L, 0L, 0L, null, null, null)"
        " AS t(queue, depth, bytes, acquired, anna, oldest_at, old)"
    )
    assert_df_equality(found, expected, ignore_row_order=True, ignore_nullable=True)


@pytest.mark.slow
def test_content_that_came_in_pieces_is_put_together(spark: SparkSession, root: Root) -> None:
    pieces = [content_staged(2, 9, 2, b"c"), content_staged(2, 9, 0, b"ab")]
    journal(root, [*START, *pieces, message_enqueued(3, "q", 9, HEADER, None), PUT])
    views.register(spark, root)
    found = spark.sql("SELECT message_id, body, properties FROM queue_messages")
    assert sorted((row.message_id, bytes(row.body)) for row in found.collect()) == [
        (7, b"abc"),
        (9, b"abc"),
    ]


@pytest.mark.slow
def test_message_history_tells_every_event_in_order(spark: SparkSession, root: Root) -> None:
    journal(root, [*START, PUT, ACQUIRED, RELEASED])
    compact.run(spark, root)
    journal(root, [DEQUEUED], first=7)
    views.register(spark, root)
    found = spark.sql("SELECT kind, position FROM message_history WHERE message_id = 7")
    assert [tuple(row) for row in found.orderBy("position").collect()] == [
        ("enqueued", 4),
        ("acquired", 5),
        ("released", 6),
        ("dequeued", 7),
    ]
