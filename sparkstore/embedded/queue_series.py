"""Figures of one queue over time, by equal steps, from what history and the journal have of it.

Depth goes backwards: what is on the queue now, less what arrived since, and what left since. So
only the events of the time that is asked for are read, and none before. A deletion of the queue
took what was on it without an event for each message: it is counted from the events between the
queue's creation and that deletion.

Age of the oldest: of the stays that ended only those count that ended after each earlier one did;
the first of them that ends after a moment was the oldest then, unless what is on the queue now
came before it.

Bounds: `MOST_ROWS` records in the files that are opened, else the series begins later and says so;
`MOST_STAYS` messages that left, else the age of the oldest is that of one message in so many, since
they are sorted; as many failed deliveries, likewise, since they are grouped. A history of
10,000,000 records, and 1,000,000 after P, took 2.0 s and 380 MiB.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import UTC, datetime
from typing import Any, NamedTuple

import duckdb

from sparkstore.core.state_machine.state_machine import ID_BLOCK
from sparkstore.embedded.answers import translated
from sparkstore.embedded.duckdb_views import add_events, connect
from sparkstore.embedded.moment import Moment
from sparkstore.embedded.series_times import SeriesTimes
from sparkstore.tables.root import IDS_OF_A_GENERATION, Root

MOST_ROWS, MOST_STAYS = 20_000_000, 500_000
DESTROYED = "queue destroyed"
_NEVER_US = 1 << 62
_RECENT = '"at" >= make_timestamptz({since})'
_NUMBER = "CASE WHEN at_us >= {until} THEN {count} ELSE (at_us - {since}) // {step} END AS number"
"""The number of a step; events after the last step have the number that would follow."""
_COUNTS = """
SELECT {number}, kind, outcome, count(*), min(message_id), max(message_id)
FROM (
  SELECT epoch_us("at") AS at_us, kind, message_id, CASE
    WHEN kind <> 'dequeued' OR detail IS NULL THEN 'accepted'
    ELSE coalesce(get_json_object(detail, '$.outcome'), 'other')
  END AS outcome
  FROM sparkstore_events
  WHERE queue = {queue} AND {recent}
    AND (kind IN ('enqueued', 'dequeued') OR (kind = 'released' AND delivery_count > 0))
)
GROUP BY ALL
"""
_FAILURES = """
SELECT {number}, count(*)
FROM (
  SELECT epoch_us(min("at")) AS at_us
  FROM sparkstore_events
  WHERE queue = {queue} AND {recent} AND kind = 'released' AND delivery_count > 0
    AND message_id % {one_in} = 0
  GROUP BY message_id, delivery_count
)
GROUP BY ALL
"""
"""A message that is given back without a failure keeps its count, so the first of one counts."""
_LIVES = """
SELECT kind, position, epoch_us("at")
FROM sparkstore_events
WHERE queue = {queue} AND kind IN ('created', 'destroyed') AND exchange IS NULL
ORDER BY position
"""
_DROPPED = """
SELECT count(*) FILTER (kind = 'enqueued') - count(*) FILTER (kind = 'dequeued')
FROM sparkstore_events
WHERE queue = {queue} AND position > {first} AND position < {last}
"""
_OLDEST = """
WITH ended AS (
  SELECT message_id, position, epoch_us("at") AS at_us
  FROM sparkstore_events WHERE queue = {queue} AND kind = 'dequeued' AND {recent}
    AND message_id % {one_in} = 0
),
begun AS (
  SELECT message_id, position, epoch_us("at") AS at_us
  FROM sparkstore_events WHERE queue = {queue} AND kind = 'enqueued'
    AND message_id BETWEEN {least} AND {most} AND message_id % {one_in} = 0
),
stays AS (
  SELECT arg_max(begun.at_us, begun.position) AS begin_us, ended.at_us AS end_us
  FROM ended JOIN begun
    ON ended.message_id = begun.message_id AND ended.position > begun.position
  GROUP BY ended.message_id, ended.position, ended.at_us
),
longest AS (
  SELECT begin_us, end_us FROM stays
  QUALIFY end_us > coalesce(
    max(end_us) OVER (
      ORDER BY begin_us, end_us ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ), 0)
),
steps AS (
  SELECT number, least({since} + (number + 1) * {step}, {until}) AS at_us
  FROM range({count}) AS steps(number)
)
SELECT number, begin_us FROM steps ASOF JOIN longest ON steps.at_us < longest.end_us
WHERE begin_us <= steps.at_us
"""
_STARTS = """
WITH taken_over AS (
  SELECT epoch FROM sparkstore_events
  WHERE kind = 'ids_reserved' AND message_id > {ids} AND (message_id - 2) % {ids} < {block}
  QUALIFY row_number() OVER (PARTITION BY (message_id - 2) // {ids} ORDER BY position) = 1
)
SELECT epoch_us("at"), epoch IN (FROM taken_over)
FROM sparkstore_events WHERE kind = 'opened' AND {recent} ORDER BY 1
"""
"""Each generation of a root gives out ids of a range of its own, so its first reservation is told
by its number: in that epoch another machine began to serve, or a person promoted a replica. The
first of all that history has: later ones may be of fewer ids than a block (`reserve`)."""
_NOW = """
WITH came AS (
  SELECT message_id, position, "at" FROM sparkstore_state
  WHERE part = 'entry' AND queue = {queue} AND position > {destroyed}
  UNION ALL
  SELECT message_id, position, "at" FROM sparkstore_events
  WHERE queue = {queue} AND kind = 'enqueued' AND position > {folded} AND position > {destroyed}
),
gone AS (
  SELECT message_id, position FROM sparkstore_events
  WHERE queue = {queue} AND kind = 'dequeued' AND position > {folded}
)
SELECT count(*), epoch_us(min("at"))
FROM came ANTI JOIN gone ON gone.message_id = came.message_id AND gone.position > came.position
"""
"""Not by the view `queues`: it keeps a wide row for each message that came or went since P."""
_IS_KNOWN = """
SELECT 1 FROM sparkstore_state WHERE part = 'wiring' AND queue = {queue} AND exchange IS NULL
"""
_WHOLE = "SELECT coalesce(max(history_start), 1) FROM sparkstore_state WHERE part = 'meta'"
_BEGIN = """
SELECT epoch_us(min("at")) FROM sparkstore_events WHERE position BETWEEN {first} AND {first} + 1000
"""


class QueueSeries(NamedTuple):
    """Figures of a queue over time.

    Attributes:
        items: A row for each step that history has: `at_us`, its end, and the figures of that
            moment or of the step. None if history knows no such queue.
        marks: Moments when a broker started or took over: `at_us`, `what`. A machine that took
            over and got no new message is marked when it started again and got one.
        left_out: Sentences about what is not there, and why.
    """

    items: list[dict[str, Any]]
    marks: list[dict[str, Any]]
    left_out: list[str]


def queue_series(root: Root, queue: str, times: SeriesTimes) -> QueueSeries:
    """Read the series of a queue, which may be deleted.

    Raises:
        CorruptData: A table of the root is gone.
        Unavailable: The tables cannot be read.
    """
    with translated(), connect() as connection:
        moment = add_events(connection, root)
        ask = _Questions(connection, queue, times)
        left_out = [*_shortened(ask, moment)]
        lives = ask(_LIVES)
        items = _items(ask, lives, moment, left_out) if lives or ask(_IS_KNOWN) else []
        return QueueSeries(items, _marks(ask), left_out)


class _Questions:
    """Asks a connection about one queue and the steps of a series."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, queue: str, times: SeriesTimes
    ) -> None:
        self._connection, self._queue = connection, "'" + queue.replace("'", "''") + "'"
        self.times = times

    def __call__(self, statement: str, **values: int) -> list[tuple[Any, ...]]:
        """Return the rows of a statement.

        What it is about stands in it as text, so that no file is opened that cannot have it.
        """
        since, until, step = self.times
        steps = {"since": since, "until": until, "step": step, "count": self.times.steps}
        parts = {"recent": _RECENT.format(**steps), "number": _NUMBER.format(**steps)}
        text = statement.format(queue=self._queue, **parts, **steps, **values)
        return self._connection.execute(text).fetchall()


