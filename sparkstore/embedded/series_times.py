"""The steps of a series of figures. Pure."""

from __future__ import annotations

from typing import NamedTuple


class SeriesTimes(NamedTuple):
    """The steps of a series.

    Attributes:
        since_us: The begin of the first step, UTC µs.
        until_us: The end of the last one, which may be shorter than the others.
        step_us: The length of a step.
    """

    since_us: int
    until_us: int
    step_us: int

    @property
    def steps(self) -> int:
        """The number of steps."""
        return -((self.since_us - self.until_us) // self.step_us)

    def end_us(self, number: int) -> int:
        """Return the end of a step, by its number from 0."""
        return min(self.since_us + (number + 1) * self.step_us, self.until_us)

    def first_from(self, at_us: int) -> int:
        """Return the number of the first step that begins at a moment or later."""
        return max(0, -((self.since_us - at_us) // self.step_us))
