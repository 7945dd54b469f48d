"""Moments between the commits of a job, at which a test stops it. Each job lists its own."""

from __future__ import annotations

from collections.abc import Callable

Failpoint = Callable[[str], None]


def no_failpoint(_boundary: str) -> None:
    """Do nothing at a boundary of a job; a test passes a function that stops the job there."""
