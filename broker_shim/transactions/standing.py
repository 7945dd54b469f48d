"""How one local transaction stands: may it take work, may it be committed. Pure: time is told.

                 take            spoil       commit        end
    OPEN         OPEN, or        SPOILED     COMMITTING    OVER
                 SPOILED if too
                 much is in it
    SPOILED      refused         SPOILED     refused       OVER
    COMMITTING   refused         COMMITTING  refused       OVER
    OVER         refused         OVER        refused       OVER

A transaction with an operation that was refused is spoiled: were the rest committed, it would be
neither all nor nothing. The first reason counts, and is what a commit is refused with.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from broker_shim.transactions.transaction_refusals import (
    TransactionRefused,
    rolled_back,
    timed_out,
    unknown,
)


class TransactionState(StrEnum):
    """The state of a transaction: open, spoiled, committing or over."""

    OPEN = "open"
    SPOILED = "can only be rolled back"
    COMMITTING = "being committed"
    OVER = "over"


@dataclass(frozen=True, slots=True)
class TransactionLimits:
    """The limits of a client's transactions.

    Attributes:
        open_count: Transactions of one connection at a time.
        operation_count: Messages sent and messages settled in one transaction.
        content_bytes: Of messages that wait in memory for the commit of a transaction of one
            connection, all of these together.
        timeout_s: From its first operation to its discharge. An empty one may stay open: clients
            declare the next one before they need it.
    """

    open_count: int
    operation_count: int
    content_bytes: int
    timeout_s: float


@dataclass(slots=True)
class Memory:
    """The content in memory that waits for commits of one connection.

    Attributes:
        content_bytes: Of messages, in all transactions that are not over.
    """

    content_bytes: int = 0


class TransactionStanding:
    """The state of one transaction, and what was taken into it.

    Attributes:
        txn_id: Its name between us and the client.
        state: How far it is.
        refusal: Why it is spoiled.
        operation_count: How many operations were taken into it.
        limits: What it may take.
    """

    def __init__(self, txn_id: bytes, limits: TransactionLimits, memory: Memory) -> None:
        self.txn_id = txn_id
        self.state = TransactionState.OPEN
        self.refusal: TransactionRefused | None = None
        self.operation_count = 0
        self.limits = limits
        self._memory = memory
        self._content_bytes = 0
        self._began_at_s: float | None = None
        self._has_expired = False

    @property
    def is_open(self) -> bool:
        """True until the transaction's discharge, also if that can only be a rollback."""
        return self.state in {TransactionState.OPEN, TransactionState.SPOILED}

    def take(self, content_bytes: int, now_s: float, count: int = 1) -> None:
        """Take operations in, with so much content that waits in memory.

        Raises:
            TransactionRefused: It takes no more; if this was too much, it is spoiled now.
        """
        if self._began_at_s is None:  # also of one that is spoiled: it holds what was settled in it
            self._began_at_s = now_s
        self._check_open()
        limits = self.limits
        self.operation_count += count
        self._content_bytes += content_bytes
        self._memory.content_bytes += content_bytes
        if self.operation_count > limits.operation_count:
            self.spoil(rolled_back(f"more than {limits.operation_count} operations in it"))
        elif self._memory.content_bytes > limits.content_bytes:
            most = limits.content_bytes
            self.spoil(rolled_back(f"more than {most} bytes wait for commits of this connection"))
        if self.refusal is not None:
            raise self.refusal

    def fits(self, content_bytes: int, count: int) -> bool:
        """Tell whether it takes all of so many operations, with so much content."""
        limits, so_far = self.limits, self._memory.content_bytes
        is_few = self.operation_count + count <= limits.operation_count
        return is_few and so_far + content_bytes <= limits.content_bytes and self.refusal is None

    def spoil(self, refusal: TransactionRefused) -> None:
        """Mark that the transaction cannot be committed; do nothing once its commit has begun."""
        if self.state is TransactionState.OPEN:
            self.state, self.refusal = TransactionState.SPOILED, refusal

    def expire(self, now_s: float) -> bool:
        """Spoil a transaction that was open for too long; True, once, if it is to be undone.

        One that is spoiled is undone, too: it holds what was settled in it until its discharge,
        and its client may never come to that. What it is refused with stays the first reason.
        """
        began_at_s, timeout_s = self._began_at_s, self.limits.timeout_s
        is_due = began_at_s is not None and now_s - began_at_s >= timeout_s
        if self._has_expired or not self.is_open or not is_due:
            return False
        self._has_expired = True
        self.spoil(timed_out(timeout_s))
        return True

    def commit(self) -> None:
        """Begin the commit of the transaction.

        Raises:
            TransactionRefused: It can only be rolled back, or is discharged already.
        """
        self._check_open()
        self.state = TransactionState.COMMITTING

    def end(self) -> None:
        """End the transaction, committed or rolled back. May be called twice."""
        self.state = TransactionState.OVER
        self._memory.content_bytes -= self._content_bytes
        self._content_bytes = 0

    def _check_open(self) -> None:
        if self.refusal is not None:
            raise self.refusal
        if self.state is not TransactionState.OPEN:
            raise unknown(self.txn_id)
