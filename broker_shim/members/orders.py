"""The orders of members about queues, done by the broker that decides for all of them.

It does what it would do for a client of its own: it alone knows what is on a queue, what others
have acquired, and who consumes, on whatever member. Whether a user may order that was asked at the
member.

An order is done once (`known_orders`), though a member whose connection was lost says it again. A
service that was restarted meanwhile cannot know whether it was done. So a queue that is gone counts
as deleted, and a purge takes nothing of what came since the start.

Whoever begins a branch of a distributed transaction at a member is asked about here, too
(`broker.orders.xid_claims`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from broker_shim.broker.orders.administration import OnTold
from broker_shim.broker.virtual_host import Broker
from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.members.known_orders import KnownOrder, KnownOrders
from broker_shim.members.stream import WiringStream
from broker_shim.service.dispatcher import CLAIM, DESTROY, PURGE, RELEASE, TOLD_WIRING, USAGE
from broker_shim.store import protocol as wire
from sparkstore.core.xids import xid_of
from sparkstore.operations.administration import AdminAction, Order
from sparkstore.operations.bulk import Answer

if TYPE_CHECKING:
    from broker_shim.service.member_connection import MemberConnection


class MemberOrders:
    """The members' orders and questions at that broker. On the loop's thread only.

    Attributes:
        start_position: The last position when this service began to decide.
    """

    def __init__(self, broker: Callable[[], Broker], stream: WiringStream) -> None:
        """Begin; `broker` is the one that decides now, and `stream` tells members of wiring."""
        self._broker, self._stream = broker, stream
        self._known = KnownOrders()
        self.start_position = 0

    def take(self, peer: MemberConnection, body: wire.Body) -> None:
        """Do an order of a well-formed frame; it is answered when that is durable.

        A member of which too many wait is sent away.
        """
        read, act, key = body[0], body[1], body[-1]
        try:
            if act == TOLD_WIRING:
                answer = partial(peer.say, wire.ANSWER, (read, True, "{}"))
                self._stream.after(peer, answer)
                return
            order = self._known.came(peer, read, key)
        except InvalidRequest as flood:
            peer.end(flood)
            return
        if order is not None:
            self._do(order, body)

    def _do(self, order: KnownOrder, body: wire.Body) -> None:
        _read, act, name, force, if_unused, if_empty, run, _key = body

        def answer(error: StoreError | None, detail: dict[str, Any]) -> None:
            if error is None:
                self._known.answered(order, wire.ANSWER, (True, json.dumps(detail)))
            else:
                self._known.answered(order, wire.FAILED, (type(error).__name__, str(error)))

        if act == PURGE:
            last = None if run == order.peer.service_run else self.start_position
            self._purge(order, name, last, answer)
        elif act == DESTROY:
            self._destroy(name, answer)
        elif act == USAGE:
            self._broker().queries.usage(name, answer)
        elif act in {CLAIM, RELEASE}:
            self._claim(order.peer.member, act, name, answer)
        else:
            delete = AdminAction.DELETE_QUEUE
            limits = {"force": force, "if_unused": if_unused, "if_empty": if_empty}
            self._delete(Order(delete, name, **limits), answer)

    def left(self, peer: MemberConnection) -> None:
        """Forget the connection of a member that ended."""
        self._known.left(peer)

    def lost(self, member: str, broker: Broker | None) -> None:
        """Forget the orders of a member that is given up, and the branches that it began."""
        self._known.lost(member)
        if broker is not None:
            broker.xid_claims.gone(member)

    def _purge(self, order: KnownOrder, queue: str, last: int | None, on_told: OnTold) -> None:
        def purged(error: StoreError | None, answer: Answer) -> None:
            on_told(error, answer._asdict())

        purge = self._broker().administration.purge
        purge(queue, lambda _so_far: order.is_wanted, purged, last)

    def _claim(self, member: str, act: str, xid_text: str, on_told: OnTold) -> None:
        claims, refusal = self._broker().xid_claims, None
        try:
            xid = xid_of(xid_text)
            (claims.take if act == CLAIM else claims.let_go)(xid, member)
        except InvalidRequest as reason:
            refusal = reason
        on_told(refusal, {})

    def _delete(self, order: Order, on_told: OnTold) -> None:
        broker = self._broker()
        if order.queue in broker.queues:
            broker.administration.order(order, on_told)
        else:
            self._destroy(order.queue, on_told)

    def _destroy(self, queue: str, on_told: OnTold) -> None:
        """Destroy a queue that its last user ends, without any limit."""
        broker = self._broker()
        dispatch = broker.queues.get(queue)
        for consumer in () if dispatch is None else [*dispatch.consumers]:
            consumer.queue_deleted()
        broker.destroy_queue(queue, lambda error: on_told(error, {}))
