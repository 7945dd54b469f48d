"""Ask about the root, by DuckDB and by Spark: the stored messages, the questions, the chart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from pyspark.sql import SparkSession

from broker_shim.demo.departures import number_of
from broker_shim.demo.verdict import Key, Stored, count
from sparkstore import query as ask_duckdb
from sparkstore.views import views

Rows = list[dict[str, Any]]

DEPTH = """\
SELECT queue, depth, acquired, bytes, oldest_age_s
FROM queues
ORDER BY depth DESC"""
DELAY = """\
SELECT properties['carrier'] AS carrier,
       count(*) AS waiting,
       round(avg(CAST(get_json_object(string(body), '$.dep_delay') AS DOUBLE)), 1) AS delay_min
FROM queue_messages
WHERE acquired_by IS NULL AND queue <> 'cancelled'
GROUP BY carrier
ORDER BY delay_min DESC, carrier"""
"""For both engines, each of which has functions of the other."""
HISTORY = """\
SELECT position, event.at, kind, queue, holder, delivery_count
FROM message_history AS event
WHERE message_id = {message_id}
ORDER BY position"""
_NAMES = """\
SELECT DISTINCT message_id, amqp_message_id
FROM messages
WHERE amqp_message_id IS NOT NULL"""
_EVENTS = """\
SELECT queue, message_id, kind, count(*) AS times
FROM message_history
WHERE kind IN ('enqueued', 'dequeued')
GROUP BY ALL"""
_PRESENT = """\
SELECT queue, message_id, count(*) AS times
FROM queue_messages
GROUP BY ALL"""


def numbers(root: Path) -> dict[int, int]:
    """The departure that each of the store's message ids is."""
    return {row["message_id"]: number_of(row["amqp_message_id"]) for row in by_duckdb(root, _NAMES)}


def stored(root: Path, departure_of: Mapping[int, int]) -> Stored:
    """Return how often each departure was enqueued, dequeued and is on each queue, by the views."""
    events, present = by_duckdb(root, _EVENTS), by_duckdb(root, _PRESENT)
    return Stored(
        count(_times((row for row in events if row["kind"] == "enqueued"), departure_of)),
        count(_times((row for row in events if row["kind"] == "dequeued"), departure_of)),
        count(_times(present, departure_of)),
    )


def _times(
    rows: Iterable[dict[str, Any]], departure_of: Mapping[int, int]
) -> Iterator[tuple[Key, int]]:
    for row in rows:
        yield Key(row["queue"], departure_of[row["message_id"]]), row["times"]


def by_duckdb(root: Path, query: str) -> Rows:
    """The rows that answer a question, without a JVM."""
    rows: Rows = ask_duckdb(root, query).to_pylist()
    return rows


def by_spark(spark: SparkSession, root: Path, query: str) -> Rows:
    """The rows that answer a question, by Spark."""
    return [row.asDict() for row in views.sql(spark, root, query).collect()]


def draw(depth: Rows, delay: Rows, file: Path) -> None:
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
    delay = [row for row in delay if row["delay_min"] is not None]
    bars = right.bar(
        [row["carrier"] for row in delay], [row["delay_min"] for row in delay], color="#228833"
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
