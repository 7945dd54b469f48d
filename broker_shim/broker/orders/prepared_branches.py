"""Branches of distributed transactions: prepared here, decided now or after a restart.

The store keeps them (`broker_shim.store.branch_store`); this has the queues follow. What a branch
took is held by nobody's consumer until the decision: gone with the commit, waiting again after a
rollback. What it enqueues is on no queue before the commit is durable. A queue that a branch uses
stays (`queue_deletion`).

At a member of a store service the branches are the service's, and so any member decides any of
them; there the service's broker has the queues follow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter

from broker_shim.broker.flow.served_queues import ServedQueues
from broker_shim.broker.flow.settlement import Settlement
from broker_shim.completion import OnComplete
from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.store.branch_store import (
    BranchDirectory,
    BranchEntries,
    BranchFacts,
    OnBranches,
    Xid,
)
from broker_shim.store.interface import TransactionContext
from sparkstore.core.state_machine.call_values import (
    CommitPreparedCall,
    ForgetBranchCall,
    RollbackPreparedCall,
    StoreCall,
)

_NOTHING_HERE = BranchEntries((), ())


class Branches:
    """Prepares and decides. On the loop's thread only."""

    def __init__(self, served: ServedQueues, settlement: Settlement) -> None:
        self._served, self._calls, self._settlement = served, served.calls, settlement

    @property
    def is_served(self) -> bool:
        """Whether the store has two-phase transactions for a broker."""
        return self._calls.directory is not None

    def find(self, xid: Xid | None, on_found: OnBranches) -> None:
        """Tell of one branch that is prepared, or of all, on a later turn of the loop."""
        self._calls.find_branches(xid, on_found)

    def prepare(
        self,
        xid: Xid,
        calls: Iterable[StoreCall],
        taken: Sequence[tuple[str, Sequence[int]]],
        on_done: OnComplete,
    ) -> None:
        """Promise some calls; `on_done(None)` when that is durable. Else nothing is done.

        What they dequeue, which `taken` names by queue and message ids, is held on its queue by the
        caller's consumers, and by none of them from then on.
        """
        store = self._store()

        def prepared(error: StoreError | None) -> None:
            if error is None:
                for queue, message_ids in taken:
                    dispatch = self._served.queues.get(queue)
                    if dispatch is not None:
                        dispatch.held_elsewhere(message_ids)
            on_done(error)

        def prepare(transaction: TransactionContext, on_complete: OnComplete) -> None:
            store.prepare(transaction, xid, on_complete)

        self._calls.transact(calls, prepared, end=prepare)

    def commit(self, branch: BranchFacts, on_done: OnComplete) -> None:
        """Have a branch done; `on_done` as of `BranchCalls.commit_prepared`."""
        served, entries = self._served, self._entries(branch.xid, on_done)
        if entries is None:
            return

        def committed(error: StoreError | None) -> None:
            if error is None:
                served.metrics.accepted += sum(branch.takes.values())
                served.metrics.enqueued += sum(branch.puts.values())
                for queue, places in groupby(sorted(entries.taken), itemgetter(0)):
                    if queue in served.queues:
                        ids = [message_id for _queue, message_id in places]
                        served.queues[queue].removed(ids, "accepted")
                what = itemgetter(0, 2, 3)
                for (queue, priority, durable), puts in groupby(entries.enqueued, what):
                    served.arrived(queue, [put[1] for put in puts], priority, durable=durable)
            on_done(error)

        self._calls.make(CommitPreparedCall(branch.xid), committed)

    def roll_back(self, branch: BranchFacts, on_done: OnComplete) -> None:
        """Have a branch undone; `on_done` as of `BranchCalls.rollback_prepared`."""
        served, entries = self._served, self._entries(branch.xid, on_done)
        if entries is None:
            return

        def undone(error: StoreError | None) -> None:
            if error is None:
                for queue, places in groupby(sorted(entries.taken), itemgetter(0)):
                    if queue in served.queues:
                        ids = [message_id for _queue, message_id in places]
                        self._settlement.released(ids, served.queues[queue], failed=False)
            on_done(error)

        self._calls.make(RollbackPreparedCall(branch.xid), undone)

    def forget(self, branch: BranchFacts, on_done: OnComplete) -> None:
        """The coordinator knows what an operator decided; as of `BranchCalls.forget_branch`."""
        self._calls.make(ForgetBranchCall(branch.xid), on_done)

    def _entries(self, xid: Xid, on_done: OnComplete) -> BranchEntries | None:
        """Get the entries that a branch has on queues that are decided in this process.

        None if no branch of this xid is in doubt: then `on_done` was told so.
        """
        store = self._calls.branches
        try:
            return _NOTHING_HERE if store is None else store.branch_entries(xid)
        except InvalidRequest as refusal:
            on_done(refusal)
            return None

    def _store(self) -> BranchDirectory:
        store = self._calls.directory
        if store is None:
            text = "this store has no two-phase transactions: commit in one phase"
            raise InvalidRequest(text)
        return store
