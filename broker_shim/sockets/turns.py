"""Turns: how much of what one peer sent is acted on before all others have theirs."""

from __future__ import annotations

import sys
import time
from time import monotonic, thread_time


class LoopTime:
    """Time of the loop that one peer took lately: what is 0.1 s past counts half."""

    __slots__ = ("_at_s", "_seconds")

    def __init__(self) -> None:
        self._seconds = self._at_s = 0.0

    def seconds(self, now_s: float) -> float:
        """Return the seconds taken that still count now."""
        return float(self._seconds * 0.5 ** ((now_s - self._at_s) / _HALF_LIFE_S))

    def add(self, took_s: float, now_s: float) -> float:
        """Add seconds that were taken, and return how many count now."""
        self._seconds, self._at_s = self.seconds(now_s) + took_s, now_s
        return self._seconds

    def sent(self, byte_count: int) -> None:
        """Count bytes that go to the peer.

        The loop's work for them is not in the peer's own turns.
        """
        self.add(byte_count * _SENT_BYTE_S, time.monotonic())


class Turns:
    """Limits of the work of one turn: the less, the more peers have more to do.

    A read brings up to 128 KiB, which may be six thousand frames, and a frame may name all that is
    unsettled: without turns one peer would hold up all others for as long.

    While somebody waits who takes much less of the loop's time than another (of equals none is in
    the way of the others), three things change. Turns are short. Each ends with a real pause: the
    store's threads wait for the interpreter, too, and for longer than its switch interval, as each
    system call of the loop lets go of it for too short a moment to wake one of them, and begins
    their interval anew. And the interval is short, which it is, too, while any peer has more to do
    than a turn. An honest client beside a flood waits for a third of what it would wait for without
    all that. The flood has three quarters of its rate: more groups for the store, more wake-ups
    and writes. That is why nothing of it is done while nobody waits.

    Attributes:
        busy_count: Peers that have more to do.
    """

    def __init__(self) -> None:
        self.busy_count = 0
        self._greediest = LoopTime()
        self._awaited_until_s = self._paused_at_s = 0.0
        self._is_hurried = False
        self._interval_s = sys.getswitchinterval()

    @property
    def work(self) -> int:
        """Return the work of a turn, in pieces of some 20 µs (`protocol_1_0.budget`)."""
        most = _WORK_WHILE_AWAITED if self._is_awaited else _MOST_WORK
        return max(_LEAST_WORK, most // max(1, self.busy_count))

    def ended(self, taken: LoopTime, began_s: float, byte_count: int) -> None:
        """Note that a turn is over.

        Args:
            taken: The loop's time that this peer took; this turn is added.
            began_s: When the turn began, by the monotonic clock.
            byte_count: What the peer said, if that was all of it: it may wait for its answer now.
        """
        now_s = time.monotonic()
        seconds, most_s = taken.add(now_s - began_s, now_s), self._greediest.seconds(now_s)
        if seconds >= most_s:
            self._greediest = taken
        elif (
            _HEARTBEAT_BYTES < byte_count < _LITTLE_BYTES
            and most_s > _GREEDY_S
            and seconds * _MUCH_LESS < most_s
        ):
            self._awaited_until_s = now_s + _AWAITED_S
        self._hurry()
        if self._is_awaited and now_s - self._paused_at_s > _PAUSE_EVERY_S:
            self._paused_at_s = now_s
            time.sleep(_PAUSE_S)

    def gone(self, taken: LoopTime) -> None:
        """Forget the work of a peer that takes no more."""
        if self._greediest is taken:
            self._greediest = LoopTime()

    def count(self, change: int) -> None:
        """Count peers that have more to do."""
        self.busy_count += change
        self._hurry()

    @property
    def _is_awaited(self) -> bool:
        return time.monotonic() < self._awaited_until_s

    def _hurry(self) -> None:
        is_hurried = self.busy_count > 0 or self._is_awaited
        if is_hurried is not self._is_hurried:
            self._is_hurried = is_hurried
            sys.setswitchinterval(_SHORT_INTERVAL_S if is_hurried else self._interval_s)


_MOST_WORK, _WORK_WHILE_AWAITED, _LEAST_WORK = 400, 32, 16
"""Some 10 ms, which is what a read of messages of 1 KiB takes; 0.8 ms; and 0.4 ms."""
_HEARTBEAT_BYTES, _LITTLE_BYTES, _AWAITED_S = 24, 4_096, 0.2
_SENT_BYTE_S = 30e-9
"""A delivery of 1 KiB takes 44 µs of the loop's time, some of it in the turn that settles it."""
_HALF_LIFE_S, _GREEDY_S, _MUCH_LESS = 0.1, 0.005, 8
"""Who takes all of the loop's time has taken 0.14 s, each of twenty who share it 0.007 s, whoever
opens a connection some 0.001 s."""
_SHORT_INTERVAL_S = 1e-3
_PAUSE_S, _PAUSE_EVERY_S = 1e-6, 3e-4
"""A pause takes some 60 µs, however short it is to be, until the kernel's timer wakes it: beside a
thousand who wait the loop must not pause after the turn of each."""


class Turn:
    """A turn of one peer: how much more may be done in it.

    Work is an estimate, the clock is not: the turn is over when either says so. What a turn took
    too much is taken off the next ones.

    The clock is the thread's processor time, a system call of 0.6 µs. A thread cannot take more of
    it than time passes. So it is read only when that much has passed by the monotonic clock, which
    costs a twelfth.
    """

    def __init__(self) -> None:
        self._work_left = 0
        self._ends_s = self._surely_until_s = 0.0

    def begin(self, most_work: int) -> None:
        """Begin the next turn, of so much work; it takes as much processor time at most."""
        self._work_left = most_work + max(-_MOST_DEBT, min(0, self._work_left))
        seconds = most_work * _WORK_S
        self._ends_s, self._surely_until_s = thread_time() + seconds, monotonic() + seconds

    @property
    def step_work(self) -> int:
        """Return the work to take at a time from frames: all are decoded before any is acted on."""
        return min(_MOST_STEP_WORK, self._work_left)

    def spend(self, work: int) -> None:
        """Count work that was done."""
        self._work_left -= work

    @property
    def work_left(self) -> int:
        """The work that the turn has left; it is over at 0 or below."""
        return self._work_left

    def goes_on(self) -> bool:
        """False if the rest has to wait for the next turn."""
        return self._work_left > 0 and (monotonic() < self._surely_until_s or self._has_time())

    def _has_time(self) -> bool:
        left_s = self._ends_s - thread_time()
        self._surely_until_s = monotonic() + left_s
        return left_s > 0


_MOST_STEP_WORK = 64
_MOST_DEBT = 1_000
_WORK_S = 25e-6
"""A piece of work may take so much processor time; what takes longer ends the turn earlier."""
