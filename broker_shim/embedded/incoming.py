"""A link on which a client sends: bytes → message → store → outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cproton import (
    PN_ACCEPTED,
    PN_REJECTED,
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
from broker_shim.embedded.amqp_message import parse
from broker_shim.embedded.amqp_types import DecodeError
from broker_shim.embedded.conditions import (
    DECODE_ERROR,
    MESSAGE_SIZE_EXCEEDED,
    NOT_FOUND,
    Refusal,
    refusal_of,
)
from broker_shim.embedded.credit import CreditWindow
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
        self._pieces: list[bytes] = []
        self._received_bytes = 0
        self._window = CreditWindow(self._broker.settings.credit)
        self._is_refused = False
        self.is_gone = False

    def start(self) -> None:
        """Give the first credit."""
        self._give_credit()

    def gone(self) -> None:
        """The link, its session or its connection ended."""
        self.is_gone = True
        self._pieces.clear()

    def on_flow(self) -> None:
        """The peer told how it stands: nothing to do here."""

    def on_delivery(self, delivery: Any) -> None:
        """Bytes of a delivery came, or its end, or its state changed."""
        if delivery != pn_link_current(self._link):
            return  # a change of state of one that we have read and will answer
        if pn_delivery_aborted(delivery):
            self._pieces.clear()
            self._received_bytes = 0
            pn_delivery_settle(delivery)
            self._give_credit()
            return
        pending = pn_delivery_pending(delivery)
        if pending:
            # A copy of our own: the bytes that proton shows are gone after this event.
            self._take_piece(bytes(pn_link_recv(self._link, pending)[1]))
        if pn_delivery_partial(delivery):
            return
        encoded = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._received_bytes = 0
        pn_link_advance(self._link)
        if not self._is_refused and not self._broker.is_stopping:
            self._window.used()
            self._broker.metrics.received += 1
            self._publish(delivery, encoded)

    def _take_piece(self, piece: bytes) -> None:
        """Keep it, unless the message is too large: proton leaves counting to us."""
        self._received_bytes += len(piece)
        limit = self._broker.settings.max_message_bytes
        if self._is_refused:
            return
        self._pieces.append(piece)
        if self._received_bytes > limit:
            self._is_refused = True
            self._pieces.clear()
            text = f"message larger than {limit} bytes"
            self._connection.detach(self._link, Refusal(MESSAGE_SIZE_EXCEEDED, text))

    def _publish(self, delivery: Any, encoded: bytes) -> None:
        try:
            header, body = parse(encoded, now_us=self._connection.now_us())
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

        self._broker.publish(header, body, queues, done)

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
