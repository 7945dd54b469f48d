"""The ids by which senders named their messages of late, on queues that detect duplicates. Pure.

What is remembered is what was accepted, and no call that was refused: it is noted when a step is
applied. So a sender that does not know whether its message arrived sends it again, and it is there
once. An id is forgotten when the window of its queue is over, counted from the first message.
"""

from __future__ import annotations

from collections.abc import Hashable


class RecentIds:
    """Which ids each queue has seen, and when: oldest first."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[Hashable, int]] = {}

    def is_known(self, queue: str, identity: Hashable, since_us: int) -> bool:
        """True if a message of this id came to a queue after a time, UTC µs."""
        at_us = self._seen.get(queue, {}).get(identity)
        return at_us is not None and at_us > since_us

    def note(self, queue: str, identity: Hashable, at_us: int, since_us: int) -> None:
        """Remember the id of a message that came; what came until a time may be forgotten."""
        seen = self._seen.setdefault(queue, {})
        seen.pop(identity, None)
        seen[identity] = at_us
        while seen and seen[oldest := next(iter(seen))] <= since_us:
            del seen[oldest]

    def forget(self, queue: str) -> None:
        """Forget what came to a queue that is gone."""
        self._seen.pop(queue, None)
