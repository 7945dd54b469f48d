"""Decide when a terminus without an endpoint ends (AMQP 3.5.6). Pure: no clock.

    policy            its time starts to run when
    link-detach       the link was detached
    session-end       the session of its last endpoint ended
    connection-close  the connection of its last endpoint closed
    never             -

An attach stops the time. A broker's restart closes every connection.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from enum import IntEnum, StrEnum

from sparkstore.core.link_records import LinkKey


class ExpiryPolicy(StrEnum):
    """The expiry policies of a terminus, in the specification's words."""

    LINK_DETACH = "link-detach"
    SESSION_END = "session-end"
    CONNECTION_CLOSE = "connection-close"
    NEVER = "never"


class EndedScope(IntEnum):
    """The scopes that can end at a terminus' last endpoint; a later one holds the earlier ones."""

    LINK = 0
    SESSION = 1
    CONNECTION = 2


_STARTS_WITH = {
    ExpiryPolicy.LINK_DETACH: EndedScope.LINK,
    ExpiryPolicy.SESSION_END: EndedScope.SESSION,
    ExpiryPolicy.CONNECTION_CLOSE: EndedScope.CONNECTION,
}


def expires_at_ms(
    policy: ExpiryPolicy, timeout_s: int, ended: EndedScope, now_ms: int
) -> int | None:
    """Return when a terminus ends whose `ended` just ended; None if its time does not run by that.

    Args:
        policy: The expiry policy that the terminus was granted.
        timeout_s: The timeout that was granted; 0 is at once.
        ended: The scope of its last endpoint that ended.
        now_ms: The time of any clock that only rises.
    """
    starts_with = _STARTS_WITH.get(policy)
    if starts_with is None or ended < starts_with:
        return None
    return now_ms + timeout_s * 1000


class Deadlines:
    """Times at which termini end.

    A terminus that lives on after all is passed over when its time comes.
    """

    def __init__(self, is_due_at: Callable[[LinkKey, int], bool]) -> None:
        """Keep no times yet; `is_due_at(key, at_ms)` tells whether a terminus still ends then."""
        self._is_due_at = is_due_at
        self._heap: list[tuple[int, LinkKey]] = []

    def add(self, at_ms: int, key: LinkKey) -> None:
        """Note when this terminus ends, unless something happens to it."""
        heapq.heappush(self._heap, (at_ms, key))

    def next_ms(self) -> int | None:
        """Return when the next terminus ends; None if none is to."""
        while self._heap and not self._is_due_at(self._heap[0][1], self._heap[0][0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take(self, now_ms: int) -> LinkKey | None:
        """Return a terminus that ends now, or should have; None if there is none."""
        next_ms = self.next_ms()
        if next_ms is None or next_ms > now_ms:
            return None
        return heapq.heappop(self._heap)[1]
