"""Declare the columns of a queue's row, each once, for every road that shows queues. Pure.

From a `QueueColumn` follow the view `queues` of both engines, the table `current/queues`, rows
of commands, of REST and of `$management`, the metrics of a queue, and the tables of the documents
(`broker_shim.column_documents`). A column that is added to `COLUMNS` is on all of them, but for
those that it leaves out, and those for which it has no value:

    in SQL      `part`, `whole` and `sql`: the view and `current` have the column
    in memory   `fold`: a root at rest, a store, and a broker on a root have it
    at a broker `served`: only the broker that runs has it, or knows more than its store

`part` is an aggregate over the entries of a queue that one holder has (or nobody), and `whole` one
over these parts. `sql` makes the column of them (`held`) and of the definition (`wiring`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from enum import Flag, auto
from typing import Any, NamedTuple

from sparkstore.core.durability import WORDS, TerminusDurability
from sparkstore.core.entries import Entries
from sparkstore.core.fold import QueueState
from sparkstore.core.queue_arguments import own_arguments, sources

_NUMBERS = {"bigint", "double"}


class Road(Flag):
    """A road by which queues are shown; `LIST` is the table that people get of all of them."""

    VIEW = auto()
    CURRENT = auto()
    COMMAND = auto()
    LIST = auto()
    HTTP = auto()
    MANAGEMENT = auto()
    METRICS = auto()


ALL = Road(sum(road.value for road in Road))


class QueueFacts(NamedTuple):
    """All that a value of a row is made of.

    Attributes:
        name: Of the queue.
        entries: What the store has on it.
        now_us: What time it is, UTC µs.
        arguments: Of its definition, those of policies included.
        durability: Of its definition.
        dispatch: The queue at the broker that runs; None of a queue at rest.
    """

    name: str
    entries: Entries
    now_us: int
    arguments: Mapping[str, Any] = {}
    durability: int = TerminusDurability.UNSETTLED_STATE
    dispatch: Any = None

    @property
    def acquired(self) -> int:
        """The number of messages that somebody holds."""
        return sum(entry.acquired_by is not None for _, entry in self.entries.marked())

    @property
    def oldest_age_s(self) -> float | None:
        """Seconds since the first message of the queue came."""
        oldest = self.entries.oldest()
        return None if oldest is None else max(0, self.now_us - oldest.at) / 1_000_000


def facts_at_rest(name: str, queue: QueueState, now_us: int) -> QueueFacts:
    """Return what the row of a queue is made of that no broker serves, or is asked about."""
    definition = json.loads(queue.detail)
    arguments = definition.get("arguments") or {}
    durability = definition.get("durability", TerminusDurability.UNSETTLED_STATE)
    return QueueFacts(name, queue.entries, now_us, arguments, durability)


Value = Callable[[QueueFacts], Any]


class QueueColumn(NamedTuple):
    """Declare a column of a queue's row.

    Attributes:
        name: Its name, on each road.
        kind: Spark's name of its type; of what no table has `arguments`, or `sources` of them.
        text: A sentence that says what it is.
        unit: What a number counts.
        part: Aggregate in SQL over the entries that one holder has.
        whole: Aggregate in SQL over the parts of a queue; the sum of them unless it says otherwise.
        sql: Its value in the view; the whole, and 0 where there is no message, unless it says
            otherwise.
        fold: Its value by what a store has in memory.
        served: Its value by the broker that runs.
        joined: Makes one number of those of many queues, for metrics.
        metric: Name of the metric of it, if it has another: dashboards know these.
        words: The texts that it may be.
        is_counter: It only grows, from the broker's start.
        may_be_null: It may have no value in the view.
        roads: Where it is shown, as far as it has a value there.
    """

    name: str
    kind: str
    text: str
    unit: str = ""
    part: str = ""
    whole: str = ""
    sql: str = ""
    fold: Value | None = None
    served: Value | None = None
    joined: Callable[[Iterable[float]], float] = sum
    metric: str = ""
    words: tuple[str, ...] = ()
    is_counter: bool = False
    may_be_null: bool = False
    roads: Road = ALL

    @property
    def is_number(self) -> bool:
        """Whether its values can be added up and drawn."""
        return self.kind in _NUMBERS

    @property
    def shown_by(self) -> Road:
        """The roads that have it."""
        roads = self.roads
        if not self.in_sql:
            roads &= ~(Road.VIEW | Road.CURRENT)
        if self.fold is None and self.served is None:
            roads &= Road.VIEW | Road.CURRENT
        return roads if self.is_number else roads & ~Road.METRICS

    @property
    def in_sql(self) -> str:
        """Its value in the view; empty if the tables do not have it."""
        return self.sql or (self.part and f"coalesce(held.{self.name}, 0)")

    def value(self, facts: QueueFacts, *, by_store: bool = False) -> Any:
        """Return its value by the broker that runs, or, if that does not know it, by the store.

        With `by_store` the store is asked first.
        """
        served = None if facts.dispatch is None else self.served
        value = (self.fold or served) if by_store else (served or self.fold)
        return None if value is None else value(facts)


_LIVE = ALL & ~Road.LIST
COLUMNS: list[QueueColumn] = [
    QueueColumn(
        "queue",
        "string",
        "Name of the queue, with its address (`address::queue`) unless that is its own name.",
        sql="wiring.queue",
        fold=lambda queue: queue.name,
        roads=ALL & ~Road.MANAGEMENT,
    ),
    QueueColumn(
        "depth",
        "bigint",
        "Messages on the queue, available and acquired.",
        "messages",
        part="count(*)",
        fold=lambda queue: len(queue.entries),
        served=lambda queue: len(queue.dispatch),
        metric="messages",
    ),
    QueueColumn(
        "bytes",
        "bigint",
        "Bytes of the messages on the queue, headers and bodies.",
        "bytes",
        part="sum(message_bytes)",
        fold=lambda queue: queue.entries.message_bytes,
    ),
    QueueColumn(
        "acquired",
        "bigint",
        "Messages on the queue that somebody holds.",
        "messages",
        part="count(acquired_by)",
        fold=lambda queue: queue.acquired,
        served=lambda queue: queue.dispatch.held_count,
        metric="messages_held",
    ),
    QueueColumn(
        "acquired_by",
        "map<string,bigint>",
        "Holders of messages, with how many each has.",
        whole="map_from_entries(array_sort(array_agg(struct(acquired_by, depth))"
        " FILTER (WHERE acquired_by IS NOT NULL)))",
        sql="coalesce(held.acquired_by, map())",
        roads=Road.VIEW | Road.CURRENT,
    ),
    QueueColumn(
        "delayed",
        "bigint",
        "Messages that nobody may get yet, as their time has not come.",
        "messages",
        part="count_if(acquired_by IS NULL AND timestamp_millis(try_cast("
        "get_json_object(detail, '$.x-opt-delivery-time[1]') AS BIGINT)) > {now})",
        fold=lambda queue: queue.entries.delayed_count(queue.now_us),
        served=lambda queue: len(queue.dispatch.delayed),
        metric="messages_delayed",
        roads=ALL & ~Road.CURRENT,
    ),
    QueueColumn(
        "oldest_at",
        "timestamp",
        "Time when the oldest message was enqueued; null on an empty queue.",
        part="min(at)",
        whole="min(oldest_at)",
        sql="held.oldest_at",
        may_be_null=True,
        roads=Road.VIEW | Road.CURRENT,
    ),
    QueueColumn(
        "oldest_age_s",
        "double",
        "Seconds since the oldest message came; null on an empty queue, and 0 as a metric.",
        "seconds",
        sql="CAST(unix_micros({now}) - unix_micros(held.oldest_at) AS DOUBLE) / 1000000",
        fold=lambda queue: queue.oldest_age_s,
        joined=max,
        metric="oldest_age_seconds",
        may_be_null=True,
        roads=ALL & ~Road.CURRENT,
    ),
    QueueColumn(
        "consumers",
        "bigint",
        "Consumers attached to the queue.",
        "consumers",
        served=lambda queue: queue.dispatch.consumer_count,
        roads=_LIVE,
    ),
    QueueColumn(
        "arrived",
        "bigint",
        "Messages that came to the queue since the broker's start.",
        "messages",
        served=lambda queue: queue.dispatch.arrivals,
        is_counter=True,
        roads=_LIVE,
    ),
    QueueColumn(
        "removed",
        "bigint",
        "Messages that left the queue since the broker's start.",
        "messages",
        served=lambda queue: queue.dispatch.departures,
        is_counter=True,
        roads=_LIVE,
    ),
    QueueColumn(
        "redelivered",
        "bigint",
        "Failed deliveries since the broker's start: the message was given back, and counted.",
        "deliveries",
        served=lambda queue: queue.dispatch.redelivered,
        is_counter=True,
        roads=_LIVE,
    ),
    QueueColumn(
        "dead_lettered",
        "bigint",
        "Messages that went from the queue to its dead letters since the broker's start.",
        "messages",
        served=lambda queue: queue.dispatch.dead_lettered,
        is_counter=True,
        roads=_LIVE,
    ),
    QueueColumn(
        "not_durable",
        "bigint",
        "Messages on the queue that would not survive a restart.",
        "messages",
        served=lambda queue: queue.dispatch.not_durable,
    ),
    QueueColumn(
        "durability",
        "string",
        f"Part of the queue that survives a restart: {', '.join(WORDS)}.",
        sql="CASE coalesce(CAST(get_json_object(wiring.detail, '$.durability') AS INT), 2)"
        + "".join(f" WHEN {number} THEN '{word}'" for number, word in enumerate(WORDS))
        + " END",
        fold=lambda queue: WORDS[queue.durability],
        words=WORDS,
        roads=_LIVE,
    ),
    QueueColumn(
        "arguments",
        "arguments",
        "Arguments that the queue has by itself.",
        fold=lambda queue: own_arguments(queue.arguments),
        roads=_LIVE & ~Road.MANAGEMENT,
    ),
    QueueColumn(
        "effective",
        "sources",
        "Arguments that count, each with its value, and where that is from.",
        fold=lambda queue: sources(queue.arguments),
        roads=ALL & ~Road.MANAGEMENT,
    ),
    QueueColumn(
        "detail",
        "string",
        "Definition of the queue as JSON, with its arguments.",
        sql="wiring.detail",
        may_be_null=True,
    ),
]  # fmt: skip


def columns_of(road: Road) -> list[QueueColumn]:
    """List the columns that a road has, in their order."""
    return [column for column in COLUMNS if road in column.shown_by]


def row_of(road: Road, facts: QueueFacts, *, by_store: bool = False) -> dict[str, Any]:
    """Return the row of a queue as a road has it."""
    return {column.name: column.value(facts, by_store=by_store) for column in columns_of(road)}


def sql_parts() -> dict[str, str]:
    """Return the parts of `sql/views/queues.sql`, by the placeholders that stand for them."""
    columns = columns_of(Road.VIEW)
    wholes = {
        column.name: column.whole or (column.part and f"sum({column.name})") for column in columns
    }
    return {
        "queuecolumns": _listed({column.name: column.in_sql for column in columns}),
        "queuewholes": _listed(wholes),
        "queueparts": _listed({column.name: column.part for column in columns}),
    }


def _listed(values: Mapping[str, str]) -> str:
    return ",\n  ".join(f"{value} AS {name}" for name, value in values.items() if value)
