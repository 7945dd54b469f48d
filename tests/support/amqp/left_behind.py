"""Python objects that stay when something is done again and again, with the collector off."""

from __future__ import annotations

import gc
import logging
from collections import Counter
from collections.abc import Callable

_FIRST = 20
"""So often before it is counted: what is made once is made by then."""


def objects_left(act: Callable[[], None], times: int, settle: Callable[[], None]) -> float:
    """How many objects each `act` leaves that only Python's collector would find, or nobody.

    Args:
        act: What is done.
        times: How often.
        settle: Waits until all that it led to is over.

    Returns:
        Objects for each time; a fraction is what a timer that was taken back leaves for a while.
    """
    for _ in range(_FIRST):
        act()
    settle()
    gc.collect()
    gc.disable()
    logging.disable()  # pytest keeps each record, if an earlier test made the log say that much
    try:
        before = _counts()
        for _ in range(times):
            act()
        settle()
        left = _counts() - before
    finally:
        gc.enable()
        logging.disable(logging.NOTSET)
    _told[:] = [f"{count} {name}" for name, count in left.most_common(12)]
    return left.total() / times


def told() -> str:
    """Of which types most were left by the last call; for the message of an assertion."""
    return ", ".join(_told)


_told: list[str] = []


def _counts() -> Counter[str]:
    return Counter(f"{type(each).__module__}.{type(each).__name__}" for each in gc.get_objects())
