"""Handlers of one connection that hold frames back, until each goes on."""

from __future__ import annotations

import time

from broker_shim.handlers.handler_chain import Delayed


class DelayedHandlers:
    """The handlers of a connection that hold frames back. On the loop's thread only."""

    def __init__(self) -> None:
        self._delayed: dict[Delayed, None] = {}

    def __bool__(self) -> bool:
        """True while one holds frames back."""
        return bool(self._delayed)

    def add(self, delayed: Delayed) -> None:
        """Add a handler that holds frames back. See `HandlerContext.delay`."""
        self._delayed[delayed] = None

    def wait_s(self) -> float:
        """The seconds until the first of them wants to go on."""
        due = [at_s for handler in self._delayed if (at_s := handler.due_at_s()) is not None]
        return max(0.0, min(due, default=0.0) - time.monotonic())

    def go_on(self) -> None:
        """Have them hand on what is due."""
        for handler in list(self._delayed):
            handler.go_on()
            if handler.due_at_s() is None:
                del self._delayed[handler]

    def forget(self) -> None:
        """Forget all handlers, so that none goes on."""
        self._delayed.clear()
