"""Time that passes when a test says so."""

from __future__ import annotations

from collections.abc import Callable


class Clock:
    """A loop's timers, and the time that they go by."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def later(self, delay_s: float, call: Callable[[], None]) -> None:
        self.timers.append((self.now_s + delay_s, call))

    def pass_s(self, seconds: float) -> None:
        """Make the calls that are due by then, each at its time."""
        end_s = self.now_s + seconds
        while due := [timer for timer in self.timers if timer[0] <= end_s]:
            timer = min(due, key=lambda each: each[0])
            self.timers.remove(timer)
            self.now_s = timer[0]
            timer[1]()
        self.now_s = end_s
