"""Counts the messages that were refused because their queue is full, and says so in the log."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from sparkstore.core.queue_names import shown
from sparkstore.core.state_machine.room import RoomStateMachine

_log = logging.getLogger(__name__)

_QUIET_S = 60.0
"""Of one queue there is a line so often at most."""
_MAX_QUEUES = 1_000
"""Queues that are remembered for that; the counts of others are in `total` alone."""


class FullQueues:
    """The refusals of a store by queue: one line a minute, then how many since.

    Attributes:
        total: Messages that were refused.
        counts: The same of each queue.
    """

    def __init__(
        self, machine: RoomStateMachine, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Have the state machine of a store tell what it refuses."""
        machine.on_full = self.note
        self._clock = clock
        self._said: dict[str, tuple[float, int]] = {}
        self.total = 0
        self.counts: dict[str, int] = {}

    def note(self, queue: str) -> None:
        """Count one message; under the lock of the store, so nothing here may call it."""
        self.total += 1
        if queue not in self.counts and len(self.counts) >= _MAX_QUEUES:
            return
        count = self.counts[queue] = self.counts.get(queue, 0) + 1
        now_s = self._clock()
        said_s, said_count = self._said.get(queue, (now_s - _QUIET_S, 0))
        if now_s - said_s >= _QUIET_S:
            self._said[queue] = now_s, count
            text = "queue %s is full: senders are refused, %d messages since the last line"
            _log.warning(text, shown(queue), count - said_count)
