"""A link that looks at a queue and takes nothing (distribution mode copy)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import count

from broker_shim.broker.delivery.browse_cursor import BrowseCursor
from broker_shim.broker.delivery.copy_delivery import CopyDelivery
from broker_shim.broker.delivery.taken_run import TakenRun
from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.errors import StoreError
from broker_shim.listener_1_0.conditions import queue_deleted
from broker_shim.listener_1_0.connections.connection import Connection
from broker_shim.listener_1_0.connections.served_endpoint import ServedEndpoint
from broker_shim.listener_1_0.sending.wire import Wire
from broker_shim.protocol_1_0.links.runs import Run
from broker_shim.protocol_1_0.links.sender import SenderLink
from broker_shim.selectors import Selector

_log = logging.getLogger(__name__)

_UNDER_WAY = 100
"""Copies whose content is being brought, at most."""


class BrowsingLink(ServedEndpoint):
    """Our sending end: it sends copies of what waits, each once, in the order of the queue.

    A drain is answered when everything that waits was looked at and sent: to a JMS browser that is
    the end of the queue.
    """

    _link: SenderLink

    def __init__(
        self,
        connection: Connection,
        link: SenderLink,
        queue: QueueDispatch,
        selector: Selector | None = None,
    ) -> None:
        self._connection = connection
        self._broker = connection.broker
        super().__init__(link)
        self._queue = queue
        self._look = BrowseCursor(self._broker, queue, selector, self.look)
        self._holder = f"browser {connection.container}/{link.name}"
        self._copies = CopyDelivery(self._broker, queue, self._holder, self, is_whole=False)
        self._wire = Wire(link, self._broker.calls.contents)
        self._tags = count(1)

    def start(self) -> None:
        """Begin at the head of the queue."""
        self._queue.browsers.append(self)
        self.on_flow()

    def gone(self) -> None:
        """End the endpoint of a link that ended; it held nothing."""
        super().gone()
        self._look.let_go()
        self._queue.browsers.remove(self)
        self._copies.gone()
        if self._wire.large is not None:
            self._copies.large_ended(self._wire.large)
            self._wire.drop()

    def queue_deleted(self) -> None:
        """End the link, because its queue is deleted."""
        self._connection.lose(self._link, queue_deleted(self._queue.name))

    def on_flow(self) -> None:
        """Act on credit, a drain, or room to write again."""
        if not self.is_gone:
            self._write()
            self.look()

    def on_dispositions(self, runs: Sequence[Run]) -> None:
        """Send no more of a copy that the peer decided about; nothing else changes."""
        for run in runs:
            if self._wire.is_sending(run):
                taken = self._wire.large
                assert taken is not None
                self._wire.break_off()
                self._copies.large_ended(taken)
            elif run.remote_state is not None:
                run.dispose(None)

    def look(self) -> None:
        """Copy what waits after the cursor, as far as there is credit. See `Browser.look`."""
        ready, entries = self._look.ready, self._look.entries
        while not self.is_gone and self._copies.count < min(self._link.credit, _UNDER_WAY):
            if self._connection.room_bytes(self._link) < 0:  # what is to be written goes first
                self._connection.wait_for_room(self)
                return
            if not ready and not self._look.go_on():
                if self._look.is_at_end and not self._copies.count:
                    self._end_drain()
                return
            if ready:
                message_id = ready.popleft()
                self._copies.show(message_id, entries.pop(message_id, None))
        if self._link.credit <= 0 and not self._copies.count:  # it had all that it asked for
            self._end_drain()

    def took(self, run: TakenRun) -> None:
        """Do nothing: the credit of a link is spent by its transfers. See `CopyOutlet`."""

    def unsent(self, run: TakenRun) -> None:
        """Do nothing: the credit of an unsent copy was not spent. See `CopyOutlet`."""

    def copy(self, run: TakenRun, failures: int) -> bool:
        """Begin a delivery of the copy, if the client takes its size. See `CopyOutlet.copy`."""
        if not all(self._wire.takes(run)):
            return False
        tags = [next(self._tags).to_bytes(8, "big")]
        now_us = self._connection.now_us()
        self._wire.send(tags, run, (failures,), now_us=now_us, are_copies=True, waits=True)
        if run.is_large:
            self._broker.later(0.0, self.on_flow)
        return True

    def went(self) -> None:
        """Have the connection write what was sent. See `CopyOutlet`."""
        self._connection.has_output()

    def _write(self) -> None:
        """Write more of the large copy, if one is being sent."""
        taken = self._wire.large
        if taken is None or self.is_gone:
            return
        try:
            is_written = self._wire.go_on(self._connection.room_bytes(self._link))
        except StoreError as error:
            text = "message %d of %r cannot be read: %s"
            _log.error(text, taken.message_ids[0], self._queue.name, error)
            self._wire.break_off()
            is_written = True
        if is_written:
            self._copies.large_ended(taken)
        else:
            self._connection.wait_for_room(self)
        self._connection.has_output()

    def _end_drain(self) -> None:
        if not self.is_gone and self._link.is_draining:
            self._link.drained()
            self._connection.has_output()
