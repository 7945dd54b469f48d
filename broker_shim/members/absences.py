"""Members whose connection is lost, and who may come back: their consumers' queues wait for them.

A member that connects says that it watches, then all that it subscribes to; its first SEEN comes
after that (`stream`). Until then, or until it is given up, a queue that deletes itself stays though
no consumer is in sight (`AutoDeletion.away`). A connection that ends after a newer one has said all
leaves nothing to wait for.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from broker_shim.broker.orders.auto_delete import AutoDeletion

if TYPE_CHECKING:
    from broker_shim.service.member_connection import MemberConnection


class Absences:
    """The members that are away and may come back. On the loop's thread only.

    Attributes:
        given_up: Members that were gone for so long that they lost what they held.
    """

    def __init__(self) -> None:
        self.given_up: set[str] = set()
        self._has_said_all: dict[MemberConnection, bool] = {}

    def came(self, peer: MemberConnection) -> None:
        """Note a member that is connected, and is about to say what it subscribes to."""
        self.given_up.discard(peer.member)
        self._has_said_all.setdefault(peer, False)

    def said_all(self, peer: MemberConnection, auto_deletion: AutoDeletion) -> None:
        """Note that a member has said all that it subscribes to; again changes nothing."""
        if not self._has_said_all[peer]:
            self._has_said_all[peer] = True
            auto_deletion.back(peer.member)

    def left(
        self, peer: MemberConnection, queues: Collection[str], auto_deletion: AutoDeletion
    ) -> None:
        """Note that a connection ended that had consumers of these queues."""
        del self._has_said_all[peer]
        is_there = any(
            other.member == peer.member and has_said_all
            for other, has_said_all in self._has_said_all.items()
        )
        if queues and not is_there:
            auto_deletion.away(peer.member, queues)

    def lost(self, member: str, auto_deletion: AutoDeletion | None) -> bool:
        """Give up a member, unless it is back (False); its queues delete themselves from now on."""
        if any(peer.member == member for peer in self._has_said_all):
            return False
        self.given_up.add(member)
        if auto_deletion is not None:
            auto_deletion.back(member)
        return True
