"""Turns: how much of what one peer sent is acted on before all others have theirs."""

from __future__ import annotations

import sys
import time
from time import thread_time


class Turns:
    """How much work one peer may cause in its turn: the less, the more of them have more to do.

    A read brings up to 128 KiB, which may be six thousand frames, and a frame may name all that is
    unsettled: without turns one peer would hold up all others for as long.

    The store's threads wait for the interpreter, too, some five times for a message, and each time
    for as long as the interpreter's switch interval if the loop always has something to do: that
    was three quarters of what an honest client waited for beside a flood. So the interval is short
    while, and only while, any peer has more to do than a turn.

    Attributes:
        busy_count: Peers that have more to do.
    """

    def __init__(self) -> None:
        self.busy_count = 0
        self._interval_s = sys.getswitchinterval()
        self._awaited_until_s = 0.0

    @property
    def work(self) -> int:
        """In pieces of some 20 µs (`protocol_1_0.budget`)."""
        is_awaited = time.monotonic() < self._awaited_until_s
        most = _WORK_WHILE_AWAITED if is_awaited else _MOST_WORK
        return max(_LEAST_WORK, most // max(1, self.busy_count))

    def heard(self, byte_count: int) -> None:
        """A peer said so much, and has no more to do: if that is little, it waits for its answer.

        While somebody waits, the turns of those who have more to do are short. While nobody does,
        they are long, as each ends with a group for the store, a wake-up of its threads and a
        write: with short turns a fast sender has ten times as many of each.
        """
        if self.busy_count and byte_count < _LITTLE_BYTES:
            self._awaited_until_s = time.monotonic() + _AWAITED_S

    def count(self, change: int) -> None:
        """So many more peers have more to do."""
        was_busy, self.busy_count = self.busy_count > 0, self.busy_count + change
        if was_busy is not (self.busy_count > 0):
            sys.setswitchinterval(self._interval_s if was_busy else _BUSY_INTERVAL_S)


_MOST_WORK, _WORK_WHILE_AWAITED, _LEAST_WORK = 400, 64, 16
"""Some 10 ms, which is what a read of messages of 1 KiB takes; 1.6 ms; and 0.4 ms."""
_LITTLE_BYTES, _AWAITED_S = 4_096, 1.0
_BUSY_INTERVAL_S = 1e-3


class Turn:
    """One turn of one peer: how much more may be done in it.

    Work is an estimate, the clock is not: the turn is over when either says so. What a turn took
    too much is taken off the next ones.
    """

    def __init__(self) -> None:
        self._work_left = 0
        self._ends_s = 0.0

    def begin(self, most_work: int) -> None:
        """The next turn, of so much work; it takes as much processor time at most."""
        self._work_left = most_work + max(-_MOST_DEBT, min(0, self._work_left))
        self._ends_s = thread_time() + most_work * _WORK_S

    @property
    def step_work(self) -> int:
        """Of frames, which are decoded before what they lead to is done."""
        return min(_MOST_STEP_WORK, self._work_left)

    def spend(self, work: int) -> None:
        """So much was done."""
        self._work_left -= work

    def goes_on(self) -> bool:
        """False if the rest has to wait for the next turn."""
        return self._work_left > 0 and thread_time() < self._ends_s


_MOST_STEP_WORK = 64
_MOST_DEBT = 1_000
_WORK_S = 25e-6
"""A piece of work may take so much processor time; what takes longer ends the turn earlier."""
