"""Decide which answers a sender must have read, so that its deliveries may be forgotten. Pure.

For a link on which we receive, with unsettled deliveries that survive (tier 2). We answer a
delivery that was stored `accepted`, settled. The sender may never see that: the connection, or we,
may be gone before. It then asks for the delivery at its next attach, by its tag, and is told
`accepted` only while we remember it. Were it forgotten, it would be sent and stored again.

When may it be forgotten? The two directions of a connection are ordered streams, and a sender may
start delivery number n (counted from 0 on this attachment) only after it read a flow that allows
more than n deliveries. So let `allowed` be what the flows written so far allow when an answer is
written. A delivery of a number ≥ `allowed` was started after a later flow was read, and so after
the answer was read. The answer is proved read, its delivery forgotten.

How much is remembered: the credit a window grants beyond what arrived is at most its size, so the
proof of an answer comes at the latest one window after it. At most one window of answers stays
unproved beside those of the deliveries that are under way.

The other proofs need no count: an attach whose unsettled map does not name the tag, a sender that
settles, and one that uses the tag for another delivery have forgotten it (see
`listener_1_0.receiving.received_deliveries`).
"""

from __future__ import annotations


class Answers:
    """The answers of one attachment that are not proved read."""

    def __init__(self) -> None:
        self._allowed = 0
        self._started = 0
        self._unproved: dict[bytes, int] = {}

    def __len__(self) -> int:
        """Answers not proved read."""
        return len(self._unproved)

    def granted(self, credit: int) -> None:
        """Note a flow: `credit` more deliveries than were started may be started."""
        self._allowed = max(self._allowed, self._started + credit)

    def started(self) -> None:
        """Note the first frame of a delivery that came."""
        self._started += 1

    def answered(self, tag: bytes) -> None:
        """Note that the end of a delivery was written, settled."""
        self._unproved[tag] = self._allowed

    def forget(self, tag: bytes) -> None:
        """Forget a delivery that the sender has settled, or whose tag it uses again."""
        self._unproved.pop(tag, None)

    def proved(self) -> list[bytes]:
        """Tags whose answers were read, oldest first; each is told once."""
        tags = []
        # Invariant: what was allowed only rises, so the oldest answer is proved first.
        for tag, allowed in self._unproved.items():
            if allowed >= self._started:
                break
            tags.append(tag)
        for tag in tags:
            del self._unproved[tag]
        return tags
