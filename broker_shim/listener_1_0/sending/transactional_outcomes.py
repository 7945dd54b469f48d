"""The deliveries of one link that transactions decide about.

A delivery is either with the link, unsettled, or here: it comes here when the client names a
transaction with its outcome, and goes when that ends. So what the link gives back when it ends is
what no transaction has; and a transaction may end after the link. With a connection or a session
transactions end first (`Served`): so what their client had not forgotten is with its link again,
which keeps it to be resumed if it lives on. If a link alone was detached, its terminus has it,
unless it was attached again by then: then it is given back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_shim.amqp_1_0.composites import Accepted, Rejected, Released, TransactionalState
from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.completion import OnComplete
from broker_shim.listener_1_0.links import Held
from broker_shim.listener_1_0.outcomes import RELEASED
from broker_shim.listener_1_0.sending.outgoing_message import Taken
from broker_shim.listener_1_0.transactions.local_transaction import LocalTransaction
from broker_shim.listener_1_0.transactions.retirement import OUTCOMES, Retirement
from broker_shim.protocol_1_0.links.deliveries import Delivery

if TYPE_CHECKING:
    from broker_shim.listener_1_0.sending.outgoing_link import OutgoingLink


class Retiring:
    """See above. On the loop's thread only."""

    def __init__(self, owner: OutgoingLink) -> None:
        self._owner, self._broker = owner, owner.broker
        self._under_way: dict[Delivery, tuple[LocalTransaction, Retirement]] = {}

    @property
    def queue(self) -> QueueDispatch:
        """Where the link's messages are."""
        return self._owner.queue

    @property
    def holder(self) -> str:
        """What the store knows the link by."""
        return self._owner.holder

    def retire(self, transaction: LocalTransaction, delivery: Delivery, taken: Taken) -> None:
        """Take a delivery from the link, with the outcome that its state in a transaction tells."""
        outcome = delivery.remote_state.outcome
        if not isinstance(outcome, OUTCOMES):
            if outcome is not None:
                transaction.spoil(f"{outcome!r:.80} is no outcome of a delivery")
            outcome = RELEASED  # what it is for a link that says nothing else (`attach.source`)
        retirement = Retirement(self, delivery, taken, outcome, delivery.is_settled)
        self._under_way[delivery] = transaction, retirement
        transaction.retire(retirement)

    def told(self, delivery: Delivery) -> None:
        """The client says more about a delivery that may be here: that it has forgotten it."""
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
        """The link must not get a message again."""
        self.queue.refuse(message_id, self._owner)

    def retired(self, retirement: Retirement) -> None:
        """It is committed: confirm the outcome, unless the client has forgotten the delivery."""
        del self._under_way[retirement.delivery]
        metrics = self._broker.metrics
        if isinstance(retirement.outcome, Accepted):
            metrics.accepted += 1
            self._broker.calls.messages.forget(retirement.taken.message_id)
        metrics.rejected += isinstance(retirement.outcome, Rejected)
        if not retirement.is_settled:
            self._owner.confirm(retirement.delivery, type(retirement.outcome)())

    def taken_back(self, retirement: Retirement, on_done: OnComplete) -> None:
        """It is rolled back: the client decides again; or cannot, and the message is given back.

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
            self._owner.links.end_holding(terminus, {tag: Held(message_id, self.queue.name)})
            on_done(None)
            return
        if self._broker.queues.get(self.queue.name) is not self.queue:
            on_done(None)  # it went with its queue
            return
        message_id, queue = retirement.taken.message_id, self.queue.name
        give_back = self._broker.settlement.give_back
        give_back(message_id, queue, self.holder, failed=True, on_done=on_done)
