"""The local transactions of one connection: each is of one coordinator's link, and ends with it.

A transaction may be used by every session of its connection, and a session may use several.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from broker_shim.amqp_1_0.composites import TransactionalState
from broker_shim.broker.virtual_host import Broker
from broker_shim.completion import OnComplete
from broker_shim.errors import StoreError
from broker_shim.listener_1_0.transactions.local_transaction import EndLink, LocalTransaction
from broker_shim.transactions.standing import Memory, TransactionLimits, TransactionStanding
from broker_shim.transactions.transaction_refusals import TransactionRefused, too_many, unknown


class Transactions:
    """Declares and discharges transactions by their ids. On the loop's thread only."""

    def __init__(self, broker: Broker, clock: Callable[[], float] = time.monotonic) -> None:
        settings = broker.settings
        self._broker, self._clock = broker, clock
        self._limits = TransactionLimits(
            settings.max_transactions,
            settings.max_transaction_operations,
            settings.max_transaction_bytes,
            settings.transaction_timeout_s,
        )
        self._memory = Memory()
        self._open: dict[bytes, LocalTransaction] = {}

    def declare(self, end_link: EndLink) -> bytes:
        """Begin a transaction; its id, which no other connection ever has.

        Args:
            end_link: Ends the coordinator's link that it is declared on.

        Raises:
            TransactionRefused: Too many are open.
        """
        if len(self._open) >= self._limits.open_count:
            raise too_many(self._limits.open_count)
        txn_id = uuid4().bytes
        standing = TransactionStanding(txn_id, self._limits, self._memory)
        self._open[txn_id] = LocalTransaction(self._broker, standing, end_link, self._clock)
        return txn_id

    def named_by(self, state: Any) -> LocalTransaction | None:
        """Find the transaction that a delivery's state names; None if it is not of one.

        Raises:
            TransactionRefused: It is not declared, or has ended.
        """
        return self.find(state.txn_id) if isinstance(state, TransactionalState) else None

    def spoil(self, state: TransactionalState, reason: str) -> None:
        """Let the transaction that a state names only be rolled back; nothing without one."""
        transaction = self._open.get(state.txn_id) if isinstance(state.txn_id, bytes) else None
        if transaction is not None:
            transaction.spoil(reason)

    def discharge(self, txn_id: Any, on_done: OnComplete, *, fail: bool) -> None:
        """End a transaction: commit it, or roll it back if that is asked; then it is not known.

        Raises:
            TransactionRefused: It is not declared, or has ended.

        Completes with:
            TransactionRefused: It could only be rolled back, and was.
            StoreError: It was not committed, as `LocalTransaction.commit` tells.
        """
        transaction = self.find(txn_id)
        del self._open[transaction.standing.txn_id]
        if fail:
            transaction.rollback(on_done)
            return
        try:
            transaction.commit(on_done)
        except TransactionRefused as refusal:
            transaction.rollback(_answering(on_done, refusal))

    def abandon(self, end_link: EndLink) -> None:
        """Roll back what was declared on a coordinator's link that ended."""
        for txn_id, transaction in [*self._open.items()]:
            if transaction.end_link == end_link:
                del self._open[txn_id]
                transaction.rollback(lambda _error: None)

    def tick(self, now_s: float) -> None:
        """Undo what was open for too long, by the clock that counts its time."""
        for transaction in self._open.values():
            transaction.expire(now_s)

    def find(self, txn_id: Any) -> LocalTransaction:
        """The transaction of an id.

        Raises:
            TransactionRefused: It is not declared, or has ended.
        """
        transaction = self._open.get(txn_id) if isinstance(txn_id, bytes) else None
        if transaction is None:
            raise unknown(txn_id)
        return transaction


def _answering(on_done: OnComplete, refusal: TransactionRefused) -> OnComplete:
    def done(_error: StoreError | None) -> None:
        on_done(refusal)

    return done
