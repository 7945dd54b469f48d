"""Selectors compiled in slices, so that nobody's long one holds up the loop.

The first slice is done at once: most selectors need no other. The rest of all that are longer is
done one slice a turn, in turns among them, and each is charged to the turns of its peer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import NamedTuple

from broker_shim.broker.storage.loop import Later
from broker_shim.selectors import InvalidSelector, Selector, compiling

OnCompiled = Callable[[Selector | InvalidSelector], None]

SLICE_WORK = 100
"""Of one slice, in pieces of some 20 µs; of a short selector, one for so many characters:"""
_WORK_CHARACTERS = 8


class _Job(NamedTuple):
    slices: Generator[None, None, Selector]
    on_compiled: OnCompiled
    is_wanted: Callable[[], bool]
    spend: Callable[[int], None]


class SelectorCompiler:
    """Compiles selectors, of all peers in turns. On the loop's thread only."""

    def __init__(self, later: Later) -> None:
        self._later = later
        self._jobs: deque[_Job] = deque()

    def compile(
        self,
        text: str,
        on_compiled: OnCompiled,
        is_wanted: Callable[[], bool],
        spend: Callable[[int], None],
    ) -> None:
        """Compile a selector; `on_compiled` gets it, or why it is none, perhaps at once.

        Nothing is called, and no more is done, once it is not wanted any more. What it takes is
        told to `spend`, slice by slice.
        """
        job = _Job(compiling(text), on_compiled, is_wanted, spend)
        spend(min(len(text) // _WORK_CHARACTERS, SLICE_WORK))
        if not self._go_on(job):
            self._jobs.append(job)
            if len(self._jobs) == 1:
                self._later(0.0, self._turn)

    def _turn(self) -> None:
        self._jobs = deque(job for job in self._jobs if job.is_wanted())
        if self._jobs:
            job = self._jobs.popleft()
            job.spend(SLICE_WORK)
            if not self._go_on(job):
                self._jobs.append(job)
        if self._jobs:
            self._later(0.0, self._turn)

    @staticmethod
    def _go_on(job: _Job) -> bool:
        """Compile one slice; True if it was the last."""
        try:
            next(job.slices)
        except StopIteration as end:
            job.on_compiled(end.value)
        except InvalidSelector as reason:
            job.on_compiled(reason)
        else:
            return False
        return True
