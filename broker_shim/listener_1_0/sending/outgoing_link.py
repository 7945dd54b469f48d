"""A link on which a client receives: credit, deliveries, and what the client decided."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from broker_shim.amqp_1_0.composites import Modified, TransactionalState
from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.completion import OnComplete
from broker_shim.errors import StoreError
from broker_shim.links import LinkEndpoint, link_text
from broker_shim.listener_1_0.conditions import NOT_IMPLEMENTED, Refusal, queue_deleted, refusal_of
from broker_shim.listener_1_0.links import Held
from broker_shim.listener_1_0.sending.consumer_outcomes import DECISIONS, broken_off, released
from broker_shim.listener_1_0.sending.dispatch import Delivering
from broker_shim.listener_1_0.sending.outgoing_message import Taken
from broker_shim.listener_1_0.sending.resumption import Resumed, Resuming
from broker_shim.listener_1_0.sending.transactional_outcomes import Retiring
from broker_shim.listener_1_0.termini import default_outcome
from broker_shim.listener_1_0.transactions.acquisition import Acquiring
from broker_shim.protocol_1_0.links.deliveries import Delivery
from broker_shim.protocol_1_0.links.sender import SenderLink
from broker_shim.selectors import Selector
from broker_shim.transactions.refusals import TransactionRefused, rolled_back

if TYPE_CHECKING:
    from broker_shim.listener_1_0.connection import Connection

_log = logging.getLogger(__name__)

_BATCH = 100
"""So many at most are under way to be acquired: what a peer that does not read can hold, beside
what may be buffered, however much credit it gave."""

_TXN_ID = "txn-id"
_SETTLED_WITHIN = Refusal(
    NOT_IMPLEMENTED, "settled deliveries are not received in a transaction: ask for unsettled ones"
)
"""They have left the queue when they are sent: a rollback could not bring them back (4.4.3)."""
_FAILED = Modified(delivery_failed=True)


class OutgoingLink:
    """Our sending end: a consumer of one queue.

    Invariant: a message that was assigned is, until it is given back or removed, in exactly one
    of: on its way to the wire (`Delivering`), in `_unsettled`, in a transaction (`Retiring`), under
    way to be settled; but for one that can never be read, which is left held and said so in the
    log.

    Attributes:
        holder: What the store knows it by.
        link: Of the protocol.
        terminus: Our end of it, which may outlive this.
        resuming: What it held when it was attached; None if nothing.
        acquiring: What it acquires in transactions.
        has_ended: True from `gone` on.
    """

    def __init__(
        self,
        connection: Connection,
        link: SenderLink,
        queue: QueueDispatch,
        endpoint: LinkEndpoint,
        *,
        is_settled: bool,
        selector: Selector | None = None,
        resumed: Resumed | None = None,
    ) -> None:
        self._connection = connection
        self.broker, self.links = connection.broker, connection.links
        self.link = link
        self.queue = queue
        self.terminus = endpoint.terminus
        self.holder = link_text(self.terminus.key)
        self.now_us = connection.now_us
        self._is_settled = is_settled
        self._selector = selector
        self._unsettled: dict[Delivery, Taken] = {}
        self._delivering = Delivering(self, is_settled=is_settled)
        self._retiring = Retiring(self)
        self.acquiring = Acquiring(self)
        self.resuming = None if resumed is None else Resuming(self, resumed)
        self.credit = 0
        self.has_ended = False
        self._is_refresh_due = False

    @property
    def is_gone(self) -> bool:
        """True once nothing can be sent on it any more; `gone` follows."""
        return self.has_ended or self.link.is_gone

    def start(self) -> None:
        """Take a place at the queue."""
        self.queue.add(self, self._selector)
        if self.resuming is not None:
            self.resuming.start()
        self.on_flow()

    def gone(self) -> None:
        """The link, its session or its connection ended: what it held is given back or kept."""
        self.has_ended = True
        self.credit = 0
        self.queue.discard(self)
        self._delivering.gone()
        held = {} if self.resuming is None else self.resuming.left()
        for delivery, taken in self._unsettled.items():
            taken.release()
            failed = self._has_failed(delivery)
            held[delivery.tag] = Held(taken.message_id, self.queue.name, failed)
        self._unsettled = {}
        self.acquiring.gone()
        self.links.end_holding(self.terminus, held, is_closed=self.link.is_closed_here)

    def queue_deleted(self) -> None:
        """End the link: what it held is given back, and goes with its queue."""
        self._connection.lose(self.link, queue_deleted(self.queue.name))

    def _has_failed(self, delivery: Delivery) -> bool:
        """Whether a delivery without an outcome, whose link is gone, was a failed one.

        Decision (3.2.1, delivery-count: "unsuccessful previous attempts"; 3.5.3, default-outcome):
        where the connection was lost, what was written to it whole: its consumer may have failed
        over any of that, and cannot say. Where the peer left in good order, or we do, the link's
        default outcome holds, which is `released` unless its source said `modified` with
        `delivery-failed`. What was not written whole nobody can have used.
        """
        if not self._connection.has_left(delivery):
            return False
        if not (self._connection.peer_parts or self.broker.is_stopping):
            return True
        return isinstance(default_outcome(self.link.remote.source), Modified)

    @property
    def room_bytes(self) -> int:
        """How much more may wait to be written to the peer."""
        return self._connection.room_bytes(self.link)

    @property
    def _settled_room(self) -> int:
        """How many more the peer may leave unsettled: what it was sent has to be remembered."""
        most = self.broker.settings.max_unsettled
        return most if self._is_settled else most - self.link.port.unsettled_count

    def wait_for_room(self) -> None:
        """Have `on_flow` called when there is room again."""
        self._connection.wait_for_room(self)

    def on_flow(self) -> None:
        """The peer gave credit, or asks to drain it, or there is room to write again."""
        if self.is_gone:
            return
        properties, self.link.flow_properties = self.link.flow_properties, None
        if properties is not None and not self._acquires_in(properties[_TXN_ID]):
            return
        if self.room_bytes < 0:
            self.credit = 0
            self.wait_for_room()
            return
        self._delivering.write()
        if self.resuming is not None:
            self.resuming.go_on(self._delivering, _BATCH)
        settled_room = self._settled_room
        if settled_room <= 0:
            self.wait_for_room()
        may_take = 0 if self._delivering.is_full else min(self.link.credit, _BATCH, settled_room)
        self.credit = max(0, may_take - self._delivering.count)
        self.broker.wanted(self.queue.name)
        if self.link.is_draining:
            self.broker.dispatch()
            self.caught_up()

    def _acquires_in(self, txn_id: Any) -> bool:
        """A flow named a transaction; False if the link ends for that."""
        try:
            transaction = None if txn_id is None else self._connection.transactions.find(txn_id)
        except TransactionRefused as refusal:
            self._connection.detach(self.link, refusal_of(refusal))
            return False
        if transaction is not None and self._is_settled:
            self._connection.detach(self.link, _SETTLED_WITHIN)
            return False
        self.acquiring.begin(transaction)
        return True

    def assign(self, message_id: int) -> None:
        """See `Consumer.assign`."""
        self.credit -= 1
        self._delivering.assign(message_id)
        if self._delivering.is_full:
            self.credit = 0

    def refresh(self) -> None:
        """Take more well before all that is under way has come; a drain may be over."""
        is_due = self._delivering.count <= _BATCH // 2 or self.link.is_draining
        if is_due and not self._is_refresh_due:
            self._is_refresh_due = True  # once, for all that comes in this turn
            self.broker.before_dispatch(self._refresh)

    def _refresh(self) -> None:
        self._is_refresh_due = False
        self.on_flow()

    def sent(self, delivery: Delivery, taken: Taken) -> None:
        """A delivery is on its way to the peer, or begins to be."""
        if self._is_settled:
            taken.release()
        else:
            self._unsettled[delivery] = taken
            if isinstance(delivery.state, TransactionalState):
                self.acquiring.sent(delivery)
        self.has_output()

    def drop(self, delivery: Delivery) -> None:
        """A delivery was broken off: nothing is to be decided about it any more."""
        self._unsettled.pop(delivery, None)
        self.acquiring.forget(delivery)

    def has_output(self) -> None:
        """Something is to be written."""
        self._connection.has_output()

    def on_disposition(self, delivery: Delivery) -> None:
        """The peer decided, or settled without a decision, which releases."""
        taken = self._unsettled.get(delivery)
        if taken is None:
            self._retiring.told(delivery)
            return
        if isinstance(delivery.remote_state, TransactionalState):
            self._decided_within(delivery, taken)
            return
        decide = DECISIONS.get(type(delivery.remote_state))
        if decide is None and delivery.is_settled:
            decide = released
        if decide is not None:
            if self._delivering.decided(delivery):
                decide = broken_off
            self.acquiring.forget(delivery)
            decide(self, delivery, taken.message_id)
            # Last: were it not known, a decision that failed would hold the message for ever.
            del self._unsettled[delivery]
            taken.release()

    def leave(self) -> None:
        """Detach, for the peer to attach again."""
        self._connection.leave(self.link)

    def _decided_within(self, delivery: Delivery, taken: Taken) -> None:
        """It decided in a transaction: that has the delivery from now on."""
        try:
            transaction = self._connection.transactions.named_by(delivery.remote_state)
        except TransactionRefused as refusal:
            self._connection.detach(self.link, refusal_of(refusal))
            return
        if delivery.remote_state.outcome is None and not delivery.is_settled:
            return
        assert transaction is not None
        del self._unsettled[delivery]  # first: it may come back at once
        if self._delivering.decided(delivery):
            transaction.spoil("it was decided about a message before all of it was sent")
            broken_off(self, delivery, taken.message_id)
            taken.release()
        else:
            self._retiring.retire(transaction, delivery, taken)
        if self.acquiring.is_of_another(delivery, transaction):
            transaction.owner.end(rolled_back("it decides about a delivery of another transaction"))

    def unsettle(self, delivery: Delivery, taken: Taken) -> None:
        """A transaction that had decided about a delivery is undone: the peer decides again."""
        self._unsettled[delivery] = taken

    def give_back_acquired(self, delivery: Delivery, on_done: OnComplete) -> None:
        """The transaction is undone that a delivery was acquired in."""
        taken = self._unsettled.pop(delivery, None)
        if taken is None:
            on_done(None)  # it was decided, and is given back by that
            return

        def given_back(error: StoreError | None) -> None:
            if error is None:
                self.confirm(delivery, _FAILED)
            on_done(error)

        self._delivering.decided(delivery)  # what was not sent whole is broken off
        taken.release()
        done = self.links.tracked(self.terminus, given_back)
        self.give_back(taken.message_id, failed=True, on_done=done)

    def give_back(
        self,
        message_id: int,
        *,
        failed: bool,
        delay_s: float = 0.0,
        on_done: OnComplete | None = None,
    ) -> None:
        """Make a message that this link holds available again."""
        self.broker.settlement.give_back(
            message_id,
            self.queue.name,
            self.holder,
            failed=failed,
            delay_s=delay_s,
            on_done=on_done,
        )

    def confirm(self, delivery: Delivery, state: object) -> None:
        """Settle a delivery with the outcome that the peer chose, now that it is durable."""
        if not self.is_gone:
            delivery.dispose(state)
            self._connection.has_output()
            if self.resuming is not None:
                self.resuming.end_if_worked_off()

    def caught_up(self) -> None:
        """See `Consumer.caught_up`: a drain is over, unless something is under way."""
        has_caught_up = self._settled_room <= 0 or self.queue.has_caught_up(self)
        is_over = self._delivering.count == 0 and has_caught_up
        if is_over and not self.is_gone and self.link.is_draining and self.link.credit > 0:
            self.link.drained()
            self.credit = 0
            self._connection.has_output()
