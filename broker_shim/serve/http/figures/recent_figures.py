"""The figures of the last minutes, sampled on the loop's thread and kept in a ring.

The counters of the broker are kept for an hour.

Bounds: `KEPT` samples, `SAMPLE_S` apart, of `MOST_QUEUES` queues: those that are there for longest.
That is 20 MB at most. A sample of 1,000 queues takes the loop some 3 ms.
"""

from __future__ import annotations

import time
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Any, NamedTuple

from broker_shim.broker.storage.loop import Later
from broker_shim.broker.virtual_host import Broker
from sparkstore.embedded.series_times import SeriesTimes

SAMPLE_S, KEPT, MOST_QUEUES = 5, 241, 1_000
KEPT_TOTALS, RATE_S = 721, 60
OTHER = "other"
"""How messages leave a queue of which memory does not know how: placed elsewhere, or replaced."""
KINDS = ("accepted", "expired", "moved", "purged")
"""Ways to leave a queue that memory tells apart, besides dead letters."""


def now_us() -> int:
    """Return the time now, UTC µs."""
    return time.time_ns() // 1_000


class FigureSample(NamedTuple):
    """One look at a queue; the counters since the broker's start never fall while it is there."""

    depth: float
    oldest_age_s: float
    arrivals: float
    departures: float
    dead_lettered: float
    redelivered: float
    accepted: float
    expired: float
    moved: float
    purged: float


class TotalSample(NamedTuple):
    """One look at the counters of the broker."""

    at_us: int
    enqueued: int
    accepted: int
    dead_lettered: int


_WIDTH = len(FigureSample._fields)
_NOTHING = FigureSample(*[0.0] * _WIDTH)


class RecentFigures:
    """The ring of one broker; on the loop's thread only.

    Attributes:
        started_us: When it began, UTC µs: with the broker.
    """

    def __init__(
        self, broker: Callable[[], Broker | None], later: Later, clock: Callable[[], int] = now_us
    ) -> None:
        self._broker, self._later, self._clock = broker, later, clock
        self._times_us = array("q")
        self._samples: dict[str, array[float]] = {}
        self._totals = deque[TotalSample](maxlen=KEPT_TOTALS)
        self.started_us = clock()

    def sample(self) -> None:
        """Look at each queue now, and again and again while the loop runs."""
        at_us, broker = self._clock(), self._broker()
        self._times_us.append(at_us)
        del self._times_us[:-KEPT]
        if broker is not None:
            counts = broker.metrics
            total = TotalSample(at_us, counts.enqueued, counts.accepted, counts.dead_lettered)
            self._totals.append(total)
        queues = {} if broker is None else broker.queues
        named = (item for item in queues.items() if item[1].owner is None)
        seen: dict[str, array[float]] = {}
        for name, queue in islice(named, MOST_QUEUES):
            assert broker is not None
            age_s = broker.queries.facts(name, at_us).oldest_age_s
            moves = (queue.arrivals, queue.departures, queue.dead_lettered, queue.redelivered)
            kept = self._samples.get(name, array("d"))
            kinds = (queue.departed[kind] for kind in KINDS)
            kept.extend((len(queue), age_s or 0, *moves, *kinds))
            del kept[: -KEPT * _WIDTH]
            seen[name] = kept
        self._samples = seen  # a queue that is gone is forgotten
        self._later(SAMPLE_S, self.sample)

    def since(self, seconds: float) -> tuple[TotalSample, TotalSample]:
        """Return the counters so long ago, or when the broker started, and the newest."""
        newest = self._totals[-1] if self._totals else TotalSample(self._clock(), 0, 0, 0)
        start_us = newest.at_us - int(seconds * 1_000_000)
        return next((row for row in self._totals if row.at_us >= start_us), newest), newest

    def begin_us(self, queue: str) -> int | None:
        """Return from when on the ring tells of a queue, UTC µs; None: it does not.

        What is older than a queue that came meanwhile is nothing, and known.
        """
        return self._times_us[0] if queue in self._samples else None

    def items(self, queue: str, times: SeriesTimes) -> list[dict[str, Any]]:
        """List the steps of a series, as `embedded.queue_series` does, of a queue in the ring.

        A step has what was seen until its end, so it may lack what came `SAMPLE_S` before that.
        """
        items, before = list[dict[str, Any]](), self._at(queue, times.since_us)
        for number in range(times.steps):
            now = self._at(queue, times.end_us(number))
            is_anew = now.arrivals < before.arrivals or now.departures < before.departures
            since = _NOTHING if is_anew else before  # it was deleted, and made again
            left = {kind: int(getattr(now, kind) - getattr(since, kind)) for kind in KINDS}
            left["dead-lettered"] = int(now.dead_lettered - since.dead_lettered)
            left[OTHER] = max(0, int(now.departures - since.departures) - sum(left.values()))
            items.append(
                {
                    "at_us": times.end_us(number),
                    "depth": int(now.depth),
                    "oldest_age_s": now.oldest_age_s,
                    "arrived": int(now.arrivals - since.arrivals),
                    "departed": {kind: count for kind, count in left.items() if count},
                    "redelivered": int(max(0, now.redelivered - since.redelivered)),
                }
            )
            before = now
        return items

    def _at(self, queue: str, at_us: int) -> FigureSample:
        """Return the newest sample at a moment or before; of a time before it came, nothing."""
        kept = self._samples[queue]
        number = bisect_right(self._times_us, at_us) - 1
        number -= len(self._times_us) - len(kept) // _WIDTH
        if number < 0:
            return _NOTHING
        return FigureSample(*kept[number * _WIDTH : (number + 1) * _WIDTH])
