"""Answers of history about series, which do not change any more, are kept."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from datetime import datetime
from typing import Any, NamedTuple

from broker_shim.serve.http.figures.figure_bodies import AlarmRow
from sparkstore.embedded.series_times import SeriesTimes

MOST_KEPT = 64


class SeriesParts(NamedTuple):
    """The parts of a series: items, marks, and sentences about what was left out."""

    items: list[dict[str, Any]]
    marks: list[dict[str, Any]]
    left_out: list[str]


class RootUpkeep(NamedTuple):
    """The state of jobs, copies and faults, as the tables of a root tell it.

    Attributes:
        compacted_at: When the last compaction ended that did not fail; None: none is known.
        replica_lags: How many records each replica in a folder lacks; None: it cannot be read.
        alarms: Sentences about jobs that failed, and about findings.
    """

    compacted_at: datetime | None
    replica_lags: dict[str, int | None]
    alarms: list[AlarmRow]


class SeriesKept:
    """Answers of history that do not change any more; used by the thread of the HTTP port.

    Attributes:
        turn: Held by the request whose process runs.
        upkeep: What the tables told of jobs and replicas, and when, by the monotonic clock.
    """

    upkeep: tuple[float, RootUpkeep] | None = None

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self._answers: OrderedDict[tuple[str, SeriesTimes], SeriesParts] = OrderedDict()

    def answer(self, queue: str, times: SeriesTimes) -> SeriesParts | None:
        """Return what is kept."""
        return self._answers.get((queue, times))

    def keep(self, queue: str, times: SeriesTimes, parts: SeriesParts) -> None:
        """Keep an answer, and forget the oldest beyond the bound."""
        self._answers[queue, times] = parts
        if len(self._answers) > MOST_KEPT:
            self._answers.popitem(last=False)
