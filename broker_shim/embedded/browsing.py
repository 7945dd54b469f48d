"""A link that looks at a queue and takes nothing (distribution mode copy)."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from cproton import (
    pn_delivery_remote_state,
    pn_delivery_settle,
    pn_delivery_settled,
    pn_link_credit,
    pn_link_drained,
    pn_link_get_drain,
    pn_link_name,
    pn_link_session,
    pn_session_outgoing_bytes,
)

from broker_shim.embedded.backlog import Cursor
from broker_shim.embedded.header_reader import Found
from broker_shim.embedded.queue import QueueDispatch
from broker_shim.embedded.scanning import BatchSize, headers_of
from broker_shim.embedded.taking import InOrder, Taken
from broker_shim.embedded.wire import Wire
from broker_shim.errors import InvalidRequest, StoreError, Unavailable
from broker_shim.selectors import Selector
from broker_shim.store.interface import MessageHeader

if TYPE_CHECKING:
    from broker_shim.embedded.connection import Connection

_log = logging.getLogger(__name__)

_UNDER_WAY = 100
"""Copies whose content is being brought, at most."""


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
        self._holder = f"browser {connection.container}/{pn_link_name(link)}"
        self._line = InOrder(self._broker, self._is_here)
        self._wire = Wire(link)
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
        if self._wire.large is not None:
            self._wire.large.release()
            self._wire.drop()
        for taken in self._line.clear():
            taken.release()

    def on_flow(self) -> None:
        """The peer gave credit, or asks to drain it, or there is room to write again."""
        if not self.is_gone:
            self._write()
            self.look()

    def on_delivery(self, delivery: Any) -> None:
        """What the peer decides changes nothing; of a copy that is being sent it wants no more."""
        if self._wire.is_sending(delivery):
            taken = self._wire.large
            assert taken is not None
            self._wire.break_off()
            taken.release()
            self._line.go()
        elif pn_delivery_remote_state(delivery) or pn_delivery_settled(delivery):
            pn_delivery_settle(delivery)

    def look(self) -> None:
        """See `Browser.look`."""
        while not (self.is_gone or self._is_waiting) and self._may_take():
            if self._is_full():
                return
            if not self._to_send and not self._find():
                return
            if self._to_send:
                self._take(self._to_send.popleft())

    def _may_take(self) -> bool:
        """True if there is credit for one more, and not too much under way."""
        under_way = len(self._line) + (self._wire.large is not None)
        return under_way < min(int(pn_link_credit(self._link)), _UNDER_WAY)

    def _is_full(self) -> bool:
        """True if what is to be written has to be written first."""
        if self._room_bytes() >= 0:
            return False
        self._connection.wait_for_room(self)
        return True

    def _find(self) -> bool:
        """Look at one batch; False if that was all for now."""
        if self._queue.has_browsed(self._cursor):
            if not self._line and self._wire.large is None:
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

    def _take(self, message_id: int) -> None:
        """Have its content brought; it is sent in its turn."""
        entry = self._broker.calls.entry(self._queue.name, message_id)
        if entry is not None:
            message = self._broker.calls.messages.get(message_id)
            self._line.add(Taken(message, self._holder, entry, whole=False))

    def _is_here(
        self, taken: Taken, header: MessageHeader | None, error: StoreError | None
    ) -> None:
        """Send a copy, or not: now, or never."""
        if self.is_gone:
            taken.release()
        elif header is not None:
            self._copy(taken, header)
        elif isinstance(error, Unavailable):
            self._line.hold()
            self._wait(self._broker.settings.probe_interval_s, partial(self._again, taken))
        else:
            if not isinstance(error, InvalidRequest):
                text = "message %d of %r cannot be read: %s"
                _log.error(text, taken.message_id, self._queue.name, error)
            taken.release()
        if not self.is_gone and not len(self._line):
            self._broker.wanted(self._queue.name)  # on with the look, when the loop comes round

    def _again(self, taken: Taken) -> None:
        self._line.again(taken)
        self._line.go()
        self.look()

    def _copy(self, taken: Taken, header: MessageHeader) -> None:
        failures = self._queue.delivery_count(taken.message_id)
        self._wire.begin(taken, header, failures=failures, now_us=self._connection.now_us())
        if taken.is_large:
            self._line.hold()
            self._broker.later(0.0, self.on_flow)
        else:
            taken.release()
        self._connection.has_output()

    def _write(self) -> None:
        """Go on with the large one, if there is one."""
        taken = self._wire.large
        if taken is None:
            return
        try:
            is_written = self._wire.go_on(self._room_bytes())
        except StoreError as error:
            text = "message %d of %r cannot be read: %s"
            _log.error(text, taken.message_id, self._queue.name, error)
            self._wire.break_off()
            is_written = True
        if is_written:
            taken.release()
            self._line.go()
        else:
            self._connection.wait_for_room(self)
        self._connection.has_output()

    def _room_bytes(self) -> int:
        waiting_bytes = pn_session_outgoing_bytes(pn_link_session(self._link))
        return int(self._broker.settings.buffered_bytes - waiting_bytes)

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
