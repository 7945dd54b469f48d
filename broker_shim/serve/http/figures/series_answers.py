"""Answers of history about series, which do not change any more, are kept; others for a minute."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, TypeVar

from broker_shim.serve.http.figures.figure_bodies import AlarmRow
from sparkstore.embedded.series_times import SeriesTimes

MOST_KEPT = 64
LATELY_S = 60.0

T = TypeVar("T")


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
    """

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self._lately: dict[str, tuple[float, Any]] = {}
        self._running: dict[str, asyncio.Future[Any]] = {}
        self._answers: OrderedDict[tuple[str, SeriesTimes], SeriesParts] = OrderedDict()

    async def lately(self, what: str, read: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return what `read` returned in the last `LATELY_S`, else what it returns now.

        All who ask meanwhile wait for one and the same read. It goes on when they go.
        """
        at_s, value = self._lately.get(what, (-LATELY_S, None))
        if time.monotonic() - at_s < LATELY_S:
            kept: T = value
            return kept
        if (running := self._running.get(what)) is None:
            running = self._running[what] = asyncio.ensure_future(read())
            running.add_done_callback(partial(self._read, what))
        answer: T = await asyncio.shield(running)
        return answer

    def _read(self, what: str, running: asyncio.Future[Any]) -> None:
        del self._running[what]
        if not running.cancelled() and running.exception() is None:
            self._lately[what] = time.monotonic(), running.result()

    def answer(self, queue: str, times: SeriesTimes) -> SeriesParts | None:
        """Return what is kept."""
        return self._answers.get((queue, times))

    def keep(self, queue: str, times: SeriesTimes, parts: SeriesParts) -> None:
        """Keep an answer, and forget the oldest beyond the bound."""
        self._answers[queue, times] = parts
        if len(self._answers) > MOST_KEPT:
            self._answers.popitem(last=False)
