"""Calls about wiring that wait until a member knows what wiring the service has.

A member that connects is told all there is, and destroys at its broker what is not in that. The
whole may be on its way while a call of its own is decided: what it creates then is not in it, would
be destroyed when it comes, and would never be told of again, as a member is not told of what it did
itself. So calls wait from the question on until all of the whole is here.

Why that is enough: the service handles what a connection asks in its order. A call asked before the
question is decided before the whole is made, and so is in it; one asked after the whole is here is
decided later. A lost connection ends the waiting: calls asked while there is none are asked again
on the next one before its question is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class HeldCalls:
    """Calls in their order, made at once or held; under the guard of the connection."""

    def __init__(self, guard: threading.RLock, is_connected: Callable[[], bool]) -> None:
        """Begin with nothing held; without a connection there is no question to wait for."""
        self._guard, self._is_connected = guard, is_connected
        self._held: list[Callable[[], None]] | None = None

    def hold(self) -> None:
        """Hold what is asked from now on."""
        with self._guard:
            if self._is_connected():
                self._held = self._held or []

    def do(self, call: Callable[[], None]) -> None:
        """Make a call now, or when those that are held are let go."""
        with self._guard:
            if self._held is None:
                call()
            else:
                self._held.append(call)

    def let_go(self) -> None:
        """Make the calls that are held, and hold no more."""
        with self._guard:
            held, self._held = self._held, None
            for call in held or ():
                call()
