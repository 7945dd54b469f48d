"""Orders about queues at a member: the service decides and does them, for all members.

It knows, too, which branches of distributed transactions were begun at which of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any
from uuid import uuid4

from broker_shim.broker.orders.administration import OnPurged, OnTold, OnUsage
from broker_shim.broker.virtual_host import Broker
from broker_shim.completion import OnComplete
from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.service.dispatcher import CLAIM, DESTROY, PURGE, RELEASE, TOLD_WIRING, USAGE
from broker_shim.store.branch_store import Xid
from broker_shim.store.remote.pending_requests import Answer as ReadAnswer
from broker_shim.store.remote.pending_requests import OnAnswer
from broker_shim.store.remote.remote_store import RemoteMessageStore
from broker_shim.store.remote.wiring_barrier import WiringBarrier
from sparkstore.core.xids import xid_text
from sparkstore.operations.administration import Order
from sparkstore.operations.bulk import Answer

_NO_LIMITS = False, False, False


class RemoteAdministration:
    """A `QueueDecider` and `XidDecider` that asks the service. On the loop's thread only.

    While the service is away an order waits for it, as a request does, and is said again. Its key
    tells the service that it is the same one.

    Attributes:
        claims_due: How many claims were said again, and have no answer.
        barrier: Holds what was done to wiring back until this member has been told of it.
    """

    def __init__(
        self, store: RemoteMessageStore, broker: Broker, on_claimed: Callable[[], None]
    ) -> None:
        """Begin with no order; `on_claimed` is called when all repeated claims are answered."""
        self._store, self._broker, self._on_claimed = store, broker, on_claimed
        self.claims_due = 0
        self._process, self._numbers = uuid4().hex, count(1)
        self._claimed: set[Xid] = set()
        self.barrier = WiringBarrier(self._ask_when_told)

    def delete(self, order: Order, on_told: OnTold) -> None:
        """Ask the service to delete a queue. See `QueueDecider.delete`."""
        limits = order.force, order.if_unused, order.if_empty
        self._ask(order.act.value, order.queue, limits, on_told, self.barrier.behind)

    def destroy(self, queue: str, on_done: OnComplete) -> None:
        """Ask the service to destroy a queue that its last user leaves.

        See `QueueDecider.destroy`.
        """
        limits, behind = (True, False, False), self.barrier.behind
        self._ask(DESTROY, queue, limits, lambda error, _told: on_done(error), behind)

    def purge(self, queue: str, on_purged: OnPurged) -> None:
        """Ask the service to purge a queue. See `QueueDecider.purge`."""

        def done(error: StoreError | None, answer: dict[str, Any]) -> None:
            on_purged(error, Answer(**answer))

        self._ask(PURGE, queue, (True, False, False), done)

    def usage(self, queue: str, on_usage: OnUsage) -> None:
        """Ask the service for the figures of a queue. See `QueueDecider.usage`."""
        self._ask(USAGE, queue, _NO_LIMITS, on_usage)

    def claim_xid(self, xid: Xid, on_done: OnComplete) -> None:
        """Ask the service to reserve an xid for this member. See `XidClaims.claim`."""

        def done(error: StoreError | None, _told: dict[str, Any]) -> None:
            if error is not None:
                self._claimed.discard(xid)
            on_done(error)

        self._claimed.add(xid)
        self._ask(CLAIM, xid_text(xid), _NO_LIMITS, done)

    def release_xid(self, xid: Xid) -> None:
        """Give an xid back to the service, if it was claimed here. See `XidClaims.release`."""
        if xid in self._claimed:
            self._claimed.remove(xid)
            self._ask(RELEASE, xid_text(xid), _NO_LIMITS, lambda _error, _told: None)

    def claim_again(self) -> None:
        """Repeat all claims: the service may be another one, and forgets the others."""
        for xid in [*self._claimed]:
            self.claims_due += 1
            self._ask(CLAIM, xid_text(xid), _NO_LIMITS, partial(self._claimed_again, xid))

    def _claimed_again(self, xid: Xid, error: StoreError | None, _told: dict[str, Any]) -> None:
        if isinstance(error, InvalidRequest) and xid in self._claimed:
            self._claimed.remove(xid)
            self._broker.xid_claims.on_lost(xid)
        self.claims_due -= 1
        if not self.claims_due:
            self._on_claimed()

    def _ask_when_told(self, on_answer: OnAnswer) -> None:
        self._store.ask_for_order(TOLD_WIRING, "", _NO_LIMITS, self._key(), on_answer)

    def _key(self) -> str:
        return f"{self._process} {next(self._numbers)}"

    def _ask(
        self,
        act: str,
        queue: str,
        limits: tuple[bool, bool, bool],
        on_told: OnTold,
        behind: Callable[[OnComplete], OnComplete] | None = None,
    ) -> None:
        answer: dict[str, Any] = {}
        key = self._key()

        def ask(on_complete: OnComplete) -> None:
            on_complete = on_complete if behind is None else behind(on_complete)

            def answered(read: ReadAnswer) -> None:
                _is_last, body, error = read
                if error is None:
                    answer.update(json.loads(body[0]))
                on_complete(error)

            self._store.ask_for_order(act, queue, limits, key, answered)

        self._broker.calls.call(lambda error: on_told(error, answer), ask)
