"""How many messages a sending client may have under way. Pure: no clock.

Full credit while the store keeps up. `NotNow` (no room, storage does not answer) cuts it to
one message a probe, so that clients are held back by the protocol rather than refused again and
again. Each success doubles it. Credit once given cannot be taken back (AMQP 1.0 section 2.6.7), so
what was already allowed may still be refused.
"""

from __future__ import annotations

_MOST_DOUBLINGS = 32
"""From 1 to more than anybody has."""


class CreditWindow:
    """The credit that one link gives."""

    def __init__(self, full: int) -> None:
        self._full = full
        self._window = full
        self._outstanding = 0
        self._is_held_back = False

    @property
    def is_held_back(self) -> bool:
        """True after a failure until `probe`: no credit is given meanwhile."""
        return self._is_held_back

    def used(self, count: int = 1) -> None:
        """Count messages that came in, until `done` or `failed`."""
        self._outstanding += count

    def done(self, count: int = 1) -> None:
        """Count messages that were stored."""
        self._outstanding -= count
        if self._window < self._full:
            self._window = min(self._full, self._window << min(count, _MOST_DOUBLINGS))

    def refused(self) -> None:
        """Count out a message that was refused for a fault of its own."""
        self._outstanding -= 1

    def failed(self) -> None:
        """Hold the peer back, as the store is unavailable for a message."""
        self._outstanding -= 1
        self._window = 1
        self._is_held_back = True

    def probe(self) -> None:
        """Allow one more try, because the time of a probe has come."""
        self._is_held_back = False

    def to_give(self, credit: int) -> int:
        """Find how much credit to add; nothing until half the window is free.

        Args:
            credit: What the peer may still send.
        """
        if self._is_held_back:
            return 0
        missing = self._window - credit - self._outstanding
        return missing if missing > 0 and missing * 2 >= self._window else 0
