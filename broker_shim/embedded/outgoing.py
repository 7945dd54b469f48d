"""A link on which a client receives: acquire, deliver, then what the client decided.

Decision: a delivery is sent when the acquire has completed, not before. At-least-once would bear
sending early (a crash only delivers again), but the completion is also where the store refuses:
a message that another member acquired first must not be seen here. The price is one group commit
of latency for a delivery, not throughput, as all credit is acquired at once.
"""

from __future__ import annotations

import logging
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from cproton import (
    PN_ACCEPTED,
    PN_MODIFIED,
    PN_REJECTED,
    PN_RELEASED,
    pn_delivery_remote,
    pn_delivery_remote_state,
    pn_delivery_settle,
    pn_delivery_settled,
    pn_delivery_update,
    pn_disposition_is_failed,
    pn_disposition_is_undeliverable,
    pn_link_credit,
    pn_link_drained,
    pn_link_get_drain,
    pn_link_session,
    pn_session_outgoing_bytes,
)

from broker_shim.embedded.amqp_message import outgoing
from broker_shim.embedded.engine import send
from broker_shim.embedded.outcomes import rejection
from broker_shim.embedded.queue import QueueDispatch
from broker_shim.errors import CorruptData, InvalidRequest, StoreError, Unavailable
from broker_shim.selectors import Selector
from broker_shim.store.interface import Message

if TYPE_CHECKING:
    from broker_shim.embedded.connection import Connection

_log = logging.getLogger(__name__)

_BATCH = 100
"""So many at most are under way to be acquired: what a peer that does not read can hold, beside
what may be buffered, however much credit it gave."""


