"""Runs of a queue's messages that an order has taken out of dispatch. Pure.

They are held by nobody's name until the store has decided, each as one part: what is known of one
of their messages is where in which run it is. What is shorter than `_LEAST_RUN` is no run: held one
by one, its messages cost less than to count and keep so many parts.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Sequence
from itertools import count
from typing import NamedTuple

from broker_shim.broker.queues.queue_index import QueueIndex
from sparkstore.core.packed_integers import neighbours_in

_LEAST_RUN = 32
_RUN_WEIGHT = 8
"""A run costs all who handle it as much as so many messages that are in none."""


class TakenOut(NamedTuple):
    """Messages whose ids rise by one, as their places do, that were taken out of dispatch."""

    place: int
    message_ids: range


class TakenOutRuns:
    """The runs that are out; `len` counts their messages."""

    def __init__(self, index: QueueIndex) -> None:
        """Begin with none; the index has what waits on the queue."""
        self._index = index
        self._runs: dict[int, TakenOut] = {}  # by the first id
        self._firsts: list[int] = []  # of the runs, rising: no message is in two of them
        self._count = 0

    def __len__(self) -> int:
        """The number of messages that are out."""
        return self._count

    def __contains__(self, message_id: int) -> bool:
        """True if a message is in one of the runs."""
        at = bisect_right(self._firsts, message_id) - 1
        return at >= 0 and message_id <= self._runs[self._firsts[at]].message_ids[-1]

    def take(self, message_ids: Sequence[int], most: int) -> tuple[list[TakenOut], list[int]]:
        """Take waiting messages out, as runs where many that follow each other wait.

        End each run by `left` or `come_back`.

        Args:
            message_ids: In the order of the queue.
            most: Leave the rest alone once so many are in no run; a run counts as `_RUN_WEIGHT`.

        Returns:
            The runs, and the others, which are as they were.
        """
        runs: list[TakenOut] = []
        others: list[int] = []
        for neighbours in neighbours_in(message_ids):
            at = 0
            while at < len(neighbours):
                if most <= 0:
                    return runs, others
                place, size = self._index.find_run(neighbours[at:]) or (0, 1)
                part = neighbours[at : at + size]
                if size < _LEAST_RUN:
                    others += part[:most]
                    most -= size
                else:
                    self._index.hold_run(place, size)
                    runs.append(TakenOut(place, part))
                    self._keep(runs[-1])
                    most -= _RUN_WEIGHT
                at += size
        return runs, others

    def left(self, taken: TakenOut) -> None:
        """Forget a run whose messages left the queue."""
        self._forget(taken)
        self._index.drop_run(taken.place, len(taken.message_ids))

    def come_back(self, taken: TakenOut) -> Iterable[tuple[int, int]]:
        """Part a run into its messages; the id and the place of each, which is held from now on."""
        self._forget(taken)
        return zip(taken.message_ids, count(taken.place), strict=False)

    def _keep(self, taken: TakenOut) -> None:
        first = taken.message_ids[0]
        self._runs[first] = taken
        insort(self._firsts, first)
        self._count += len(taken.message_ids)

    def _forget(self, taken: TakenOut) -> None:
        first = taken.message_ids[0]
        del self._runs[first]
        del self._firsts[bisect_right(self._firsts, first) - 1]
        self._count -= len(taken.message_ids)
