"""The deliveries of one sending link that are in transactions.

Transactions decide about them, or they were acquired in one.

A delivery is either with the link, unsettled, or in `Retirements`: it comes here when the client
names a transaction with its outcome, and goes when that ends. So what the link gives back when it
ends is what no transaction has; and a transaction may end after the link. With a connection or a
session transactions end first (`ConnectionLinks`). So what their client had not forgotten is with
its link again, which keeps it to be resumed if it lives on. If a link alone was detached, its
terminus has it, unless it was attached again by then: then it is given back.

A link acquires in a transaction (`Acquisitions`) because a flow of its receiver named one (4.4.3).
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
from typing import TYPE_CHECKING

from broker_shim.amqp_1_0.composites import Accepted, Rejected, Released, TransactionalState
from broker_shim.broker.delivery.taken_message import TakenMessage
from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.broker.virtual_host import Broker
from broker_shim.completion import OnComplete
from broker_shim.listener_1_0.links import Held, Links
from broker_shim.listener_1_0.outcomes import RELEASED
from broker_shim.listener_1_0.transactions.local_transaction import (
    OUTCOMES,
    LocalTransaction,
    Retirement,
)
from broker_shim.protocol_1_0.links.link import Delivery

if TYPE_CHECKING:
    from broker_shim.listener_1_0.sending.outgoing_link import OutgoingLink


class Retirements:
    """The deliveries that transactions decide about. On the loop's thread only."""

    def __init__(self, owner: OutgoingLink, broker: Broker, links: Links) -> None:
        self._owner, self._broker, self._links = owner, broker, links
        self._under_way: dict[Delivery, tuple[LocalTransaction, Retirement]] = {}

    @property
    def queue(self) -> QueueDispatch:
        """The queue that the link's messages are on."""
        return self._owner.queue

    @property
    def holder(self) -> str:
        """The name by which the store knows the link."""
        return self._owner.holder

    def retire(
        self, transaction: LocalTransaction, delivery: Delivery, taken: TakenMessage
    ) -> None:
        """Take a delivery from the link, with the outcome that its state in a transaction tells."""
        outcome = delivery.remote_state.outcome
        if not isinstance(outcome, OUTCOMES):
            if outcome is not None:
                transaction.spoil(f"{outcome!r:.80} is no outcome of a delivery")
            outcome = RELEASED  # what it is for a link that says nothing else (`attach.source`)
        retirement = Retirement(self, delivery, taken, outcome, delivery.is_settled)
        self._under_way[delivery] = transaction, retirement
        transaction.retire(retirement)

    def note_disposition(self, delivery: Delivery) -> None:
        """Note what the client says of a delivery that is under way: that it has forgotten it."""
        if delivery not in self._under_way:
            return
        transaction, retirement = self._under_way[delivery]
        retirement.is_settled = retirement.is_settled or delivery.is_settled
        state = delivery.remote_state
        outcome = state.outcome if isinstance(state, TransactionalState) else state
        if outcome != retirement.outcome and not (
            outcome is None and isinstance(retirement.outcome, Released)
        ):
            transaction.spoil("a delivery in it was given another outcome")

    def refuse(self, message_id: int) -> None:
        """Never let the link get a message again."""
        self._owner.refuse(message_id)

    def retired(self, retirement: Retirement) -> None:
        """Confirm an outcome that is committed, unless the client has forgotten the delivery."""
        del self._under_way[retirement.delivery]
        metrics = self._broker.metrics
        if isinstance(retirement.outcome, Accepted):
            metrics.accepted += 1
            self._broker.calls.messages.forget((retirement.taken.message_id,))
        metrics.rejected += isinstance(retirement.outcome, Rejected)
        if not retirement.is_settled:
            self._owner.confirm((retirement.delivery,), type(retirement.outcome)())

    def taken_back(self, retirement: Retirement, on_done: OnComplete) -> None:
        """Undo an outcome: the client decides again, or the message is given back.

        As a failed delivery: the client has seen the message.
        """
        del self._under_way[retirement.delivery]
        if not retirement.is_settled and not self._owner.has_ended:
            self._owner.unsettle(retirement.delivery, retirement.taken)
            on_done(None)
            return
        retirement.taken.release()
        terminus = self._owner.terminus
        is_suspended = terminus.endpoint is None and not terminus.is_over
        if not retirement.is_settled and is_suspended:
            tag, message_id = retirement.delivery.tag, retirement.taken.message_id
            self._links.end_holding(terminus, {tag: Held(message_id, self.queue.name)})
            on_done(None)
            return
        if not self._broker.serves(self.queue):
            on_done(None)  # it went with its queue
            return
        message_id = retirement.taken.message_id
        self._owner.holdings.give_back(message_id, failed=True, on_done=on_done)


class Acquisitions:
    """The deliveries that were acquired in transactions. On the loop's thread only."""

    def __init__(self, give_back: Callable[[Delivery, OnComplete], None]) -> None:
        """Begin; `give_back` undoes the acquisition of a delivery."""
        self.give_back = give_back
        self._transaction: LocalTransaction | None = None
        self._within: dict[Delivery, LocalTransaction] = {}

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

    def sent(self, deliveries: Iterable[Delivery]) -> None:
        """Note deliveries that began: those with such a state are the transaction's, too."""
        for delivery in deliveries:
            if isinstance(delivery.state, TransactionalState):
                assert self._transaction is not None
                self._within[delivery] = self._transaction
                self._transaction.acquire(self)

    def forget(self, deliveries: Iterable[Delivery]) -> None:
        """Forget deliveries that were decided about in no transaction: nothing is to be undone."""
        if self._within:
            for delivery in deliveries:
                self._within.pop(delivery, None)

    def gone(self) -> None:
        """Forget what was acquired, because the link ended."""
        self._transaction = None
        self._within.clear()

    def is_of_another(self, delivery: Delivery, transaction: LocalTransaction) -> bool:
        """Whether a delivery is of another transaction that is not discharged."""
        within = self._within.get(delivery)
        return within is not None and within is not transaction and within.standing.is_open

    def over(self, transaction: LocalTransaction) -> list[Delivery]:
        """Take the deliveries out of a transaction that ended."""
        acquired = [delivery for delivery, within in self._within.items() if within is transaction]
        for delivery in acquired:
            del self._within[delivery]
        return acquired
