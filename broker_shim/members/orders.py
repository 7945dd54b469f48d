"""What members order about queues, or ask, answered by the broker that decides for all of them.

It does what it would do for a client of its own: it alone knows what is on a queue, what others
have acquired, and who consumes, on whatever member. Whether a user may order that was asked at the
member.

Why an order may come twice: a member whose connection was lost says it again. So a queue that is
gone counts as deleted; and a purge takes what came meanwhile, which no order of the same session
did, as that waits for the answer.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

from broker_shim.broker.virtual_host import Broker
from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.service import protocol as wire
from broker_shim.service.dispatcher import DESTROY, PURGE, USAGE, DispatchPeer
from sparkstore.operations.administration import AdminAction, Order
from sparkstore.operations.bulk import Answer
from sparkstore.operations.queue_alteration import QueueUsage


class MemberOrders:
    """See above. On the loop's thread only."""

    def __init__(self, broker: Callable[[], Broker]) -> None:
        """Begin; `broker` is the one that decides now."""
        self._broker = broker
        self._open: Counter[DispatchPeer] = Counter()

    def take(self, peer: DispatchPeer, body: wire.Body) -> None:
        """A frame ORDER, well formed; it is answered when that is done, durably.

        Raises:
            InvalidRequest: Too many orders of this member wait.
        """
        read, act, queue, force, if_unused, if_empty = body
        if self._open[peer] >= wire.MAX_WAITING_READS:
            message = f"more than {wire.MAX_WAITING_READS} orders wait for their answers"
            raise InvalidRequest(message)
        self._open[peer] += 1

        def told(error: StoreError | None, detail: dict[str, Any]) -> None:
            if peer not in self._open:
                return  # it will ask again, on another connection
            self._open[peer] -= 1
            if error is None:
                peer.say(wire.ANSWER, (read, True, json.dumps(detail)))
            else:
                peer.say(wire.FAILED, (read, type(error).__name__, str(error)))

        if act == PURGE:
            self._purge(peer, queue, told)
        elif act == DESTROY:
            self._destroy(queue, told)
        elif act == USAGE:
            self._usage(queue, told)
        else:
            order = Order(
                AdminAction.DELETE_QUEUE,
                queue,
                force=force,
                if_unused=if_unused,
                if_empty=if_empty,
            )
            self._delete(order, told)

    def left(self, peer: DispatchPeer) -> None:
        """A member's connection ended: nobody waits for what it ordered."""
        self._open.pop(peer, None)

    def _purge(
        self,
        peer: DispatchPeer,
        queue: str,
        told: Callable[[StoreError | None, dict[str, Any]], None],
    ) -> None:
        def purged(error: StoreError | None, answer: Answer) -> None:
            told(error, answer._asdict())

        self._broker().administration.purge(queue, lambda _so_far: peer in self._open, purged)

    def _usage(self, queue: str, told: Callable[[StoreError | None, dict[str, Any]], None]) -> None:
        def answered(error: StoreError | None, usage: QueueUsage | None) -> None:
            told(error, {} if usage is None else usage._asdict())

        self._broker().queries.usage(queue, answered)

    def _delete(
        self, order: Order, told: Callable[[StoreError | None, dict[str, Any]], None]
    ) -> None:
        broker = self._broker()
        if order.queue in broker.queues:
            broker.administration.order(order, told)
        else:
            self._destroy(order.queue, told)

    def _destroy(
        self, queue: str, told: Callable[[StoreError | None, dict[str, Any]], None]
    ) -> None:
        """Its last user ends it: nothing is asked, and no link whose own it was is ended."""
        broker = self._broker()
        dispatch = broker.queues.get(queue)
        for consumer in () if dispatch is None else [*dispatch.consumers]:
            consumer.queue_deleted()
        broker.destroy_queue(queue, lambda error: told(error, {}))
