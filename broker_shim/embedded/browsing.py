"""A link that looks at a queue and takes nothing (distribution mode copy)."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from functools import partial
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
from broker_shim.embedded.backlog import Cursor
from broker_shim.embedded.engine import send
from broker_shim.embedded.header_reader import Found
from broker_shim.embedded.queue import QueueDispatch
from broker_shim.embedded.scanning import BatchSize, headers_of
from broker_shim.errors import InvalidRequest, StoreError, Unavailable
from broker_shim.selectors import Selector

if TYPE_CHECKING:
    from broker_shim.embedded.connection import Connection

_log = logging.getLogger(__name__)

_SENT_IN_A_TURN = 50
"""Copies sent before the loop's other work has its turn: each is read from the store."""


class BrowsingLink:
    """Our sending end: it sends copies of what waits, each once, in the order of the queue.

    It looks with a cursor of its own, so a look costs what is new, however deep the queue is. What
    comes with a higher priority while it looks is shown next. A drain is answered when everything
    that waits was looked at and sent: to a JMS browser that is the end of the queue.
    """

    def __init__(
        self,
        connection: Connection,
        link: Any,
        queue: QueueDispatch,
        selector: Selector | None = None,
    ) -> None:
        self._connection = connection
        self._broker = connection.broker
        self._link = link
        self._queue = queue
        self._selector = selector
        self._cursor = Cursor()
        self._to_send: deque[int] = deque()
        self._size = BatchSize()
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
        """The peer gave credit, or asks to drain it, or there is room to write again."""
        self.look()

    def on_delivery(self, delivery: Any) -> None:
        """What the peer decides changes nothing."""
        if pn_delivery_remote_state(delivery) or pn_delivery_settled(delivery):
            pn_delivery_settle(delivery)

    def look(self) -> None:
        """See `Browser.look`."""
        sent_count = 0
        while not (self.is_gone or self._is_waiting) and pn_link_credit(self._link) > 0:
            if self._is_full():
                return
            if not self._to_send and not self._find():
                return
            if not self._to_send:
                continue
            if sent_count == _SENT_IN_A_TURN:
                self._wait(0.0, self.look)
                return
            sent_count += self._send(self._to_send.popleft())

    def _is_full(self) -> bool:
        """True if what is to be written has to be written first."""
        waiting_bytes = pn_session_outgoing_bytes(pn_link_session(self._link))
        if waiting_bytes <= self._broker.settings.buffered_bytes:
            return False
        self._connection.wait_for_room(self)
        return True

    def _find(self) -> bool:
        """Look at one batch; False if that was all for now."""
        if self._queue.has_browsed(self._cursor):
            self._end_drain()
            return False
        batch = self._queue.browse(self._cursor, self._size.count)
        message_ids = [message_id for _place, message_id in batch]
        if self._selector is None:
            self._to_send += message_ids
        elif message_ids:
            self._ask(message_ids)
        return True

    def _ask(self, message_ids: list[int]) -> None:
        """Have these judged; until then nothing is sent."""
        self._is_waiting = True

        def done(error: StoreError | None, found: Found) -> None:
            self._is_waiting = False
            if self.is_gone:
                return
            if error is None:
                self._judge(message_ids, found)
                self.look()
            else:
                _log.warning("%r is not looked at now: %s", self._queue.name, error)
                again = partial(self._ask, message_ids)
                self._wait(self._broker.settings.probe_interval_s, again)

        self._broker.calls.read_headers(message_ids, done)

    def _judge(self, message_ids: list[int], found: Found) -> None:
        assert self._selector is not None
        began_s = time.monotonic()
        for message_id, header in headers_of(message_ids, found).items():
            if header is not None and self._selector.fits(header.get):
                self._to_send.append(message_id)
        self._size.took(time.monotonic() - began_s, len(message_ids))

    def _send(self, message_id: int) -> bool:
        """Send a copy; False if there is none to send, or not now."""
        try:
            message = self._broker.calls.load(message_id, self._queue.name)
        except Unavailable:
            self._to_send.appendleft(message_id)
            self._wait(self._broker.settings.probe_interval_s, self.look)
            return False
        except StoreError as error:
            if not isinstance(error, InvalidRequest):
                text = "message %d of %r cannot be read: %s"
                _log.error(text, message_id, self._queue.name, error)
            return False
        failures = self._queue.delivery_count(message_id)
        now_us = self._connection.now_us()
        encoded = outgoing(message.header, message.body, delivery_count=failures, now_us=now_us)
        send(self._link, next(self._tags), encoded)
        self._connection.has_output()
        return True

    def _end_drain(self) -> None:
        if pn_link_get_drain(self._link) and pn_link_credit(self._link) > 0:
            pn_link_drained(self._link)
            self._connection.has_output()

    def _wait(self, delay_s: float, call: Callable[[], None]) -> None:
        """Go on after the loop has been round, or after a while."""
        self._is_waiting = True

        def again() -> None:
            self._is_waiting = False
            if not self.is_gone:
                call()

        self._broker.later(delay_s, again)
