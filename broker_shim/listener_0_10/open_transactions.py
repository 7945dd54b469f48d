"""Transactions (tx) that have begun, and which of them are open for too long. No I/O."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable

from broker_shim.broker.storage.loop import Later

_LEAST_S = 1.0
"""Between two looks."""


class OpenTransactions:
    """The transactions of all sessions, the oldest first, with one timer for all.

    On the loop's thread only.
    """

    def __init__(
        self, later: Later, most_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Begin with no transaction that is open.

        Args:
            later: Makes a call after a while.
            most_s: How long one may be open, from its first operation, in seconds.
            clock: Only rises, in seconds.
        """
        self._later, self.most_s, self._clock = later, most_s, clock
        self._open: dict[Hashable, tuple[float, Callable[[], None]]] = {}
        self._is_looked_at_later = False

    def began(self, transaction: Hashable, on_late: Callable[[], None]) -> None:
        """Watch a transaction since its first operation; `on_late` if it is open too long."""
        self._open[transaction] = self._clock(), on_late
        self._look_later()

    def ended(self, transaction: Hashable) -> None:
        """Forget a transaction that is over; one that never began changes nothing."""
        self._open.pop(transaction, None)

    def _look_later(self) -> None:
        oldest = next(iter(self._open.values()), None)
        if oldest is not None and not self._is_looked_at_later:
            self._is_looked_at_later = True
            due_s = oldest[0] + self.most_s - self._clock()
            self._later(max(due_s, _LEAST_S), self._look)

    def _look(self) -> None:
        self._is_looked_at_later = False
        due_s = self._clock() - self.most_s
        for transaction, (began_at_s, on_late) in [*self._open.items()]:
            if began_at_s > due_s:
                break
            del self._open[transaction]
            on_late()
        self._look_later()
