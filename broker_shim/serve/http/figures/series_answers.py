"""Answers of history about series, which do not change any more, are kept."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Any, NamedTuple

from sparkstore.embedded.series_times import SeriesTimes

MOST_KEPT = 64


class SeriesParts(NamedTuple):
    """The parts of a series: items, marks, and sentences about what was left out."""

    items: list[dict[str, Any]]
    marks: list[dict[str, Any]]
    left_out: list[str]


class SeriesKept:
    """Answers of history that do not change any more; used by the thread of the HTTP port.

    Attributes:
        turn: Held by the request whose process runs.
    """

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
