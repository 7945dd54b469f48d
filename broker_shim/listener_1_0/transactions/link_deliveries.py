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
from typing import TYPE_CHECKING, Any

from broker_shim.amqp_1_0.composites import Accepted, Rejected, Released, TransactionalState
from broker_shim.broker.delivery.taken_run import TakenRun
from broker_shim.completion import OnComplete, after
from broker_shim.listener_1_0.links import Held, Links
from broker_shim.listener_1_0.outcomes import RELEASED, DecidedRun
from broker_shim.listener_1_0.resumption import tag_of
from broker_shim.listener_1_0.transactions.local_transaction import (
    OUTCOMES,
    LocalTransaction,
    Retirement,
)
from broker_shim.protocol_1_0.links.sent_runs import SentRun

if TYPE_CHECKING:
    from broker_shim.listener_1_0.sending.outgoing_link import OutgoingLink


class Retirements:
    """The deliveries that transactions decide about. On the loop's thread only.

    Attributes:
        holdings: What the link holds of its queue.
    """

    def __init__(self, owner: OutgoingLink, links: Links) -> None:
        self._owner, self._links, self.holdings = owner, links, owner.holdings
        self._served = self.holdings.served

    def retire(self, transaction: LocalTransaction, run: SentRun, taken: TakenRun) -> None:
        """Take deliveries from the link, with the outcome that a state in a transaction tells."""
        outcome = run.remote_state.outcome
        if not isinstance(outcome, OUTCOMES):
            if outcome is not None:
                transaction.spoil(f"{outcome!r:.80} is no outcome of a delivery")
            outcome = RELEASED  # what it is for a link that says nothing else (`attach.source`)
        place = DecidedRun(run.place, taken.message_ids)
        retirement = Retirement(self, transaction, place, taken, outcome, run.is_settled)
        taken.decision = retirement  # first: it may come back at once
        transaction.retire(retirement)

    def note_disposition(self, run: SentRun) -> None:
        """Note what the client says of deliveries under way: that it has forgotten them."""
        retirement: Retirement = run.held.decision
        retirement.is_settled = retirement.is_settled or run.is_settled
        state = run.remote_state
        outcome = state.outcome if isinstance(state, TransactionalState) else state
        if outcome != retirement.outcome and not (
            outcome is None and isinstance(retirement.outcome, Released)
        ):
            retirement.transaction.spoil("a delivery in it was given another outcome")

    def refuse(self, message_id: int) -> None:
        """Never let the link get a message again."""
        self._owner.queue.refuse(message_id, self._owner)

    def retired(self, retirement: Retirement) -> None:
        """Confirm an outcome that is committed, unless the client has forgotten the deliveries."""
        metrics, ids = self._served.metrics, retirement.decided.message_ids
        if isinstance(retirement.outcome, Accepted):
            metrics.accepted += len(ids)
        elif isinstance(retirement.outcome, Rejected):
            metrics.rejected += len(ids)
        if not retirement.is_settled:
            self._owner.confirm((retirement.decided.place,), type(retirement.outcome)())

    def taken_back(self, retirement: Retirement, on_done: OnComplete) -> None:
        """Undo an outcome: the client decides again, or the messages are given back.

        As failed deliveries: the client has seen the messages.
        """
        if not retirement.is_settled and not self._owner.has_ended:
            self._owner.unsettle(retirement.taken)
            on_done(None)
            return
        retirement.taken.release()
        terminus, ids = self._owner.terminus, retirement.decided.message_ids
        is_suspended = terminus.endpoint is None and not terminus.is_over
        if not retirement.is_settled and is_suspended:
            held = {
                tag_of(message_id): Held(message_id, self.holdings.queue.name) for message_id in ids
            }
            self._links.end_holding(terminus, held)
            on_done(None)
        elif not self._served.serves(self.holdings.queue):
            on_done(None)  # they went with their queue
        else:
            done = after(len(ids), on_done)
            for message_id in ids:
                self._owner.holdings.give_back(message_id, failed=True, on_done=done)


class Acquisitions:
    """The deliveries that were acquired in transactions. On the loop's thread only."""

    def __init__(
        self,
        undecided: Callable[[], Iterable[tuple[SentRun, TakenRun]]],
        give_back: Callable[[SentRun, OnComplete], None],
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

    def sent(self, runs: Iterable[SentRun]) -> None:
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

    def over(self, transaction: LocalTransaction) -> list[SentRun]:
        """Take the deliveries out of a transaction that ended, and that are not decided about."""
        acquired = [(run, taken) for run, taken in self._undecided() if taken.within is transaction]
        for _run, taken in acquired:
            taken.within = None
        return [run for run, _taken in acquired]
