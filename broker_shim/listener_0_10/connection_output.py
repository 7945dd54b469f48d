"""The bytes that wait to be written to one peer, and who waits for room."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class RoomWaiter(Protocol):
    """A sender that waits for room to write."""

    def has_room(self) -> None:
        """Go on to send, as less waits to be written."""


class ConnectionOutput:
    """Bytes for one peer, as far as they are not with it. On the loop's thread only."""

    def __init__(self, most_bytes: int, has_output: Callable[[], None]) -> None:
        """Begin; more than `most_bytes` should not wait."""
        self._most_bytes, self._has_output = most_bytes, has_output
        self._parts: list[bytes] = []
        self._pending_bytes = self._unsent_bytes = 0
        self._waiting: dict[RoomWaiter, None] = {}

    @property
    def room_bytes(self) -> int:
        """The bytes that may still wait to be written; negative if too many do."""
        return self._most_bytes - self._pending_bytes - self._unsent_bytes

    def write(self, encoded: bytes) -> None:
        """Have some bytes written."""
        self._parts.append(encoded)
        self._pending_bytes += len(encoded)
        self._has_output()

    def take(self) -> bytes:
        """Take the next bytes to write; then tell how many are `unsent`."""
        encoded, self._parts, self._pending_bytes = b"".join(self._parts), [], 0
        return encoded

    def unsent(self, byte_count: int) -> None:
        """Note how many of the taken bytes are not with the peer yet; there may be room again."""
        self._unsent_bytes = byte_count
        if self._waiting and self.room_bytes > 0:
            waiting, self._waiting = self._waiting, {}
            for waiter in waiting:
                waiter.has_room()

    def wait_for_room(self, waiter: RoomWaiter) -> None:
        """Have `has_room` called when less waits to be written."""
        self._waiting[waiter] = None

    def forget_waiters(self) -> None:
        """Call none of those who wait for room."""
        self._waiting.clear()
