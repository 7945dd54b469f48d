"""Two-phase commit at a store service: each call is one numbered request, so it is decided once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from broker_shim.completion import OnComplete
from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.store import protocol as wire
from broker_shim.store.branch_store import (
    BranchDirectory,
    BranchFacts,
    OnBranches,
    PreparedBranch,
)
from broker_shim.store.interface import TransactionContext
from broker_shim.store.remote.pending_requests import Answer
from broker_shim.store.remote.service_connection import RemoteConnection
from sparkstore.core.state_machine.arguments import check_completion
from sparkstore.core.state_machine.call_values import (
    BranchCall,
    CommitPreparedCall,
    ForgetBranchCall,
)
from sparkstore.core.xids import Xid, check_xid, xid_bytes, xid_from


class _Ending(Protocol):
    def __call__(
        self,
        transaction: TransactionContext,
        on_complete: OnComplete,
        *,
        commit: bool,
        xid: bytes | None = None,
        refusal: StoreError | None = None,
    ) -> None:
        """End an open transaction by one request, with the operations that it had.

        See `RemoteMessageStore._end`.
        """


class RemoteBranches(BranchDirectory):
    """`BranchCalls` of a `RemoteMessageStore`: a branch outlives it, and may be decided by others.

    If a decision completes with Unavailable, `prepared` says whether the branch is there still.
    """

    _connection: RemoteConnection
    _end: _Ending

    def prepare(self, transaction: TransactionContext, xid: Xid, on_complete: OnComplete) -> None:
        """Ask the service to promise a transaction under an xid. See `BranchCalls.prepare`."""
        packed, refusal = b"", None
        try:
            packed = xid_bytes(check_xid(xid))
        except InvalidRequest as wrong:
            refusal = wrong
        self._end(transaction, on_complete, commit=True, xid=packed, refusal=refusal)

    def ask_for_branch(self, call: BranchCall, on_complete: OnComplete) -> None:
        """Ask the service to decide, or to forget, a branch. See `BranchCalls`."""
        try:
            packed = xid_bytes(check_xid(call.xid))
        except InvalidRequest as refusal:
            self._connection.ask(wire.DO, ((),), on_complete, refusal)
            return
        if isinstance(call, ForgetBranchCall):
            self._connection.ask(wire.FORGET, (packed,), on_complete)
        else:
            commits = isinstance(call, CommitPreparedCall)
            self._connection.ask(wire.DECIDE, (packed, commits), on_complete)

    def prepared(self) -> list[PreparedBranch]:
        """Ask the service for its branches in doubt, and wait for the answer.

        See `BranchCalls.prepared`.
        """
        ((rows,),) = self._connection.read(wire.BRANCHES)
        return [PreparedBranch(xid_from(xid), *rest) for xid, *rest in rows]

    def find_branches(self, xid: Xid | None, on_found: OnBranches) -> None:
        """Ask the service for branches, without waiting for its answer.

        See `BranchDirectory.find_branches`.
        """
        branches: list[BranchFacts] = []

        def answered(answer: Answer) -> None:
            is_last, body, error = answer
            for packed, state, puts, takes in () if error else body[0]:
                branches.append(BranchFacts(xid_from(packed), state, dict(puts), dict(takes)))
            if is_last:
                on_found(error, branches)

        asked = None if xid is None else xid_bytes(check_xid(xid))
        self._connection.start_read(answered, wire.BRANCHES, asked)

    def published(self, name: str) -> int:
        """Ask the service for the last batch of a stream that was published; -1: none was."""
        ((batch,),) = self._connection.read(wire.PUBLISHED, name)
        return int(batch)

    def publish(
        self,
        name: str,
        batch: int,
        xids: Sequence[Xid],
        on_complete: OnComplete,
        writer: str | None = None,
    ) -> None:
        """Ask the service to commit branches together, once for each batch of a stream.

        Args:
            name: Name of the stream that the batch is of.
            batch: Its number; `publications.UNNUMBERED`: the batch has none.
            xids: The branches, each by the xid of its attempt.
            on_complete: Called when it is durable. InvalidRequest: one of them is gone, or the
                number was given before, and none was committed.
            writer: The query whose batch it is; None: that is not known.
        """
        check_completion(on_complete)
        try:
            packed = [xid_bytes(check_xid(xid)) for xid in xids]
        except InvalidRequest as refusal:
            self._connection.ask(wire.DO, ((),), on_complete, refusal)
        else:
            own = () if writer is None else (writer,)
            self._connection.ask(wire.PUBLISH, (name, batch, packed, *own), on_complete)