class OutgoingLink:
    """Our sending end: a consumer of one queue.

    Invariant: a message that was assigned is, until it is given back or removed, in exactly one
    of: under way to be acquired, in `_unsettled`, under way to be settled; but for one that can
    never be read, which is left held and said so in the log.
    """

    def __init__(
        self,
        connection: Connection,
        link: Any,
        queue: QueueDispatch,
        holder: str,
        *,
        is_settled: bool,
        is_temporary: bool,
        selector: Selector | None = None,
    ) -> None:
        self._connection = connection
        self._broker = connection.broker
        self._link = link
        self._queue = queue
        self._holder = holder
        self._is_settled = is_settled
        self._is_temporary = is_temporary
        self._selector = selector
        self._tags = count(1)
        self._acquiring = 0
        self._unsettled: dict[Any, int] = {}
        self.credit = 0
        self.is_gone = False

    def start(self) -> None:
        """Take a place at the queue."""
        self._queue.add(self, self._selector)
        self.on_flow()

    def gone(self) -> None:
        """The link, its session or its connection ended: what it held is given back."""
        self.is_gone = True
        self.credit = 0
        self._queue.discard(self)
        held, self._unsettled = self._unsettled, {}
        if self._is_temporary:
            self._broker.destroy_queue(self._queue.name)
            return
        for message_id in held.values():
            self._give_back(message_id, failed=True)

    def on_flow(self) -> None:
        """The peer gave credit, or asks to drain it, or there is room to write again."""
        if self.is_gone:
            return
        waiting_bytes = pn_session_outgoing_bytes(pn_link_session(self._link))
        if waiting_bytes > self._broker.settings.buffered_bytes:
            self.credit = 0
            self._connection.wait_for_room(self)
            return
        self.credit = max(0, min(pn_link_credit(self._link), _BATCH) - self._acquiring)
        self._broker.wanted(self._queue.name)
        if pn_link_get_drain(self._link):
            self._broker.dispatch()
            self.caught_up()

    def assign(self, message_id: int) -> None:
        """See `Consumer.assign`."""
        self.credit -= 1
        self._acquiring += 1
        if self._is_settled:
            self._take(message_id)
        else:
            done = partial(self._acquired, message_id)
            self._broker.calls.acquire(message_id, self._queue.name, self._holder, done)

    def _take(self, message_id: int) -> None:
        """At most once: it leaves the queue before it is sent, so it has to be read before that."""
        try:
            message = self._broker.calls.load(message_id, self._queue.name)
        except StoreError as error:
            self._broker.later(0.0, partial(self._acquired, message_id, error))
            return
        if self._is_expired(message):
            self._broker.later(0.0, partial(self._not_taken, message_id))
            return
        taken = partial(self._acquired, message_id, taken=message)
        self._broker.calls.dequeue(message_id, self._queue.name, self._holder, taken)

    def _not_taken(self, message_id: int) -> None:
        """It expired before it left the queue: from there it goes as the queue says."""
        self._acquiring -= 1
        self._broker.metrics.expired += 1
        self._queue.released(message_id, delivery_failed=False)
        self._broker.bulk.end_if_due(self._queue, message_id)
        self._refresh()

    def _is_expired(self, message: Message) -> bool:
        expires_at = message.header.expires_at
        return expires_at is not None and expires_at <= self._connection.now_us()

    def on_delivery(self, delivery: Any) -> None:
        """The peer decided, or settled without a decision, which releases."""
        message_id = self._unsettled.get(delivery)
        if message_id is None:
            return
        state = pn_delivery_remote_state(delivery)
        decide = _DECISIONS.get(state)
        if decide is None and pn_delivery_settled(delivery):
            state, decide = PN_RELEASED, OutgoingLink._released
        if decide is not None:
            decide(self, delivery, message_id)
            # Last: were it not known, a decision that failed would hold the message for ever.
            del self._unsettled[delivery]

    def _acquired(
        self, message_id: int, error: StoreError | None, taken: Message | None = None
    ) -> None:
        self._acquiring -= 1
        if error is not None:
            self._not_acquired(message_id, error)
        elif self.is_gone or self._broker.is_stopping:
            if taken is None:
                self._give_back(message_id, failed=False)
            else:
                self._queue.removed(message_id)
        else:
            self._deliver_or_not(message_id, taken)
        self._refresh()

    def _refresh(self) -> None:
        """Take more well before all that is under way has come; a drain may be over."""
        if not self.is_gone and (self._acquiring <= _BATCH // 2 or pn_link_get_drain(self._link)):
            self.on_flow()

    def _not_acquired(self, message_id: int, error: StoreError) -> None:
        if isinstance(error, Unavailable):

            def again() -> None:
                self._queue.released(message_id, delivery_failed=False)
                self._broker.wanted(self._queue.name)

            self._broker.later(self._broker.settings.probe_interval_s, again)
            return
        if isinstance(error, CorruptData):
            self._left_held(message_id, error)
            return
        _log.warning("message %d of %r is not ours: %s", message_id, self._queue.name, error)
        self._queue.removed(message_id)

    def _deliver_or_not(self, message_id: int, taken: Message | None) -> None:
        """Deliver what is ours; or later, while storage does not answer; or leave it held."""
        try:
            self._deliver(taken or self._broker.calls.load(message_id, self._queue.name))
        except Unavailable as error:
            _log.warning("message %d of %r: %s", message_id, self._queue.name, error)
            later_s = self._broker.settings.probe_interval_s
            self._give_back(message_id, failed=False, delay_s=later_s)
        except InvalidRequest as error:
            self._not_acquired(message_id, error)
        except Exception as error:  # noqa: BLE001  # one message must not stop the others
            self._left_held(message_id, error)

    def _left_held(self, message_id: int, error: Exception) -> None:
        name = self._queue.name
        _log.error("message %d of %r cannot be read, it is left held: %s", message_id, name, error)

    def _deliver(self, message: Message) -> None:
        header, message_id = message.header, message.message_id
        if not self._is_settled and self._is_expired(message):
            self._broker.metrics.expired += 1
            self._give_back(message_id, failed=False)  # from the queue it goes as the queue says
            return
        now_us = self._connection.now_us()
        count = self._queue.delivery_count(message_id)
        encoded = outgoing(header, message.body, delivery_count=count, now_us=now_us)
        delivery = send(self._link, next(self._tags), encoded)
        self._broker.metrics.delivered += 1
        if self._is_settled:
            pn_delivery_settle(delivery)
            self._queue.removed(message_id)
        else:
            self._unsettled[delivery] = message_id
        self._connection.has_output()

    def _accepted(self, delivery: Any, message_id: int) -> None:
        def done(error: StoreError | None) -> None:
            self._broker.metrics.accepted += error is None
            self._settle(delivery, PN_ACCEPTED, error)

        self._broker.settlement.remove(message_id, self._queue.name, self._holder, done)

    def _rejected(self, delivery: Any, message_id: int) -> None:
        def done(error: StoreError | None) -> None:
            self._broker.metrics.rejected += error is None
            self._settle(delivery, PN_REJECTED, error)

        outcome = rejection(delivery)
        self._broker.settlement.remove(message_id, self._queue.name, self._holder, done, outcome)

    def _released(self, delivery: Any, message_id: int) -> None:
        self._give_back(message_id, failed=False, delivery=delivery, state=PN_RELEASED)

    def _modified(self, delivery: Any, message_id: int) -> None:
        """Message annotations of the outcome are not kept: stored messages are immutable."""
        remote = pn_delivery_remote(delivery)
        if pn_disposition_is_undeliverable(remote):
            self._queue.refuse(message_id, self)
        failed = bool(pn_disposition_is_failed(remote))
        self._give_back(message_id, failed=failed, delivery=delivery, state=PN_MODIFIED)

    def _give_back(
        self,
        message_id: int,
        *,
        failed: bool,
        delivery: Any = None,
        state: int = 0,
        delay_s: float = 0.0,
    ) -> None:
        done = None if delivery is None else partial(self._settle, delivery, state)
        queue, holder = self._queue.name, self._holder
        give_back = self._broker.settlement.give_back
        give_back(message_id, queue, holder, failed=failed, on_done=done, delay_s=delay_s)

    def _settle(self, delivery: Any, state: int, error: StoreError | None) -> None:
        """Confirm to the peer, with its own outcome; after an error nothing is confirmed."""
        if self.is_gone or error is not None:
            return
        pn_delivery_update(delivery, state)
        pn_delivery_settle(delivery)
        self._connection.has_output()

    def caught_up(self) -> None:
        """See `Consumer.caught_up`: a drain is over, unless something is under way."""
        is_over = self._acquiring == 0 and self._queue.has_caught_up(self)
        if is_over and pn_link_get_drain(self._link) and pn_link_credit(self._link) > 0:
            pn_link_drained(self._link)
            self.credit = 0
            self._connection.has_output()


_DECISIONS = {
    PN_ACCEPTED: OutgoingLink._accepted,  # noqa: SLF001  # a table of this class's own methods
    PN_REJECTED: OutgoingLink._rejected,  # noqa: SLF001
    PN_RELEASED: OutgoingLink._released,  # noqa: SLF001
    PN_MODIFIED: OutgoingLink._modified,  # noqa: SLF001
}
