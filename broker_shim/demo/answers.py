"""Ask Spark about the root: the stored messages, the compaction, the questions, the chart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from pyspark.sql import Row, SparkSession

from broker_shim.demo.departures import number_of
from broker_shim.demo.verdict import Key, Stored, count
from sparkstore.tables.root import open_root
from sparkstore.views import views
from sparkstore.views.spark_tables import table_names

DEPTH = """\
SELECT queue, depth, acquired, bytes, oldest_age_s
FROM queues
ORDER BY depth DESC"""
DELAY = """\
SELECT properties['carrier'] AS carrier,
       count(*) AS waiting,
       round(avg(get_json_object(string(body), '$.dep_delay')), 1) AS mean_delay_min
FROM queue_messages
WHERE acquired_by IS NULL AND queue <> 'cancelled'
GROUP BY carrier
ORDER BY mean_delay_min DESC"""
HISTORY = """\
SELECT position, at, kind, queue, holder, delivery_count
FROM message_history
WHERE message_id = {message_id}
ORDER BY position"""
_NAMES = """\
SELECT DISTINCT message_id, amqp_message_id
FROM (SELECT * FROM {history} UNION ALL SELECT * FROM {journal})
WHERE kind = 'enqueued' AND amqp_message_id IS NOT NULL"""
_EVENTS = """\
SELECT queue, message_id, kind, count(*) AS times
FROM message_history
WHERE kind IN ('enqueued', 'dequeued')
GROUP BY ALL"""
_PRESENT = """\
SELECT queue, message_id, count(*) AS times
FROM queue_messages
GROUP BY ALL"""


def numbers(spark: SparkSession, root: Path) -> dict[int, int]:
    """The departure that each of the store's message ids is."""
    rows = spark.sql(_NAMES.format(**table_names(open_root(root)))).collect()
    return {row.message_id: number_of(row.amqp_message_id) for row in rows}


def stored(spark: SparkSession, root: Path, departure_of: Mapping[int, int]) -> Stored:
    """Return how often each departure was enqueued, dequeued and is on each queue, by the views."""
    events = views.sql(spark, root, _EVENTS).collect()
    present = views.sql(spark, root, _PRESENT).collect()
    return Stored(
        count(_times((row for row in events if row.kind == "enqueued"), departure_of)),
        count(_times((row for row in events if row.kind == "dequeued"), departure_of)),
        count(_times(present, departure_of)),
    )


def _times(rows: Iterable[Row], departure_of: Mapping[int, int]) -> Iterator[tuple[Key, int]]:
    for row in rows:
        yield Key(row.queue, departure_of[row.message_id]), row.times


def ask(spark: SparkSession, root: Path, query: str) -> list[dict[str, Any]]:
    """The rows that answer a question."""
    return [row.asDict() for row in views.sql(spark, root, query).collect()]


def draw(depth: list[dict[str, Any]], delay: list[dict[str, Any]], file: Path) -> None:
    """Depth by queue beside mean delay by carrier, as a PNG."""
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1, 2])
    queues = [row["queue"] for row in depth]
    acquired = [row["acquired"] for row in depth]
    available = [row["depth"] - row["acquired"] for row in depth]
    left.bar(queues, available, label="available", color="#4477aa")
    left.bar(queues, acquired, bottom=available, label="acquired", color="#ee6677")
    left.set(title="Messages on each queue", ylabel="messages")
    left.legend(frameon=False)
    delay = [row for row in delay if row["mean_delay_min"] is not None]
    bars = right.bar(
        [row["carrier"] for row in delay], [row["mean_delay_min"] for row in delay], color="#228833"
    )
    right.bar_label(bars, fmt="%.0f", fontsize=8)
    right.axhline(0, color="black", linewidth=0.8)
    right.set(
        title="Mean departure delay among messages still waiting",
        xlabel="carrier",
        ylabel="minutes",
    )
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=120)
