"""A link on which a client receives: credit, deliveries, and what the client decided."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
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

from broker_shim.embedded.delivering import Delivering
from broker_shim.embedded.outcomes import rejection
from broker_shim.embedded.queue import QueueDispatch
from broker_shim.embedded.taking import Taken
from broker_shim.errors import StoreError
from broker_shim.selectors import Selector

if TYPE_CHECKING:
    from broker_shim.embedded.connection import Connection

_log = logging.getLogger(__name__)

_BATCH = 100
"""So many at most are under way to be acquired: what a peer that does not read can hold, beside
what may be buffered, however much credit it gave."""


class OutgoingLink:
    """Our sending end: a consumer of one queue.

    Invariant: a message that was assigned is, until it is given back or removed, in exactly one
    of: on its way to the wire (`Delivering`), in `_unsettled`, under way to be settled; but for one
    that can never be read, which is left held and said so in the log.

    Attributes:
        holder: What the store knows it by.
        link: Proton's.
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
        self.broker = connection.broker
        self.link = link
        self.queue = queue
        self.holder = holder
        self.now_us = connection.now_us
        self._is_settled = is_settled
        self._is_temporary = is_temporary
        self._selector = selector
        self._unsettled: dict[Any, Taken] = {}
        self._delivering = Delivering(self, is_settled=is_settled)
        self.credit = 0
        self.is_gone = False

    def start(self) -> None:
        """Take a place at the queue."""
        self.queue.add(self, self._selector)
        self.on_flow()

    def gone(self) -> None:
        """The link, its session or its connection ended: what it held is given back."""
        self.is_gone = True
        self.credit = 0
        self.queue.discard(self)
        held, self._unsettled = self._unsettled, {}
        for taken in held.values():
            taken.release()
        self._delivering.gone()
        if self._is_temporary:
            self.broker.destroy_queue(self.queue.name)
            return
        for taken in held.values():
            self.give_back(taken.message_id, failed=True)

    @property
    def room_bytes(self) -> int:
        """How much more may wait to be written to the peer."""
        waiting_bytes = pn_session_outgoing_bytes(pn_link_session(self.link))
        return int(self.broker.settings.buffered_bytes - waiting_bytes)

    def wait_for_room(self) -> None:
        """Have `on_flow` called when there is room again."""
        self._connection.wait_for_room(self)

    def on_flow(self) -> None:
        """The peer gave credit, or asks to drain it, or there is room to write again."""
        if self.is_gone:
            return
        if self.room_bytes < 0:
            self.credit = 0
            self.wait_for_room()
            return
        self._delivering.write()
        self.credit = max(0, min(pn_link_credit(self.link), _BATCH) - self._delivering.count)
        self.broker.wanted(self.queue.name)
        if pn_link_get_drain(self.link):
            self.broker.dispatch()
            self.caught_up()

    def assign(self, message_id: int) -> None:
        """See `Consumer.assign`."""
        self.credit -= 1
        self._delivering.assign(message_id)

    def refresh(self) -> None:
        """Take more well before all that is under way has come; a drain may be over."""
        is_due = self._delivering.count <= _BATCH // 2 or pn_link_get_drain(self.link)
        if not self.is_gone and is_due:
            self.on_flow()

    def sent(self, delivery: Any, taken: Taken) -> None:
        """A delivery is on its way to the peer, or begins to be."""
        if self._is_settled:
            pn_delivery_settle(delivery)
            taken.release()
        else:
            self._unsettled[delivery] = taken
        self.has_output()

    def drop(self, delivery: Any) -> None:
        """A delivery was broken off: nothing is to be decided about it any more."""
        self._unsettled.pop(delivery, None)

    def has_output(self) -> None:
        """Something is to be written."""
        self._connection.has_output()

    def on_delivery(self, delivery: Any) -> None:
        """The peer decided, or settled without a decision, which releases."""
        taken = self._unsettled.get(delivery)
        if taken is None:
            return
        state = pn_delivery_remote_state(delivery)
        decide: Callable[[OutgoingLink, Any, int], None] | None = _DECISIONS.get(state)
        if decide is None and pn_delivery_settled(delivery):
            state, decide = PN_RELEASED, OutgoingLink._released
        if decide is not None:
            if self._delivering.decided(delivery):
                decide = OutgoingLink._broken_off
            decide(self, delivery, taken.message_id)
            # Last: were it not known, a decision that failed would hold the message for ever.
            del self._unsettled[delivery]
            taken.release()

    def _accepted(self, delivery: Any, message_id: int) -> None:
        def done(error: StoreError | None) -> None:
            self.broker.metrics.accepted += error is None
            self.broker.calls.messages.forget(message_id)
            self._settle(delivery, PN_ACCEPTED, error)

        self.broker.settlement.remove(message_id, self.queue.name, self.holder, done)

    def _rejected(self, delivery: Any, message_id: int) -> None:
        def done(error: StoreError | None) -> None:
            self.broker.metrics.rejected += error is None
            self._settle(delivery, PN_REJECTED, error)

        outcome = rejection(delivery)
        self.broker.settlement.remove(message_id, self.queue.name, self.holder, done, outcome)

    def _broken_off(self, _delivery: Any, message_id: int) -> None:
        """It decided before it had all of it: whatever it said, it cannot have used the message."""
        self.give_back(message_id, failed=True)

    def _released(self, delivery: Any, message_id: int) -> None:
        self.give_back(message_id, failed=False, delivery=delivery, state=PN_RELEASED)

    def _modified(self, delivery: Any, message_id: int) -> None:
        """Message annotations of the outcome are not kept: stored messages are immutable."""
        remote = pn_delivery_remote(delivery)
        if pn_disposition_is_undeliverable(remote):
            self.queue.refuse(message_id, self)
        failed = bool(pn_disposition_is_failed(remote))
        self.give_back(message_id, failed=failed, delivery=delivery, state=PN_MODIFIED)

    def give_back(
        self,
        message_id: int,
        *,
        failed: bool,
        delivery: Any = None,
        state: int = 0,
        delay_s: float = 0.0,
    ) -> None:
        """Make a message that this link holds available again; answer `delivery` with `state`."""
        done = None if delivery is None else partial(self._settle, delivery, state)
        queue, holder = self.queue.name, self.holder
        give_back = self.broker.settlement.give_back
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
        is_over = self._delivering.count == 0 and self.queue.has_caught_up(self)
        if is_over and pn_link_get_drain(self.link) and pn_link_credit(self.link) > 0:
            pn_link_drained(self.link)
            self.credit = 0
            self._connection.has_output()


_DECISIONS = {
    PN_ACCEPTED: OutgoingLink._accepted,  # noqa: SLF001  # a table of this class's own methods
    PN_REJECTED: OutgoingLink._rejected,  # noqa: SLF001
    PN_RELEASED: OutgoingLink._released,  # noqa: SLF001
    PN_MODIFIED: OutgoingLink._modified,  # noqa: SLF001
}
