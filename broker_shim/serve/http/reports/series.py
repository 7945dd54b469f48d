"""Requests for a queue's figures over time: the last minutes from memory, the rest from history.

    from ──── history, by DuckDB in a process with limits ────┬──── the ring in memory ──── to

What history tells of steps that are over does not change. So answers are kept (`series_answers`),
and whoever looks again and again costs one process for each step. One process runs at a time; who
waits longer for it is answered 429 (`history_turn`).

Decision: it takes `read` on the queue where there are permissions, unlike the figures of now. What
came and left in a month tells of messages, as their history does.
"""

from __future__ import annotations

import asyncio
import csv
import io
import json
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any

from broker_shim.broker.wiring.address import QueueNode
from broker_shim.errors import StoreError
from broker_shim.security.rules.rights import Act
from broker_shim.serve.http.calls import Call, iso_time, now_us
from broker_shim.serve.http.endpoint import MONITOR, QUEUE, Endpoint
from broker_shim.serve.http.figures.figure_bodies import (
    MOST_STEPS,
    SeriesAnswer,
    SeriesItem,
    SeriesMark,
    SeriesQuery,
)
from broker_shim.serve.http.figures.recent_figures import SAMPLE_S
from broker_shim.serve.http.figures.series_answers import SeriesParts
from broker_shim.serve.http.limited_answers import MOST_S, history_turn, limited_answer
from broker_shim.serve.http.port.exchange import Response
from broker_shim.serve.http.refusals import HttpRefusal
from broker_shim.serve.http.table_reads import flushed, read_tables, root_of
from sparkstore.cli.queries.limited_process import SeriesQuestion
from sparkstore.core.queue_names import shown
from sparkstore.embedded.series_times import SeriesTimes
from sparkstore.tables.root import Root

_S = 1_000_000
_MARKS_S = 5.0
_NO_COMPACTIONS = "compactions, as their table could not be read now"
_DEFAULT_S, _DEFAULT_STEPS = 900, 200
_COLUMNS = ("at", "depth", "oldest_age_s", "arrived", "redelivered")


async def show_series(call: Call) -> SeriesAnswer | Response:
    """Show a queue's figures over time, as JSON or CSV."""
    times, notes = times_of(call.query, now_us())
    queue, is_there = await _queue(call)
    parts = await _series(call, queue, times)
    if not (parts.items or is_there):
        text = f"there is no queue {shown(queue)}, and history knows of none in that time"
        raise HttpRefusal(404, f"{text}: GET /api/v1/queues lists those there are")
    answer = SeriesAnswer(
        queue=queue,
        step_s=times.step_us // _S,
        items=[SeriesItem(**_timed(item)) for item in parts.items],
        marks=[SeriesMark(**_timed(mark)) for mark in parts.marks],
        left_out=[*notes, *parts.left_out],
    )
    return answer if call.query.format == "json" else _as_csv(answer)


