"""Calls from other threads, made on the loop's thread: one wake-up for as many as have come."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_log = logging.getLogger(__name__)

Call = Callable[[Any], None]

MOST_CALLS = 256
"""In one go: a store's group may have thousands of answers, and a turn is everybody's."""


class Inbox:
    """A queue of calls with a descriptor that is readable while there are any.

    Correctness of the wake-up: `post` appends, then writes unless a wake-up is under way; `drain`
    reads the descriptor and clears the mark before it takes the first call. So a call is appended
    either before the drain took the last one, and is taken, or finds the mark clear and wakes the
    loop again. A drain that leaves calls wakes the loop itself. A wake-up too many is harmless.
    `deque.append` and `popleft` are atomic.
    """

    def __init__(self) -> None:
        self._calls: deque[tuple[Call, Any, int]] = deque()
        self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._is_awake = False

    def fileno(self) -> int:
        """The file descriptor that the loop waits on."""
        return self._descriptor

    def post(self, call: Call, argument: object, weight: int = 1) -> None:
        """Have `call(argument)` made on the loop's thread, in the order of the posts.

        `weight` is how many answers it brings, as far as a turn goes.
        """
        self._calls.append((call, argument, weight))
        if not self._is_awake:
            self._is_awake = True
            os.eventfd_write(self._descriptor, 1)

    def drain(self) -> int:
        """Make the calls that have come, some at a time; how many."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._descriptor)
        self._is_awake = False
        waiting_count, count, weight = len(self._calls), 0, 0
        while count < waiting_count and weight < MOST_CALLS:
            call, argument, its_weight = self._calls.popleft()
            count += 1
            weight += its_weight
            try:
                call(argument)
            except Exception:  # noqa: BLE001  # a fault in one answer must not lose the others
                _log.exception("an answer of the store could not be acted on")
        if self._calls:  # those that are left have their turn after the sockets had theirs
            self._is_awake = True
            os.eventfd_write(self._descriptor, 1)
        return count

    def close(self) -> None:
        """Let go of the descriptor."""
        os.close(self._descriptor)
