"""Runs of a queue's messages that an order has taken out of dispatch. Pure.

They are held by nobody's name until the store has decided, each as one part: what is known of one
of their messages is where in which run it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from typing import NamedTuple

from broker_shim.broker.queues.queue_index import QueueIndex
from sparkstore.core.packed_integers import neighbours_in


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

    def __len__(self) -> int:
        """The number of messages that are out."""
        return sum(len(run.message_ids) for run in self._runs.values())

    def __contains__(self, message_id: int) -> bool:
        """True if a message is in one of the runs."""
        return any(message_id in run.message_ids for run in self._runs.values())

    def take(self, message_ids: Sequence[int]) -> tuple[list[TakenOut], list[int]]:
        """Take waiting messages out, as runs where all that follow each other wait; and the others.

        End each run by `left` or `come_back`.
        """
        runs: list[TakenOut] = []
        others: list[int] = []
        for neighbours in neighbours_in(message_ids):
            at = 0
            while at < len(neighbours):
                held = self._index.take_run(neighbours[at:])
                if held is None:
                    others.append(neighbours[at])
                    at += 1
                else:
                    place, size = held
                    runs.append(TakenOut(place, neighbours[at : at + size]))
                    self._runs[neighbours[at]] = runs[-1]
                    at += size
        return runs, others

    def left(self, taken: TakenOut) -> None:
        """Forget a run whose messages left the queue."""
        del self._runs[taken.message_ids[0]]
        self._index.drop_run(taken.place, len(taken.message_ids))

    def come_back(self, taken: TakenOut) -> Iterable[tuple[int, int]]:
        """Part a run into its messages; the id and the place of each, which is held from now on."""
        place, message_ids = self._runs.pop(taken.message_ids[0])
        return zip(message_ids, count(place), strict=False)
