"""Branches of distributed transactions: prepared here, decided now or after a restart.

The store keeps them (`broker_shim.store.branches`); this has the queues follow. What a branch took
is held by nobody's consumer until the decision: gone with the commit, waiting again after a
rollback. What it enqueues is on no queue before the commit is durable. A queue that a branch uses
stays (`queue_deletion`).
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from broker_shim.broker.queue_host import QueueHost
from broker_shim.broker.storage.store_puts import Operation
from broker_shim.completion import OnComplete
from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.store.branches import BranchEntries, BranchStore, Xid
from broker_shim.store.interface import TransactionContext


class Branches:
    """Prepares and decides. On the loop's thread only."""

    def __init__(self, host: QueueHost) -> None:
        self._host = host

    @property
    def is_served(self) -> bool:
        """Whether the store has two-phase transactions for a broker."""
        return self._host.calls.branches is not None

    def in_doubt(self) -> list[Xid]:
        """The branches that wait for a decision, the oldest first."""
        store = self._host.calls.branches
        return [] if store is None else [each.xid for each in store.prepared()]

    def entries(self, xid: Xid) -> BranchEntries | None:
        """What a branch does to queues; None: there is none of this xid in doubt.

        Raises:
            InvalidRequest: It is no xid.
        """
        return self._store().branch_entries(xid) if xid in self.in_doubt() else None

    def prepare(self, xid: Xid, operations: Iterable[Operation], on_done: OnComplete) -> None:
        """Promise some operations; `on_done(None)` when that is durable. Else nothing is done.

        What they dequeue is held on its queue by the caller's consumers, and by none of them from
        then on.
        """
        store = self._store()
        taken: list[tuple[str, int]] = []

        def prepare(transaction: TransactionContext, done: OnComplete) -> None:
            store.prepare(transaction, xid, done)
            with suppress(InvalidRequest):  # refused, as the completion will tell
                taken.extend(store.branch_entries(xid).taken)

        def prepared(error: StoreError | None) -> None:
            if error is None:
                for queue, message_id in taken:
                    dispatch = self._host.queues.get(queue)
                    if dispatch is not None:
                        dispatch.held_elsewhere(message_id)
            on_done(error)

        self._host.calls.transact(operations, prepared, prepare)

    def commit(self, xid: Xid, on_done: OnComplete) -> None:
        """Have a branch done; `on_done` as of `BranchCalls.commit_prepared`."""
        store, host = self._store(), self._host
        try:
            entries = store.branch_entries(xid)
        except InvalidRequest as refusal:
            on_done(refusal)
            return

        def committed(error: StoreError | None) -> None:
            if error is None:
                for queue, message_id in entries.taken:
                    if queue in host.queues:
                        host.queues[queue].removed((message_id,))
                    host.metrics.accepted += 1
                for queue, message_id, priority, durable in entries.enqueued:
                    host.metrics.enqueued += 1
                    host.arrived(queue, message_id, priority, durable=durable)
            on_done(error)

        host.calls.call(committed, store.commit_prepared, xid)

    def roll_back(self, xid: Xid, on_done: OnComplete) -> None:
        """Have a branch undone; `on_done` as of `BranchCalls.rollback_prepared`."""
        store, host = self._store(), self._host
        try:
            entries = store.branch_entries(xid)
        except InvalidRequest as refusal:
            on_done(refusal)
            return

        def undone(error: StoreError | None) -> None:
            if error is None:
                for queue, message_id in entries.taken:
                    if queue in host.queues:
                        host.queues[queue].released(message_id, delivery_failed=False)
                        host.wanted(queue)
            on_done(error)

        host.calls.call(undone, store.rollback_prepared, xid)

    def forget(self, xid: Xid, on_done: OnComplete) -> None:
        """The coordinator knows what an operator decided; as of `BranchCalls.forget_branch`."""
        self._host.calls.call(on_done, self._store().forget_branch, xid)

    def _store(self) -> BranchStore:
        store = self._host.calls.branches
        if store is None:
            text = "this store has no two-phase transactions: commit in one phase"
            raise InvalidRequest(text)
        return store