def times_of(query: SeriesQuery, now: int) -> tuple[SeriesTimes, list[str]]:
    """Return the steps that are asked for, and what of them nobody can know yet.

    Raises:
        HttpRefusal: A time is none, has no zone or is in the future; or there are too many steps.
    """
    until, notes = now if query.until is None else _moment("to", query.until), []
    if until > now:
        until, notes = now, ["what is in the future"]
    since = until - _DEFAULT_S * _S if query.since is None else _moment("from", query.since)
    if since >= until:
        what = "in the future" if since >= now else "not before to"
        raise HttpRefusal(400, f"query: from is {what}: give a time before {iso_time(until)}")
    span_s = -((since - until) // _S)
    step_s = query.step or max(SAMPLE_S, -(-span_s // _DEFAULT_STEPS))
    times = SeriesTimes(since, until, step_s * _S)
    if times.steps > MOST_STEPS:
        least = -(-span_s // MOST_STEPS)
        text = f"query: that is {times.steps:,} steps, and {MOST_STEPS:,} are the most"
        raise HttpRefusal(400, f"{text}: give a step of {least} or more")
    return times, notes


def _moment(name: str, text: str) -> int:
    try:
        moment = datetime.fromisoformat(text.strip().replace(" ", "+"))  # a plus in an address
    except ValueError as reason:
        form = "2026-11-22T10:00:00Z"
        raise HttpRefusal(400, f"query: {name} is no time: give one such as {form}") from reason
    if moment.tzinfo is None:
        raise HttpRefusal(400, f"query: {name} has no time zone: end it with Z for UTC")
    try:
        return int(moment.astimezone(UTC).timestamp() * _S)
    except (OverflowError, ValueError) as reason:
        raise HttpRefusal(400, f"query: {name} is too far away: give another time") from reason


async def _queue(call: Call) -> tuple[str, bool]:
    """Return the whole name of a queue that the user may read, and whether it is there."""
    name = call.names["queue"]

    def find() -> tuple[str, bool]:
        node = call.meant(name)
        call.check(Act.RECEIVE, node, name)
        queue = node.queue if isinstance(node, QueueNode) else name
        return queue, queue in call.broker.queues

    return await call.read(find)


async def _series(call: Call, queue: str, times: SeriesTimes) -> SeriesParts:
    """Ask history for the steps before the ring, and the ring for the others."""
    recent = call.served.recent
    begin_us = await call.read(lambda: recent.begin_us(queue))
    first = times.steps if begin_us is None else times.first_from(begin_us)
    if times.step_us < SAMPLE_S * _S:
        first = times.steps
    parts = SeriesParts([], [], [])
    if first:
        split = min(times.since_us + first * times.step_us, times.until_us)
        parts = await _of_history(call, queue, times._replace(until_us=split))
    if first < times.steps:
        rest = times._replace(since_us=times.since_us + first * times.step_us)
        items = await call.read(lambda: recent.items(queue, rest))
        parts = parts._replace(items=parts.items + items)
    return parts if call.query.format == "csv" else await _with_compactions(call, times, parts)


async def _with_compactions(call: Call, times: SeriesTimes, parts: SeriesParts) -> SeriesParts:
    """Mark when compactions ended, as the table of jobs has it: history has no record of them.

    What is in memory does not wait for a store that is slow: its marks are then left out.
    """
    if (root := root_of(call)) is None:
        return parts
    try:
        async with asyncio.timeout(_MARKS_S):
            ends = await call.served.series.lately(
                "compactions", lambda: read_tables(None, lambda: _ends_of_compactions(root))
            )
    except (HttpRefusal, StoreError, TimeoutError):
        return parts._replace(left_out=[*parts.left_out, _NO_COMPACTIONS])
    known = (int(end.timestamp() * _S) for end in ends)
    marks = parts.marks + [
        {"at_us": at_us, "what": "compacted"}
        for at_us in known
        if times.since_us <= at_us < times.until_us
    ]
    return parts._replace(marks=sorted(marks, key=itemgetter("at_us")))


def _ends_of_compactions(root: Root) -> list[datetime]:
    from sparkstore.jobs.job_runs import successes  # noqa: PLC0415  # it loads deltalake

    return successes(root, "compact")


async def _of_history(call: Call, queue: str, times: SeriesTimes) -> SeriesParts:
    root, kept = root_of(call), call.served.series
    if root is None:
        since = iso_time(call.served.recent.started_us)
        text = f"all before {since}, as this broker has no root that keeps history"
        return SeriesParts([], [], [text])
    if (answer := kept.answer(queue, times)) is not None:
        return answer
    async with history_turn(call):
        if (answer := kept.answer(queue, times)) is None:
            await flushed(call)
            question = SeriesQuestion(str(root.path.absolute()), queue, times, MOST_S)
            answer = SeriesParts(**json.loads(await limited_answer(question, call)))
            kept.keep(queue, times, answer)
    return answer


def _timed(row: dict[str, Any]) -> dict[str, Any]:
    more = {name: value for name, value in row.items() if name != "at_us"}
    return {"at": iso_time(row["at_us"]), **more}


def _as_csv(answer: SeriesAnswer) -> Response:
    """Write a line for each step, with a column for each kind of departure; notes are no lines."""
    kinds = sorted({kind for item in answer.items for kind in item.departed})
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow((*_COLUMNS, "departed", *kinds))
    for item in answer.items:
        left = item.departed
        figures = [getattr(item, column) for column in _COLUMNS]
        lines.writerow((*figures, sum(left.values()), *(left.get(kind, 0) for kind in kinds)))
    return Response(text.getvalue().encode(), kind="text/csv; charset=utf-8")


ENDPOINTS = (
    Endpoint(
        "GET",
        QUEUE + "/series",
        MONITOR,
        show_series,
        SeriesAnswer,
        SeriesQuery,
        acts=(Act.RECEIVE,),
    ),
)
