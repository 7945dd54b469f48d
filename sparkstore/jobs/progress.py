"""Show the progress of a job: its log lines, each with the time since the job began."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from sparkstore.log_format import is_json

_SPARKSTORE = logging.getLogger("sparkstore")


@contextmanager
def progress(job: str, *, is_shown: bool) -> Iterator[None]:
    """Show what the modules of sparkstore log, from INFO on, on standard error.

    A line for each step: what was done, how many records, seconds since the beginning. Without
    `is_shown` nothing changes: then only warnings are seen.

    Args:
        job: Stands before each line.
        is_shown: Whether anybody looks.
    """
    if not is_shown:
        yield
        return
    if is_json():
        yield  # `use` has set the level, and each line has its time
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Elapsed(job))
    level, propagate = _SPARKSTORE.level, _SPARKSTORE.propagate
    _SPARKSTORE.addHandler(handler)
    _SPARKSTORE.setLevel(logging.INFO)
    _SPARKSTORE.propagate = False
    try:
        yield
    finally:
        _SPARKSTORE.removeHandler(handler)
        _SPARKSTORE.setLevel(level)
        _SPARKSTORE.propagate = propagate


class _Elapsed(logging.Formatter):
    def __init__(self, job: str) -> None:
        super().__init__()
        self._job = job
        self._began_ms: float | None = None

    def format(self, record: logging.LogRecord) -> str:
        elapsed_ms = record.relativeCreated
        if self._began_ms is None:
            self._began_ms = elapsed_ms
        return f"{self._job} {(elapsed_ms - self._began_ms) / 1000:7.1f} s  {record.getMessage()}"
