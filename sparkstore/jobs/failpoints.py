"""Moments between the commits of a job, at which a test stops it. Each job lists its own."""

from __future__ import annotations

from collections.abc import Callable

Failpoint = Callable[[str], None]


def no_failpoint(_boundary: str) -> None:
    """What a job does at a boundary, unless a test wants it to stop there."""
