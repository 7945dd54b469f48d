"""Decide when to show that we are there, and when the peer is gone (2.4.5). Times are arguments."""

from __future__ import annotations

from enum import Enum

LEAST_INTERVAL_S = 0.05
"""Between two beats: a peer that wants more would keep us busy with nothing."""


class Due(Enum):
    """The actions that a heartbeat can call for."""

    NOTHING = "nothing"
    BEAT = "send an empty frame"
    SILENT = "the peer was silent for too long"


class Heartbeat:
    """Heartbeat of one connection, in both directions."""

    def __init__(self, *, idle_timeout_s: float, now_s: float) -> None:
        self._idle_timeout_s = idle_timeout_s
        self._interval_s: float | None = None
        self._received_at_s = self._sent_at_s = now_s

    def peer_wants(self, idle_timeout_ms: int | None) -> None:
        """Send at half of the peer's idle timeout, but not all the time."""
        if idle_timeout_ms:
            self._interval_s = max(LEAST_INTERVAL_S, idle_timeout_ms / 2_000)

    def received(self, now_s: float) -> None:
        """Note that bytes came from the peer."""
        self._received_at_s = now_s

    def sent(self, now_s: float) -> None:
        """Note that bytes went to the peer."""
        self._sent_at_s = now_s

    def due(self, now_s: float) -> Due:
        """Return the action that is due now."""
        if now_s - self._received_at_s >= self._idle_timeout_s:
            return Due.SILENT
        if self._interval_s is not None and now_s - self._sent_at_s >= self._interval_s:
            return Due.BEAT
        return Due.NOTHING

    def next_at_s(self) -> float:
        """Return when to look again, at the latest."""
        silent_at_s = self._received_at_s + self._idle_timeout_s
        if self._interval_s is None:
            return silent_at_s
        return min(silent_at_s, self._sent_at_s + self._interval_s)
