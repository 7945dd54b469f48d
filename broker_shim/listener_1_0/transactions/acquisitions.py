"""The deliveries of one sending link that were acquired in a transaction.

A link acquires in a transaction because a flow of its receiver named one (4.4.3).
From that flow on, what is sent is acquired in the transaction, and says so by its state, until
that is discharged or a flow names another. If it is committed, what nobody decided about stays
acquired by the link, as any delivery. If it is undone, that is given back once its retirements
are, as a failed delivery (the client has seen the message), and the client is told so.

Decision: a link that ends before its transaction does takes what it acquired out of it. That is
given back, or kept to be resumed, as whatever a link holds when it ends. With a session or a
connection the transactions end first (`ConnectionLinks`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from broker_shim.amqp_1_0.composites import TransactionalState
from broker_shim.broker.delivery.taken_run import TakenRun
from broker_shim.completion import OnComplete
from broker_shim.listener_1_0.transactions.local_transaction import LocalTransaction
from broker_shim.protocol_1_0.links.runs import Run


class Acquisitions:
    """The deliveries that were acquired in transactions. On the loop's thread only."""

    def __init__(
        self,
        undecided: Callable[[], Iterable[tuple[Run, TakenRun]]],
        give_back: Callable[[Run, OnComplete], None],
    ) -> None:
        """Begin; `undecided` lists the link's deliveries, `give_back` undoes the acquisition."""
        self._undecided, self.give_back = undecided, give_back
        self._transaction: LocalTransaction | None = None

    def begin(self, transaction: LocalTransaction | None) -> None:
        """Acquire what is sent from now on in this transaction, or in none."""
        self._transaction = transaction

    @property
    def state(self) -> TransactionalState | None:
        """Get the state of a delivery that is sent now; a discharge clears it."""
        if self._transaction is None or not self._transaction.standing.is_open:
            self._transaction = None
            return None
        return TransactionalState(self._transaction.standing.txn_id)

    def sent(self, runs: Iterable[Run]) -> None:
        """Note deliveries that began: those with such a state are the transaction's, too."""
        for run in runs:
            if isinstance(run.state, TransactionalState):
                assert self._transaction is not None
                run.held.within = self._transaction
                self._transaction.acquire(self)

    def gone(self) -> None:
        """Forget what was acquired, because the link ended."""
        self._transaction = None

    def is_of_another(self, taken: TakenRun, transaction: LocalTransaction) -> bool:
        """Whether messages are of another transaction that is not discharged."""
        within: Any = taken.within
        return within is not None and within is not transaction and within.standing.is_open

    def over(self, transaction: LocalTransaction) -> list[Run]:
        """Take the deliveries out of a transaction that ended, and that are not decided about."""
        acquired = [(run, taken) for run, taken in self._undecided() if taken.within is transaction]
        for _run, taken in acquired:
            taken.within = None
        return [run for run, _taken in acquired]
