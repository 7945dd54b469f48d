"""Spark chooses messages: a predicate over a view → message ids, in the order of the queue.

Only ids come to the driver, a partition at a time; content is read by id afterwards, so no body
goes through a shuffle or waits in memory.

Decision: a predicate is parsed as an expression, and refused if it has a sub-query anywhere, by
what Spark's parser made of it. So `… ; DROP …`, a second table, a statement are not possible: the
text never becomes part of a statement. It may name the functions that a typed query may
(`typed_queries`). What else is wrong with it (a column that is not there, a type that is not
boolean, an aggregate) Spark's analyser says, before anything has run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from sparkstore.errors import InvalidRequest
from sparkstore.sql.queries import VIEWS, departed_text, view_text
from sparkstore.tables.root import Root
from sparkstore.views import typed_queries, value_functions
from sparkstore.views.join_hints import hints
from sparkstore.views.spark_tables import table_names, text, translated

_ENTRY_STEPS = VIEWS["queues"]
"""With these, `entries` and `wiring` can be named."""

SAMPLE_COLUMNS = (
    "message_id", "enqueued_at", "acquired_by", "delivery_count", "priority", "message_bytes",
    "subject", "properties",
)  # fmt: skip
DEPARTED_SAMPLE_COLUMNS = (
    "message_id", "enqueued_at", "dequeued_at", "outcome", "message_bytes", "subject", "properties",
)  # fmt: skip


def waiting(spark: SparkSession, root: Root, queue: str, predicate: str) -> DataFrame:
    """Rows of `queue_messages` on one queue for which a predicate is true.

    Raises:
        InvalidRequest: The predicate is wrong.
        Unavailable: The tables cannot be read.
    """
    return _chosen(spark, root, "queue_messages", queue, predicate)


def departed(spark: SparkSession, root: Root, queue: str, predicate: str, *, to: str) -> DataFrame:
    """Rows of `departed_messages` that left one queue and have no copy on `to` yet.

    Raises:
        InvalidRequest: The predicate is wrong.
        Unavailable: The tables cannot be read.
    """
    chosen = _chosen(spark, root, "departed_messages", queue, predicate)
    return chosen.where(~F.array_contains("replayed_to", F.lit(to)))


def _chosen(spark: SparkSession, root: Root, view: str, queue: str, predicate: str) -> DataFrame:
    """Answer a view for one queue and predicate, without registering it under a name."""
    wanted = condition(spark, predicate)
    names = {**table_names(root), **hints(root)}
    query = view_text(view, names) if view in VIEWS else departed_text(names)
    with translated(f"--where {predicate!r}", is_typed=True):
        on_queue = spark.sql(query).alias(view).where(F.col("queue") == F.lit(queue))
        return on_queue.where(wanted)


def condition(spark: SparkSession, predicate: str) -> Column:
    """A predicate as an expression, and nothing more than one.

    Raises:
        InvalidRequest: It is not an expression, or asks another table.
    """
    doing = f"--where {predicate!r}"
    value_functions.register_named(spark, predicate)
    with translated(doing, is_typed=True):
        try:
            return typed_queries.condition(spark, predicate)
        except InvalidRequest as reason:
            raise InvalidRequest(f"{doing}: {reason}") from reason


def ids(chosen: DataFrame) -> Iterator[int]:
    """Ids of the messages chosen, in the order of the queue, a partition at a time.

    Raises:
        Unavailable: The query failed, or records were moved under it.
    """
    ordered = chosen.select("message_id", "position").orderBy("position")
    with translated("the query failed"):
        for row in ordered.toLocalIterator():
            yield row.message_id


def count(chosen: DataFrame) -> int:
    """Count the messages that were chosen.

    Raises:
        Unavailable: Spark or the storage failed while the views were read (`ids`).
    """
    with translated("the query failed"):
        return chosen.count()


def sample(chosen: DataFrame, limit: int) -> list[dict[str, Any]]:
    """Return some of the messages that were chosen.

    Raises:
        Unavailable: Spark or the storage failed while the views were read (`ids`).
    """
    is_departed = "dequeued_at" in chosen.columns
    columns = DEPARTED_SAMPLE_COLUMNS if is_departed else SAMPLE_COLUMNS
    with translated("the query failed"):
        rows = chosen.select(*columns).limit(limit).collect()
    return [row.asDict(recursive=True) for row in rows]


def ended(spark: SparkSession, root: Root) -> Iterator[tuple[str, int]]:
    """(queue, message id) of what expired or failed too often, a partition at a time.

    Raises:
        Unavailable: Spark or the storage failed while the views were read (`ids`).
    """
    with translated("the query failed"):
        for row in spark.sql(
            text("ended", _ENTRY_STEPS, table_names(root) | hints(root))
        ).toLocalIterator():
            yield row.queue, row.message_id