def _shortened(ask: _Questions, moment: Moment) -> list[str]:
    """Have the series begin where history does, and where few enough records follow."""
    left_out, times = list[str](), ask.times
    ((first,),) = ask(_WHOLE)
    ((begin_us,),) = ask(_BEGIN, first=first)
    if begin_us is not None and begin_us > times.since_us:
        left_out.append(f"all before {time_text(begin_us)}, where history begins")
        ask.times = times = _later(times, begin_us)
    newest_us = begin_of_newest(moment)
    if newest_us is not None and newest_us > times.since_us:
        ask.times = _later(times, min(newest_us, times.until_us - 1))
        text = f"all before {time_text(ask.times.since_us)}"
        left_out.append(f"{text}, as more than {MOST_ROWS:,} records follow: ask for less time")
    return left_out


def begin_of_newest(moment: Moment) -> int | None:
    """Return from when on there are no more than `MOST_ROWS` records; None: there never were.

    By whole files, as they are opened. One of unknown times counts as the newest.
    """
    files, rows = [*moment.history, *moment.journal], 0
    ends = ((_us(file.times[1]) if file.times else _NEVER_US, file.row_count) for file in files)
    for end_us, row_count in sorted(ends, reverse=True):
        rows += row_count
        if rows > MOST_ROWS:
            return end_us
    return None


