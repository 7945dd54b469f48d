"""Two-phase commit in a chain: the first store decides, and every member has what it promised.

`prepare` is told as any call is. When the first store has the branch durably, members get the calls
that it accepted within, and last that they are prepared under this xid. When all of them have that
durably, the caller is told. A decision goes the same way. So at every moment a member has a
beginning of what the first store has, and of that all that somebody was told:

* A caller who was told that a branch is prepared finds it in doubt in the first store and in each
  mirror. That holds whichever of them is killed, until a decision reaches it.
* Who was told of a decision finds it made in each of them.
* Between the two the first store may know a decision that a mirror does not know. Nobody was told
  of it. When the chain opens again, the mirror follows the first store (`branches_in_doubt`). When
  the mirror is served instead, the branch is in doubt there, and its coordinator decides it once
  more.

An operator's decision in place of a coordinator (heuristic) is a call as the others are, so a
mirror remembers it with the operator's name until the coordinator knows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from broker_shim.completion import OnComplete
from broker_shim.errors import StoreError
from broker_shim.store.branch_store import (
    BranchEntries,
    BranchStore,
    OnBranches,
    OnSteps,
    PreparedBranch,
    Xid,
)
from broker_shim.store.expiring_store import ExpiringStore
from broker_shim.store.interface import BrokerStore, TransactionContext
from sparkstore.core.state_machine.arguments import check_completion
from sparkstore.core.state_machine.call_values import (
    DecideHeuristicallyCall,
    PrepareCall,
    RecordStep,
    StoreCall,
)


class FirstStore(BrokerStore, BranchStore, ExpiringStore, Protocol):
    """A store that can be the first of a chain: it decides in this process."""


class ChainBranches(BranchStore):
    """`BranchStore` of a `MessageStoreChain`."""

    _first: FirstStore
    _decided: Callable[[Sequence[StoreCall], OnComplete, StoreError | None], None]
    _guarded: Callable[[OnComplete, Any, OnComplete], None]
    _inner: Callable[[TransactionContext], TransactionContext]
    _accepted: Callable[[TransactionContext], list[StoreCall]]

    def prepare(self, transaction: TransactionContext, xid: Xid, on_complete: OnComplete) -> None:
        """Prepare a branch in the first store, then in each member. See `BranchCalls.prepare`."""
        check_completion(on_complete)
        accepted = self._accepted(transaction)

        def prepared(error: StoreError | None) -> None:
            self._decided([*accepted, PrepareCall(xid)], on_complete, error)

        make = partial(self._first.prepare, self._inner(transaction), xid)
        self._guarded(on_complete, make, prepared)

    def prepared(self) -> list[PreparedBranch]:
        """Get the branches that are in doubt in the first store. See `BranchCalls.prepared`."""
        return self._first.prepared()

    def branch_entries(self, xid: Xid) -> BranchEntries:
        """Get the queue entries of a branch in doubt from the first store.

        See `BranchStore.branch_entries`.
        """
        return self._first.branch_entries(xid)

    def find_branches(self, xid: Xid | None, on_found: OnBranches) -> None:
        """Find the branches that the first store has. See `BranchDirectory.find_branches`."""
        self._first.find_branches(xid, on_found)

    def decide_heuristically(
        self, xid: Xid, by: str, on_complete: OnComplete, on_steps: OnSteps, *, commits: bool
    ) -> None:
        """Decide a branch for an operator in the first store, then in each member.

        See `BranchStore.decide_heuristically`.
        """
        check_completion(on_complete)
        taken: list[RecordStep] = []
        call = DecideHeuristicallyCall(xid, by, commits)

        def complete(error: StoreError | None) -> None:
            if error is None:
                on_steps(taken)
            on_complete(error)

        make = partial(
            self._first.decide_heuristically, xid, by, on_steps=taken.extend, commits=commits
        )
        self._guarded(complete, make, partial(self._decided, [call], complete))
