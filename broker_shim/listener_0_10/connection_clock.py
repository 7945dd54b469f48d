"""When a peer is silent for too long, and when it wants to hear of us. Times are arguments."""

from __future__ import annotations

_LEAST_S, _MOST_S = 0.05, 120.0


class ConnectionClock:
    """The heartbeats of one connection, in seconds of a clock that only rises.

    Attributes:
        heartbeat_s: What was agreed; 0: no heartbeats.
        heard_s: When bytes came last.
        said_s: When bytes went last.
    """

    def __init__(self, handshake_timeout_s: float, now_s: float) -> None:
        self._opens_until_s = now_s + handshake_timeout_s
        self.heartbeat_s = 0
        self.heard_s = self.said_s = now_s

    def is_late(self, now_s: float, *, is_open: bool) -> bool:
        """True if the peer did not open in time, or was silent for two heartbeats."""
        if not is_open:
            return now_s >= self._opens_until_s
        return bool(self.heartbeat_s) and now_s - self.heard_s >= 2 * self.heartbeat_s

    def is_beat_due(self, now_s: float) -> bool:
        """True if the peer has not heard of us for half a heartbeat."""
        return bool(self.heartbeat_s) and now_s - self.said_s >= self.heartbeat_s / 2

    def next_s(self, now_s: float, *, is_open: bool) -> float:
        """Find when to look again, at the latest."""
        if not is_open:
            return max(now_s + _LEAST_S, self._opens_until_s)
        if not self.heartbeat_s:
            return now_s + _MOST_S
        due_s = min(self.said_s + self.heartbeat_s / 2, self.heard_s + 2 * self.heartbeat_s)
        return max(now_s + _LEAST_S, due_s)
