"""Two-phase commit in a store that decides in this process: what a transaction coordinator calls.

`sparkstore.core.state_machine.branches` says what is written and why no crash loses a branch.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from broker_shim.completion import OnComplete
from broker_shim.errors import StoreError
from broker_shim.store.interface import CallTarget, TransactionContext
from broker_shim.store.sink import Sink
from sparkstore.core.records import Record
from sparkstore.core.state_machine import branches
from sparkstore.core.state_machine.arguments import check_completion
from sparkstore.core.state_machine.branches import BranchEntries, PreparedBranch
from sparkstore.core.state_machine.call_values import (
    BranchCall,
    CommitPreparedCall,
    EnqueueCall,
    ForgetBranchCall,
    RecordStep,
    RollbackPreparedCall,
    single_steps,
)
from sparkstore.core.state_machine.state_machine import StoreStateMachine
from sparkstore.core.xids import Xid, check_xid, xid_text

__all__ = [
    "BranchCalls",
    "BranchDirectory",
    "BranchEntries",
    "BranchFacts",
    "BranchSteps",
    "BranchStore",
    "LocalBranches",
    "OnBranches",
    "OnSteps",
    "PreparedBranch",
    "Xid",
]


NOT_IN_TRANSACTION = "a branch is decided in no transaction: make the call without one"


class BranchCalls(CallTarget, Protocol):
    """Calls of two-phase transactions, whose outcome a coordinator decides.

    They complete as every call of a store does.

    A branch begins as any transaction does (`begin`). One phase is enough (`commit`) if nobody else
    takes part; else `prepare`, and then one of the two decisions, now or after a restart.
    """

    def prepare(self, transaction: TransactionContext, xid: Xid, on_complete: OnComplete) -> None:
        """Promise that the transaction can be committed, and end its open phase.

        From then on it is decided by its xid alone. What it enqueued is on no queue, what it took
        or acquired nobody else gets, whoever held it before, and its queues cannot be destroyed.

        Completes with:
            InvalidRequest: No xid; a branch of this xid is in doubt; the transaction is empty,
                could not be committed, enqueues a message that is on a queue already, or holds
                deliveries of a link. Nothing of it happened: it is aborted.
            Full: No room; it is aborted, too.
        """

    def commit_prepared(self, xid: Xid, on_complete: OnComplete) -> None:
        """Make everything that was called in a prepared branch true, together and durably.

        Completes with:
            InvalidRequest: No xid, or no branch of it is in doubt.
            Full: No room; it is in doubt still.
        """
        self.call(CommitPreparedCall(xid), on_complete)

    def rollback_prepared(self, xid: Xid, on_complete: OnComplete) -> None:
        """End a prepared branch without effect: what it took is available again, to anybody.

        Completes with:
            InvalidRequest: No xid, or no branch of it is in doubt.
            Full: No room; it is in doubt still.
        """
        self.call(RollbackPreparedCall(xid), on_complete)

    def prepared(self) -> list[PreparedBranch]:
        """The branches in doubt, the oldest first; a coordinator asks after a restart.

        Among them are those that an operator decided, by their `state`, until their coordinator
        decides the same, or forgets them.
        """

    def forget_branch(self, xid: Xid, on_complete: OnComplete) -> None:
        """Say that the coordinator knows what an operator decided of a branch.

        Completes with:
            InvalidRequest: No xid; it is in doubt still, or no operator decided it.
            Full: No room; it is remembered still.
        """
        self.call(ForgetBranchCall(xid), on_complete)


class BranchFacts(NamedTuple):
    """The effect of a branch on queues before it is decided, wherever its queues are.

    Attributes:
        xid: The name that its coordinator gave it.
        state: As of `PreparedBranch`.
        puts: How many messages its commit puts on a queue, by the queue's name.
        takes: How many it takes off one; a rollback gives these back.
    """

    xid: Xid
    state: str
    puts: Mapping[str, int]
    takes: Mapping[str, int]


OnBranches = Callable[[StoreError | None, Sequence[BranchFacts]], None]
"""Told of branches, on any thread, or why they cannot be told."""


class BranchDirectory(BranchCalls, Protocol):
    """A store that tells its broker of branches without having it wait."""

    def find_branches(self, xid: Xid | None, on_found: OnBranches) -> None:
        """Tell of the branches in doubt, or decided by an operator, the oldest first.

        Args:
            xid: Of the one that is asked for; None: of all.
            on_found: Told once; of none if there is no such branch.
        """


BranchSteps = Sequence[EnqueueCall | Record]
"""What waits in a branch in doubt, in the order of its calls."""
OnSteps = Callable[[Sequence[RecordStep]], None]
"""Told of steps when they are durable, on the thread that fires completions."""


class BranchStore(BranchDirectory, Protocol):
    """A store of this process: it tells its broker what a branch does to queues."""

    def branch_entries(self, xid: Xid) -> BranchEntries:
        """Get the entries that a branch in doubt puts on queues and takes off them.

        Raises:
            InvalidRequest: No xid, or no branch of it is in doubt.
        """

    def decide_heuristically(
        self, xid: Xid, by: str, on_complete: OnComplete, on_steps: OnSteps, *, commits: bool
    ) -> None:
        """Decide a branch in doubt in place of its coordinator, which is told so when it decides.

        Args:
            xid: The branch that is decided.
            by: Name of the operator.
            on_complete: Called when that is durable; as of `commit_prepared`.
            on_steps: Told before it of what was done.
            commits: True to commit it, False to roll it back.
        """


class LocalBranches(BranchStore):
    """`BranchCalls` of a `LocalMessageStore`, under its lock."""

    _machine: StoreStateMachine
    _sink: Sink
    _lock: threading.Lock
    _transactions: Iterator[int]
    _take: Callable[[list[RecordStep], OnComplete], None]
    _check_open: Callable[[], None]
    begin: Callable[[], TransactionContext]
    _ending: Callable[[TransactionContext], AbstractContextManager[None]]

    def prepare(self, transaction: TransactionContext, xid: Xid, on_complete: OnComplete) -> None:
        """Prepare a transaction under the store's lock. See `BranchCalls.prepare`."""
        self._prepare(transaction, xid, on_complete)

    def adopt_branch(self, xid: Xid, on_complete: OnComplete) -> None:
        """Prepare a branch that another store has in doubt; it may be empty.

        See `chain.mirror.MirrorStore.adopt_branch`.
        """
        self._prepare(self.begin(), xid, on_complete, may_be_empty=True)

    def _prepare(
        self,
        transaction: TransactionContext,
        xid: Xid,
        on_complete: OnComplete,
        *,
        may_be_empty: bool = False,
    ) -> None:
        machine = self._machine
        with self._ending(transaction):
            self._decide_branch(
                on_complete,
                lambda: branches.prepare(machine, transaction, xid, may_be_empty=may_be_empty),
                lambda: branches.accept(machine, transaction, xid),
            )

    def decide_branch(self, call: BranchCall, on_complete: OnComplete) -> None:
        """Decide, or forget, a branch under the store's lock. See `BranchCalls`."""
        machine = self._machine
        self._decide_branch(
            on_complete,
            lambda: _decided(machine, call, next(self._transactions)),
            lambda: branches.forget(machine, call.xid),
        )

    def prepared(self) -> list[PreparedBranch]:
        """List the branches in doubt, the oldest first. See `BranchCalls.prepared`."""
        with self._lock:
            self._check_open()
            return branches.prepared_in(self._machine.state)

    def branch_entries(self, xid: Xid) -> BranchEntries:
        """Get the queue entries of a branch in doubt from the state machine.

        See `BranchStore.branch_entries`.
        """
        with self._lock:
            self._check_open()
            return branches.entries_of(self._machine, xid)

    def branch_facts(self, xid: Xid | None = None) -> list[BranchFacts]:
        """Return the branches that `find_branches` tells of, at once."""
        with self._lock:
            self._check_open()
            branch_entries = [
                (branch.xid, branches.entries_of(self._machine, branch.xid))
                for branch in branches.prepared_in(self._machine.state)
                if xid is None or xid == branch.xid
            ]
        return [
            BranchFacts(
                branch_xid,
                entries.state,
                Counter(queue for queue, *_ in entries.enqueued),
                Counter(queue for queue, _message_id in entries.taken),
            )
            for branch_xid, entries in branch_entries
        ]

    def branch_steps(self) -> dict[Xid, BranchSteps]:
        """Get the steps that wait in each branch in doubt, the oldest branch first.

        See `branches.restore`.
        """
        with self._lock:
            self._check_open()
            held = self._machine.branches
            in_doubt = [branch.xid for branch in branches.prepared_in(self._machine.state)]
            keys = ((xid, key) for xid in in_doubt if (key := xid_text(xid)) in held)
            return {xid: [*single_steps(held[key].steps)] for xid, key in keys}

    def find_branches(self, xid: Xid | None, on_found: OnBranches) -> None:
        """Tell the branches that the state machine has. See `BranchDirectory.find_branches`.

        Decision: in its turn among completions, which wait for the lease of a witness. A primary
        that is cut off from it may have been replaced, and lacks what was prepared since: a
        coordinator that it told so would forget a branch that is in doubt.
        """
        facts = self.branch_facts(None if xid is None else check_xid(xid))
        with self._lock:
            self._sink.finish(lambda error: on_found(error, [] if error else facts), None)

    def decide_heuristically(
        self, xid: Xid, by: str, on_complete: OnComplete, on_steps: OnSteps, *, commits: bool
    ) -> None:
        """Decide a branch in doubt for an operator, under the store's lock.

        See `BranchStore.decide_heuristically`.
        """
        machine = self._machine
        taken: list[RecordStep] = []

        def decide() -> list[RecordStep]:
            number = next(self._transactions)
            taken.extend(branches.decide_heuristically(machine, xid, number, by, commits=commits))
            return [*taken]

        def complete(error: StoreError | None) -> None:
            if error is None:
                on_steps(taken)
            on_complete(error)

        self._decide_branch(complete, decide, lambda: branches.forget(machine, xid))

    def _decide_branch(
        self,
        on_complete: OnComplete,
        decide: Callable[[], list[RecordStep]],
        taken: Callable[[], None],
    ) -> None:
        """Decide a branch and log it; `taken` follows when the log has it, not if it refuses."""
        check_completion(on_complete)
        with self._lock:
            self._check_open()
            try:
                self._take(decide(), on_complete)
                taken()
            except StoreError as refusal:
                self._sink.finish(on_complete, refusal)


def _decided(machine: StoreStateMachine, call: BranchCall, number: int) -> list[RecordStep]:
    """Commit a branch in doubt, roll it back, or forget what an operator decided, as `call` says.

    Raises:
        InvalidRequest: As of `commit`, `roll_back` and `forget_heuristic`.
    """
    if isinstance(call, ForgetBranchCall):
        return branches.forget_heuristic(machine, call.xid)
    end = branches.commit if isinstance(call, CommitPreparedCall) else branches.roll_back
    return end(machine, call.xid, number)
