"""Count the deliveries that a link still takes, each way (2.6.7).

A delivery counts from its first frame on, on both sides; one that was aborted counts too.
"""

from __future__ import annotations

from broker_shim.protocol_1_0.serial import WRAP, distance, plus


class SenderCredit:
    """Credit by which we may send deliveries on a link.

    Attributes:
        delivery_count: Deliveries whose first frame was sent, as told to the peer.
        left: First frames of deliveries that may go.
        waiting: Deliveries taken from the caller whose first frame was not sent yet.
        is_draining: True while the peer wants the credit used or given back.
    """

    def __init__(self) -> None:
        self.delivery_count = 0
        self.waiting = 0
        self.is_draining = False
        self.left = 0

    @property
    def available(self) -> int:
        """Return how many deliveries the caller may still start."""
        return max(0, self.left - self.waiting)

    def grant(self, delivery_count: int | None, credit: int, *, drain: bool) -> None:
        """Take what the peer gave: `credit` deliveries, counted from its `delivery_count`.

        Credit is a limit (count + credit): what went meanwhile is taken off, never below zero.
        """
        seen = 0 if delivery_count is None else delivery_count
        self.left = max(0, credit - max(0, distance(seen, self.delivery_count)))
        self.is_draining = drain

    def sent(self, count: int = 1) -> None:
        """Use credit for the first frames of waiting deliveries that went."""
        self.waiting -= count
        self.delivery_count = (self.delivery_count + count) % WRAP
        self.left -= count

    def drained(self) -> None:
        """Give up what is left, as if it had been sent; deliveries that wait keep theirs."""
        unused = self.available
        self.delivery_count = plus(self.delivery_count, unused)
        self.left -= unused
        self.is_draining = False


class ReceiverCredit:
    """Credit by which the peer may send deliveries on a link.

    Credit that is taken back is not gone at once: what the peer sent before it heard of it is on
    its way, and right. So a delivery is judged by `_most`, the furthest limit that the peer may
    still go by, until a flow of the peer's tells that it goes by a nearer one.

    Attributes:
        delivery_count: Deliveries whose first frame came, or that the peer gave up.
        left: Deliveries that we want it to start at most.
        is_draining: True from asking for a drain until the peer has nothing left.
    """

    def __init__(self, delivery_count: int) -> None:
        self.delivery_count = delivery_count
        self.left = 0
        self.is_draining = False
        self._most = delivery_count

    def give(self, credit: int, *, drain: bool) -> None:
        """Let the peer start so many deliveries from now on, whatever was left."""
        self.left = credit
        self.is_draining = drain and credit > 0
        limit = plus(self.delivery_count, credit)
        if distance(self._most, limit) > 0:
            self._most = limit

    @property
    def most(self) -> int:
        """Return how many deliveries the peer may begin, as far as it may know."""
        return max(0, distance(self.delivery_count, self._most))

    def take(self, count: int = 1) -> bool:
        """Use credit for deliveries that began. Return False if they should not have."""
        if count > self.most:
            return False
        self.left = max(0, self.left - count)
        self.delivery_count = plus(self.delivery_count, count)
        self.is_draining = self.is_draining and self.left > 0
        return True

    def note_peer(self, delivery_count: int | None, credit: int | None) -> None:
        """Take how the peer says that it stands: if it gave credit up, its count ran ahead of ours.

        A count behind ours is old news: a sender may count a delivery at its last frame only.
        """
        if delivery_count is None:
            return
        given_up = distance(self.delivery_count, delivery_count)
        if given_up > 0:
            self.delivery_count = delivery_count
            self.left = max(0, self.left - given_up)
            self.is_draining = self.is_draining and self.left > 0
        if credit is not None:
            self._goes_by(plus(delivery_count, credit))

    def _goes_by(self, limit: int) -> None:
        """Take the peer's limit when it wrote; it may know a further one since, from us."""
        wanted = plus(self.delivery_count, self.left)
        later = limit if distance(wanted, limit) > 0 else wanted
        if distance(later, self._most) > 0:
            self._most = later