def _later(times: SeriesTimes, at_us: int) -> SeriesTimes:
    """Leave out the steps before the one in which a moment is."""
    steps = (min(at_us, times.until_us - 1) - times.since_us) // times.step_us
    return times._replace(since_us=times.since_us + max(0, steps) * times.step_us)


def _items(
    ask: _Questions, lives: list[tuple[Any, ...]], moment: Moment, left_out: list[str]
) -> list[dict[str, Any]]:
    times = ask.times
    destroyed = max((position for kind, position, _ in lives if kind == "destroyed"), default=0)
    ((depth, waiting_us),) = ask(_NOW, folded=moment.folded, destroyed=destroyed)
    arrived, departed = Counter[int](), defaultdict[int, Counter[str]](Counter)
    ids, failures = list[int](), 0
    for number, kind, outcome, count, *ends in ask(_COUNTS):
        if kind == "enqueued":
            arrived[number] += count
        elif kind == "released":
            failures += count
        else:
            departed[number][outcome] += count
            ids += ends
    ageless = 0
    begins = _begins(ask, ids, sum(map(Counter.total, departed.values())), left_out)
    for number, count in _dropped(ask, lives, left_out):
        departed[number][DESTROYED] += count
        ageless = number
    failed = _failed(ask, failures, left_out)
    items = list[dict[str, Any]]()
    for number in reversed(range(times.steps)):
        depth += departed[number + 1].total() - arrived[number + 1]
        at_us = times.end_us(number)
        came = [us for us in (begins.get(number), waiting_us) if us is not None and us <= at_us]
        age_s = (at_us - min(came, default=at_us)) / 1e6
        items.append(
            {
                "at_us": at_us,
                "depth": max(0, depth),
                "oldest_age_s": None if number < ageless else age_s,
                "arrived": arrived[number],
                "departed": dict(departed[number]),
                "redelivered": failed.get(number, 0),
            }
        )
    return items[::-1]


def _begins(ask: _Questions, ids: list[int], count: int, left_out: list[str]) -> dict[int, int]:
    """Return when the oldest came of those that have left, by the number of a step."""
    if not ids:
        return {}
    one_in = -(-count // MOST_STAYS)
    if one_in > 1:
        text = f"all messages but one in {one_in}, for the age of the oldest"
        left_out.append(f"{text}: more than {MOST_STAYS:,} left")
    return dict(ask(_OLDEST, least=min(ids), most=max(ids), one_in=one_in))


def _failed(ask: _Questions, count: int, left_out: list[str]) -> dict[int, int]:
    """Count failed deliveries by step; of too many, from some messages what all come to."""
    one_in = max(1, -(-count // MOST_STAYS))
    if one_in > 1:
        text = f"all messages but one in {one_in}, for failed deliveries, which are reckoned of it"
        left_out.append(f"{text}: more than {MOST_STAYS:,} came back")
    return {number: failed * one_in for number, failed in ask(_FAILURES, one_in=one_in)}


def _dropped(
    ask: _Questions, lives: list[tuple[Any, ...]], left_out: list[str]
) -> list[tuple[int, int]]:
    """Count what each deletion of the queue took, by its step."""
    times, dropped, created = ask.times, list[tuple[int, int]](), None
    for kind, position, at_us in lives:
        if kind == "created":
            created = position
        elif at_us >= times.since_us:
            if created is None:
                text = f"what was on the queue when it was deleted at {time_text(at_us)}"
                left_out.append(f"{text}: it is older than history")
                continue
            ((count,),) = ask(_DROPPED, first=created, last=position)
            number = (at_us - times.since_us) // times.step_us
            if count:
                dropped.append((times.steps if at_us >= times.until_us else number, count))
    if any(number for number, _ in dropped):
        left_out.append("the age of the oldest before the queue was deleted")
    return dropped


def _marks(ask: _Questions) -> list[dict[str, Any]]:
    return [
        {"at_us": at_us, "what": "failed over" if is_other else "broker started"}
        for at_us, is_other in ask(_STARTS, ids=IDS_OF_A_GENERATION, block=ID_BLOCK)
        if at_us < ask.times.until_us
    ]


def _us(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000)


def time_text(at_us: int) -> str:
    """Write UTC µs for people."""
    return f"{datetime.fromtimestamp(at_us / 1e6, UTC):%Y-%m-%d %H:%M:%S} UTC"
