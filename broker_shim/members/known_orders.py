"""Orders of members, each done once: one that comes again is told what came of it.

A member says an order again if its connection was lost before the answer. It names each by a key of
its own, by which it is known here whatever connection it came by. What was answered is remembered
as long as it may come again: a member has fewer than so many unanswered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from broker_shim.errors import InvalidRequest
from broker_shim.store import protocol as wire

if TYPE_CHECKING:
    from broker_shim.service.member_connection import MemberConnection


class KnownOrder:
    """An order of a member whose answer is due or remembered.

    Attributes:
        peer: The connection that it came by last.
        read: Its number there.
        is_wanted: False once its member is given up: nobody waits for it any more.
    """

    __slots__ = ("answer", "is_wanted", "peer", "read")

    def __init__(self, peer: MemberConnection, read: int) -> None:
        self.peer, self.read, self.is_wanted = peer, read, True
        self.answer: tuple[int, Sequence[object]] | None = None


class KnownOrders:
    """The orders of members by their keys. On the loop's thread only."""

    def __init__(self) -> None:
        self._of_member: dict[str, dict[str, KnownOrder]] = {}
        self._open: Counter[MemberConnection] = Counter()

    def came(self, peer: MemberConnection, read: int, key: str) -> KnownOrder | None:
        """Take an order that is to be done, and then `answered`; None if it came before.

        Raises:
            InvalidRequest: Too many orders of this connection wait.
        """
        if self._open[peer] >= wire.MAX_WAITING_READS:
            message = f"more than {wire.MAX_WAITING_READS} orders wait for their answers"
            raise InvalidRequest(message)
        self._open[peer] += 1
        orders = self._of_member.setdefault(peer.member, {})
        known = orders.get(key)
        if known is None:
            known = orders[key] = KnownOrder(peer, read)
            self._forget_some(orders)
            return known
        known.peer, known.read = peer, read
        self._tell(known)
        return None

    def answered(self, order: KnownOrder, kind: int, body: Sequence[object]) -> None:
        """Keep an order's answer and tell it: ANSWER or FAILED, and what follows the number."""
        order.answer = kind, body
        self._tell(order)

    def _tell(self, order: KnownOrder) -> None:
        if order.answer is not None and order.peer in self._open:  # else it comes again
            self._open[order.peer] -= 1
            kind, body = order.answer
            order.peer.say(kind, (order.read, *body))

    def left(self, peer: MemberConnection) -> None:
        """Forget a connection that ended; its member may say again what was not answered."""
        self._open.pop(peer, None)

    def lost(self, member: str) -> None:
        """Forget the orders of a member that is given up, and says nothing again."""
        for order in self._of_member.pop(member, {}).values():
            order.is_wanted = False

    def _forget_some(self, orders: dict[str, KnownOrder]) -> None:
        """Forget the oldest orders that are answered, if there are too many."""
        if len(orders) > 2 * wire.MAX_WAITING_READS:
            answered = [key for key, order in orders.items() if order.answer is not None]
            for key in answered[: -wire.MAX_WAITING_READS]:
                del orders[key]
