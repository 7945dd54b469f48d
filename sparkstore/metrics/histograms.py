"""Histograms of durations: counts by bucket and a sum, each written by one thread.

An observation is a bisection and three additions. Who reads while it is written may see a count
that is one ahead of its sum, as with all counters here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import field, fields
from itertools import accumulate
from typing import Any, NamedTuple

_HELP = "histogram_help"

WRITE_BOUNDS_S = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 10.0),
)
"""Upper bounds for a sync or a commit: 0.1 ms on a good disk, seconds on one that fails."""
MESSAGE_BOUNDS_S = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0),
    *(60.0, 300.0, 1800.0, 3600.0, 21600.0, 86400.0),
)
"""Upper bounds for the life of a message: it may be consumed at once, or wait for days."""


class Histogram:
    """Durations in seconds by upper bound; the last bucket has no bound.

    Attributes:
        sum_s: All durations together.
    """

    __slots__ = ("_bounds", "_counts", "sum_s")

    def __init__(self, bounds_s: Sequence[float]) -> None:
        self._bounds = tuple(bounds_s)
        self._counts = [0] * (len(bounds_s) + 1)
        self.sum_s = 0.0

    def observe(self, seconds: float, count: int = 1) -> None:
        """Count so many equal durations; a negative one, of a clock that was set back, is 0."""
        took_s = max(seconds, 0.0)
        self._counts[bisect_left(self._bounds, took_s)] += count
        self.sum_s += took_s * count

    def quantile(self, share: float) -> float | None:
        """Return the bound of the bucket that a share of all reaches; None: none was observed.

        Of the last bucket, which has no bound, the largest bound is returned.
        """
        wanted = share * sum(self._counts)
        reached = (at for at, count in enumerate(accumulate(self._counts)) if count >= wanted)
        at = min(next(reached), len(self._bounds) - 1)
        return self._bounds[at] if wanted else None

    @property
    def buckets(self) -> list[tuple[str, float]]:
        """The bound of each bucket as text, with how many were at most that."""
        bounds = [*map(str, self._bounds), "+Inf"]
        return [*zip(bounds, map(float, accumulate(self._counts)), strict=True)]


class NamedHistogram(NamedTuple):
    """A histogram of a dataclass with the name of its field."""

    name: str
    help: str
    histogram: Histogram


def timed(help_text: str, bounds_s: Sequence[float]) -> Any:
    """A field of a dataclass with durations; the text is a sentence of what they are."""
    return field(
        default_factory=lambda: Histogram(bounds_s), compare=False, metadata={_HELP: help_text}
    )


def histograms_of(counts: Any) -> list[NamedHistogram]:
    """The histograms of a dataclass, in the order of its fields."""
    return [
        NamedHistogram(field.name, field.metadata[_HELP], getattr(counts, field.name))
        for field in fields(counts)
        if _HELP in field.metadata
    ]
