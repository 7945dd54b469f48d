"""What one link acquires in a transaction, because a flow of its receiver named one (4.4.3).

From that flow on, what is sent is acquired in the transaction, and says so by its state, until
that is discharged or a flow names another. If it is committed, what nobody decided about stays
acquired by the link, as any delivery. If it is undone, that is given back once its retirements
are, as a failed delivery (the client has seen the message), and the client is told so.

Decision: a link that ends before its transaction does takes what it acquired out of it: that is
given back, or kept to be resumed, as whatever a link holds when it ends. With a session or a
connection the transactions end first (`Served`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_shim.amqp_1_0.composites import TransactionalState
from broker_shim.completion import OnComplete
from broker_shim.listener_1_0.transactions.local_transaction import LocalTransaction
from broker_shim.protocol_1_0.links.deliveries import Delivery

if TYPE_CHECKING:
    from broker_shim.listener_1_0.sending.outgoing_link import OutgoingLink


class Acquiring:
    """See above. On the loop's thread only."""

    def __init__(self, owner: OutgoingLink) -> None:
        self._owner = owner
        self._transaction: LocalTransaction | None = None
        self._within: dict[Delivery, LocalTransaction] = {}

    def begin(self, transaction: LocalTransaction | None) -> None:
        """What is sent from now on is acquired in this transaction, or in none."""
        self._transaction = transaction

    @property
    def state(self) -> TransactionalState | None:
        """Of a delivery that is sent now; a discharge clears it."""
        if self._transaction is None or not self._transaction.standing.is_open:
            self._transaction = None
            return None
        return TransactionalState(self._transaction.standing.txn_id)

    def sent(self, delivery: Delivery) -> None:
        """A delivery with such a state began: it is the transaction's, too."""
        assert self._transaction is not None
        self._within[delivery] = self._transaction
        self._transaction.acquire(self)

    def forget(self, delivery: Delivery) -> None:
        """It was decided about in no transaction: nothing is to be undone."""
        self._within.pop(delivery, None)

    def gone(self) -> None:
        """The link ended."""
        self._transaction = None
        self._within.clear()

    def is_of_another(self, delivery: Delivery, transaction: LocalTransaction) -> bool:
        """Whether a delivery is of another transaction that is not discharged."""
        within = self._within.get(delivery)
        return within is not None and within is not transaction and within.standing.is_open

    def over(self, transaction: LocalTransaction) -> list[Delivery]:
        """A transaction ended: what was acquired in it."""
        acquired = [each for each, within in self._within.items() if within is transaction]
        for delivery in acquired:
            del self._within[delivery]
        return acquired

    def give_back(self, delivery: Delivery, on_done: OnComplete) -> None:
        """Its transaction is undone."""
        self._owner.give_back_acquired(delivery, on_done)
