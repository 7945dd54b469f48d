"""Conditions under which a log may go on: room on its disks, a lease, and a standby."""

from __future__ import annotations

from typing import NamedTuple

from sparkstore.shipping.log_shipping import Shipping
from sparkstore.storage.disk_room import DiskRoom
from sparkstore.witness.lease import Witness


class LogGuards(NamedTuple):
    """Conditions that a log looks at before it confirms.

    Attributes:
        room: What is free on the disks.
        witness: The lease; None: the root has no witness.
        shipping: The way to a standby; None: none may come.
    """

    room: DiskRoom
    witness: Witness | None = None
    shipping: Shipping | None = None

    def release(self, why: str) -> None:
        """Let a standby take over, as the log confirms nothing any more.

        The connection is ended last: by that the standby knows when to look at the witness.

        Args:
            why: A person wants it, to tell people; empty: the store was just stopped.
        """
        if self.shipping is not None:
            if self.witness is not None:
                self.witness.stop(why)
            self.shipping.end()
