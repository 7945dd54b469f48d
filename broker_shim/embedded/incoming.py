"""A link on which a client sends: bytes → message → store → outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cproton import (
    PN_ACCEPTED,
    PN_REJECTED,
    isnull,
    pn_condition_set_description,
    pn_condition_set_name,
    pn_delivery_aborted,
    pn_delivery_local,
    pn_delivery_partial,
    pn_delivery_pending,
    pn_delivery_settle,
    pn_delivery_settled,
    pn_delivery_update,
    pn_disposition_condition,
    pn_link_advance,
    pn_link_credit,
    pn_link_current,
    pn_link_flow,
    pn_link_recv,
)

from broker_shim.embedded.address import Node, described
from broker_shim.embedded.amqp_types import DecodeError
from broker_shim.embedded.conditions import (
    DECODE_ERROR,
    MESSAGE_SIZE_EXCEEDED,
    NOT_FOUND,
    Refusal,
    refusal_of,
)
from broker_shim.embedded.credit import CreditWindow
from broker_shim.embedded.receiving import Receiving
from broker_shim.errors import StoreError, Unavailable

if TYPE_CHECKING:
    from broker_shim.embedded.connection import Connection


class IncomingLink:
    """Our receiving end.

    A delivery is settled when the store's completion has fired and never before; one that came
    settled is not answered at all. A delivery's pointer is proton's and lives until it is settled
    or the link is freed, which is why nothing is touched once `is_gone`.
    """

    def __init__(self, connection: Connection, link: Any, node: Node) -> None:
        self._connection = connection
        self._broker = connection.broker
        self._link = link
        self._node = node
        self._receiving: Receiving | None = None
        self._window = CreditWindow(self._broker.settings.credit)
        self._is_refused = False
        self.is_gone = False

    def start(self) -> None:
        """Give the first credit."""
        self._give_credit()

    def gone(self) -> None:
        """The link, its session or its connection ended."""
        self.is_gone = True
        self._receiving = None

    def on_flow(self) -> None:
        """The peer told how it stands: nothing to do here."""

    def on_delivery(self, delivery: Any) -> None:
        """Bytes of a delivery came, or its end, or its state changed."""
        if delivery != pn_link_current(self._link):
            return  # a change of state of one that we have read and will answer
        if pn_delivery_aborted(delivery):
            self._receiving = None
            pn_delivery_settle(delivery)
            self._give_credit()
            return
        receiving = self._receiving
        if receiving is None:
            receiving = self._receiving = self._begin()
        if receiving.is_full and not self._is_refused:
            return  # the session's window holds the sender back until `_read_on`
        pending = pn_delivery_pending(delivery)
        if pending:
            # A copy of our own: the bytes that proton shows are gone after this event.
            self._take_piece(receiving, bytes(pn_link_recv(self._link, pending)[1]))
        if pn_delivery_partial(delivery):
            return
        self._receiving = None
        pn_link_advance(self._link)
        if not self._is_refused and not self._broker.is_stopping:
            self._window.used()
            self._broker.metrics.received += 1
            self._publish(delivery, receiving)

    def _begin(self) -> Receiving:
        return Receiving(self._broker, self._node, self._connection.now_us)

    def _take_piece(self, receiving: Receiving, piece: bytes) -> None:
        """Keep it, unless the message is too large: proton leaves counting to us."""
        if self._is_refused:
            return
        limit = self._broker.settings.max_message_bytes
        if receiving.byte_count + len(piece) > limit:
            text = f"message larger than {limit} bytes"
            self._end_link(Refusal(MESSAGE_SIZE_EXCEEDED, text))
            return
        try:
            receiving.add(piece, self._read_on)
        except DecodeError as reason:
            self._end_link(Refusal(DECODE_ERROR, str(reason)))
        except StoreError as error:
            self._end_link(refusal_of(error))

    def _end_link(self, refusal: Refusal) -> None:
        """A message that cannot be taken is not read to its end to tell so."""
        self._is_refused = True
        self._receiving = None
        self._connection.detach(self._link, refusal)

    def _read_on(self) -> None:
        """The store has caught up with a large message: read what the peer has sent meanwhile."""
        if self.is_gone:
            return
        current = pn_link_current(self._link)
        if not isnull(current):
            self.on_delivery(current)
            self._connection.has_output()

    def _publish(self, delivery: Any, receiving: Receiving) -> None:
        try:
            header, enqueue = receiving.finish()
        except DecodeError as reason:
            self._refuse(delivery, Refusal(DECODE_ERROR, str(reason)))
            return
        queues = self._broker.queues_for(self._node, header)
        if not queues:
            self._broker.metrics.unroutable += 1
            node = self._broker.destinations.said_by(self._node, header)
            self._refuse(
                delivery, Refusal(NOT_FOUND, f"no queue for this message: {described(node)}")
            )
            return

        def done(error: StoreError | None) -> None:
            self._stored(delivery, error)

        enqueue(queues, done)

    def _stored(self, delivery: Any, error: StoreError | None) -> None:
        if error is not None:
            if isinstance(error, Unavailable):
                if not self._window.is_held_back:
                    delay_s = self._broker.settings.probe_interval_s
                    self._broker.later(delay_s, self._probe)
                self._window.failed()
                self._window.used()  # given back by `_refuse`
            self._refuse(delivery, refusal_of(error))
            return
        self._window.done()
        if self.is_gone:
            return
        if not pn_delivery_settled(delivery):
            pn_delivery_update(delivery, PN_ACCEPTED)
        pn_delivery_settle(delivery)
        self._give_credit()
        self._connection.has_output()

    def _refuse(self, delivery: Any, refusal: Refusal) -> None:
        self._window.refused()
        self._broker.metrics.refused += 1
        if self.is_gone:
            return
        if not pn_delivery_settled(delivery):
            condition = pn_disposition_condition(pn_delivery_local(delivery))
            pn_condition_set_name(condition, refusal.condition)
            pn_condition_set_description(condition, refusal.description)
            pn_delivery_update(delivery, PN_REJECTED)
        pn_delivery_settle(delivery)
        self._give_credit()
        self._connection.has_output()

    def _probe(self) -> None:
        self._window.probe()
        if not self.is_gone:
            self._give_credit()
            self._connection.has_output()

    def _give_credit(self) -> None:
        more = self._window.to_give(pn_link_credit(self._link))
        if more and not self._is_refused and not self._broker.is_stopping:
            pn_link_flow(self._link, more)
