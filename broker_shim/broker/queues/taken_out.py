"""Runs of a queue's messages that an order has taken out of dispatch. Pure.

They are held by nobody's name until the store has decided, each as one part: what is known of one
of their messages is where in which run it is. What is shorter than `_LEAST_RUN` is no run: held one
by one, its messages cost less than to count and keep so many parts. The store may decide parts of a
run differently: then it is cut.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import NamedTuple

from broker_shim.broker.queues.queue_index import QueueIndex, Withdrawn
from sparkstore.core.packed_integers import neighbours_in

_LEAST_RUN = 32
_RUN_WEIGHT = 8
"""A run costs all who handle it as much as so many messages that are in none."""


class TakenOut(NamedTuple):
    """The outcome of taking messages out of dispatch.

    Attributes:
        held: Those that are out, in their order: runs as ranges, and what is between them.
        left: Held by somebody else.
        gone: Not on the queue.
    """

    held: list[Sequence[int]]
    left: int
    gone: int


class TakenOutRuns:
    """The runs that are out; `len` counts their messages."""

    def __init__(self, index: QueueIndex, withdraw: Callable[[Iterable[int]], Withdrawn]) -> None:
        """Begin with none; the index has what waits on the queue, `withdraw` holds single ones."""
        self._index, self._withdraw = index, withdraw
        self._runs: dict[int, tuple[int, range]] = {}  # place and ids, by the first id
        self._firsts: list[int] = []  # of the runs, rising: no message is in two of them
        self._count = 0

    def __len__(self) -> int:
        """The number of messages that are out."""
        return self._count

    def __contains__(self, message_id: int) -> bool:
        """True if a message is in one of the runs."""
        at = bisect_right(self._firsts, message_id) - 1
        return at >= 0 and message_id < self._runs[self._firsts[at]][1].stop

    def take(self, message_ids: Sequence[int], most: int, *, as_runs: bool) -> TakenOut:
        """Take waiting messages out, as runs where many that follow each other wait.

        End what is in a run by `left` or `come_back`.

        Args:
            message_ids: In the order of the queue.
            most: Leave the rest alone once so many are in no run; a run counts as `_RUN_WEIGHT`.
            as_runs: False: each is looked at when it leaves, so none is in a run.
        """
        all_held, left, gone = list[Sequence[int]](), 0, 0
        singly = [(False, message_ids[:most])]
        for is_run, part in self._parts(message_ids, most) if as_runs else singly:
            out = Withdrawn([], 0, 0) if is_run else self._withdraw(part)
            left, gone = left + out.left, gone + out.gone
            all_held += [part] if is_run else filter(None, [out.held])
        return TakenOut(all_held, left, gone)

    def _parts(self, message_ids: Sequence[int], most: int) -> Iterator[tuple[bool, Sequence[int]]]:
        """Part messages, in their order: a run, which is out; or others, which are as they were."""
        others: list[int] = []
        for neighbours in neighbours_in(message_ids):
            at = 0
            while at < len(neighbours) and most > 0:
                place, size = self._index.find_run(neighbours[at:]) or (0, 1)
                part = neighbours[at : at + size]
                at += size
                if size < _LEAST_RUN:
                    others += part[:most]
                    most -= size
                    continue
                if others:
                    yield False, others
                    others = []
                self._index.hold_run(place, size)
                self._keep(place, part)
                yield True, part
                most -= _RUN_WEIGHT
        if others:
            yield False, others

    def left(self, message_ids: range) -> None:
        """Forget messages of one run that left the queue."""
        self._index.drop_run(self._cut(message_ids), len(message_ids))

    def come_back(self, message_ids: range) -> Iterable[tuple[int, int]]:
        """Part messages of one run; the id and the place of each, which is held from now on."""
        return zip(message_ids, count(self._cut(message_ids)), strict=False)

    def _cut(self, message_ids: range) -> int:
        """Take messages out of their run, of which the others stay; the place of the first."""
        at = bisect_right(self._firsts, message_ids.start) - 1
        place, run = self._runs.pop(self._firsts.pop(at))
        self._count -= len(run)
        for rest in (range(run.start, message_ids.start), range(message_ids.stop, run.stop)):
            if rest:
                self._keep(place + rest.start - run.start, rest)
        return place + message_ids.start - run.start

    def _keep(self, place: int, message_ids: range) -> None:
        self._runs[message_ids.start] = place, message_ids
        insort(self._firsts, message_ids.start)
        self._count += len(message_ids)
