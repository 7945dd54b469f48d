"""A link that looks at a queue and takes nothing (distribution mode copy)."""

from __future__ import annotations

import logging
from itertools import count
from typing import TYPE_CHECKING, Any

from cproton import (
    pn_delivery_remote_state,
    pn_delivery_settle,
    pn_delivery_settled,
    pn_link_credit,
    pn_link_drained,
    pn_link_get_drain,
    pn_link_session,
    pn_session_outgoing_bytes,
)

from broker_shim.embedded.amqp_message import outgoing
from broker_shim.embedded.engine import send
from broker_shim.embedded.queue import QueueDispatch
from broker_shim.errors import InvalidRequest, StoreError, Unavailable

if TYPE_CHECKING:
    from broker_shim.embedded.connection import Connection

_log = logging.getLogger(__name__)


class BrowsingLink:
    """Our sending end: it sends copies of what waits, each once, in the order of the queue."""

    def __init__(self, connection: Connection, link: Any, queue: QueueDispatch) -> None:
        self._connection = connection
        self._broker = connection.broker
        self._link = link
        self._queue = queue
        self._seen = 0
        self._tags = count(1)
        self._is_waiting = False
        self.is_gone = False

    def start(self) -> None:
        """Begin at the head of the queue."""
        self._queue.browsers.append(self)
        self.on_flow()

    def gone(self) -> None:
        """The link ended; it held nothing."""
        self.is_gone = True
        self._queue.browsers.remove(self)

    def on_flow(self) -> None:
        """The peer gave credit, or asks to drain it."""
        self.look()
        if not self.is_gone and pn_link_get_drain(self._link) and pn_link_credit(self._link) > 0:
            pn_link_drained(self._link)
            self._connection.has_output()

    def on_delivery(self, delivery: Any) -> None:
        """What the peer decides changes nothing."""
        if pn_delivery_remote_state(delivery) or pn_delivery_settled(delivery):
            pn_delivery_settle(delivery)

    def look(self) -> None:
        """See `Browser.look`."""
        credit = 0 if self.is_gone else pn_link_credit(self._link)
        session = pn_link_session(self._link)
        for waiting in self._queue.waiting_after(self._seen) if credit > 0 else ():
            if pn_session_outgoing_bytes(session) > self._broker.settings.buffered_bytes:
                self._connection.wait_for_room(self)
                break
            if credit == 0:
                break
            try:
                message = self._broker.calls.load(waiting.message_id, self._queue.name)
            except Unavailable:
                self._look_later()
                break
            except StoreError as error:
                self._seen = waiting.order
                if not isinstance(error, InvalidRequest):
                    text = "message %d of %r cannot be read: %s"
                    _log.error(text, waiting.message_id, self._queue.name, error)
                continue
            self._seen = waiting.order
            failures = self._queue.delivery_count(waiting.message_id)
            now_us = self._connection.now_us()
            encoded = outgoing(message.header, message.body, delivery_count=failures, now_us=now_us)
            send(self._link, next(self._tags), encoded)
            credit -= 1
            self._connection.has_output()

    def _look_later(self) -> None:
        """Storage does not answer: go on from here after a while."""

        def again() -> None:
            self._is_waiting = False
            if not self.is_gone:
                self.look()

        if not self._is_waiting:
            self._is_waiting = True
            self._broker.later(self._broker.settings.probe_interval_s, again)
