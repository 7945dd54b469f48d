"""The deliveries of one sending link that transactions decide about.

A delivery is either with the link, unsettled, or in `Retirements`: it comes here when the client
names a transaction with its outcome, and goes when that ends. So what the link gives back when it
ends is what no transaction has; and a transaction may end after the link. With a connection or a
session transactions end first (`ConnectionLinks`). So what their client had not forgotten is with
its link again, which keeps it to be resumed if it lives on. If a link alone was detached, its
terminus has it, unless it was attached again by then: then it is given back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from broker_shim.amqp_1_0.composites import (
    Accepted,
    Modified,
    Rejected,
    Released,
    TransactionalState,
)
from broker_shim.broker.delivery.rejection import Rejection
from broker_shim.broker.delivery.taken_run import TakenRun
from broker_shim.broker.flow.served_queues import ServedQueues
from broker_shim.broker.flow.settlement import one_by_one
from broker_shim.completion import OnComplete, after, nobody
from broker_shim.listener_1_0.connections.links import Held, Links
from broker_shim.listener_1_0.connections.resumption import tag_of
from broker_shim.listener_1_0.outcomes import RELEASED, DecidedRun, kept_of, rejection
from broker_shim.listener_1_0.transactions.local_transaction import LocalTransaction
from broker_shim.protocol_1_0.links.runs import Run
from broker_shim.store.interface import Annotations
from sparkstore.core.state_machine.call_values import DequeueCall, ReleaseCall, StoreCall

if TYPE_CHECKING:
    from broker_shim.listener_1_0.sending.outgoing_link import OutgoingLink

OUTCOMES = (Accepted, Rejected, Released, Modified)


@dataclass(slots=True, eq=False)
class Retirement:
    """Deliveries within one transaction; until that ends nobody else decides about them.

    Attributes:
        link: That they were sent on; it may have ended meanwhile.
        transaction: What is committed or undone as a whole.
        decided: The deliveries, and their messages.
        taken: The messages, as their link has them.
        outcome: What the client chose, one of `OUTCOMES`.
        is_settled: The client has forgotten the deliveries.
        rejected: What becomes of the messages, if they are rejected, and of those that were parted.
    """

    link: Retirements
    transaction: LocalTransaction
    decided: DecidedRun
    taken: TakenRun
    outcome: Any
    is_settled: bool
    rejected: Rejection | None = None

    def __len__(self) -> int:
        """The number of deliveries."""
        return len(self.decided.message_ids)

    def cut(self, rest: TakenRun) -> Retirement:
        """Part it, as the client forgets some of the deliveries. See `Decision`."""
        count, end = len(self) - len(rest), len(self)
        decided = self.decided.part(count, end)
        parted = replace(self, decided=decided, taken=rest, rejected=None)
        self.decided = self.decided.part(0, count)
        self.transaction.parted(self, parted)
        return parted

    @property
    def removes(self) -> bool:
        """True if the outcome takes the message off its queue; else it is available again."""
        return isinstance(self.outcome, Accepted | Rejected)

    @property
    def failed(self) -> bool:
        """True if an outcome that gives the message back raises its delivery count."""
        return isinstance(self.outcome, Modified) and self.outcome.delivery_failed is True

    @property
    def is_undeliverable(self) -> bool:
        """True if the link must not get the message again."""
        return isinstance(self.outcome, Modified) and self.outcome.undeliverable_here is True

    def operations(self, served: ServedQueues) -> Sequence[StoreCall]:
        """Make the calls of the store that do it, decided on what is true now.

        A dead-letter queue that is not there is created by an earlier call of the store. See
        `SettledWork`.
        """
        holdings, outcome, ids = self.link.holdings, self.outcome, self.decided.message_ids
        queue, holder = holdings.queue, holdings.holder
        if isinstance(outcome, Rejected):
            self.rejected = holdings.rejection(ids, rejection(outcome))
            self.rejected.make_target(nobody)  # if that is refused, so is what needs it
            return self.rejected.steps()
        if self.removes:
            return [DequeueCall(ids, queue.name, holder)]
        kept: Annotations | None = None
        released = []
        for message_id in ids:
            if isinstance(outcome, Modified):
                kept = kept_of(served.calls, queue.name, message_id, outcome)
            released.append(ReleaseCall((message_id,), queue.name, holder, self.failed, kept))
        return released

    @property
    def place(self) -> tuple[str, Sequence[int]]:
        """The queue, and the ids of the deliveries' messages. See `SettledWork`."""
        return self.link.holdings.queue.name, self.decided.message_ids

    def committed(self, served: ServedQueues) -> None:
        """Take the messages off their queue, or let them wait again, as was decided.

        See `SettledWork`.
        """
        queue, ids = self.link.holdings.queue, self.decided.message_ids
        if served.serves(queue):
            for message_id in ids if self.is_undeliverable else ():
                self.link.refuse(message_id)
            if self.removes:
                is_accepted = isinstance(self.outcome, Accepted)
                queue.removed(ids, "accepted" if is_accepted else "other")
                if self.rejected is not None:
                    self.rejected.is_done()
            else:
                self.link.holdings.released(ids, failed=self.failed)
        self.taken.release()
        self.link.retired(self)

    def promised(self) -> None:
        """Do nothing: AMQP 1.0 serves no distributed transactions. See `SettledWork`."""

    def undone(self, on_done: OnComplete) -> None:
        """Have the link take the delivery back. See `SettledWork`."""
        self.link.taken_back(self, on_done)


class Retirements:
    """The deliveries that transactions decide about. On the loop's thread only.

    Attributes:
        holdings: What the link holds of its queue.
    """

    def __init__(self, owner: OutgoingLink, links: Links) -> None:
        self._owner, self._links, self.holdings = owner, links, owner.holdings
        self._served = self.holdings.served

    def retire(self, transaction: LocalTransaction, run: Run, taken: TakenRun) -> None:
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

    def note_disposition(self, run: Run) -> None:
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
            done = one_by_one(after(len(ids), on_done))
            self._owner.holdings.give_back(ids, done, failed=True)
