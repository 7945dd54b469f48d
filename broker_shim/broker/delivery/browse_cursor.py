"""The look of one browser at a queue, whatever protocol it speaks: what it is shown next.

A look costs what is new, however deep the queue is. What comes with a higher priority meanwhile is
shown next. While the headers of a batch cannot be read nothing after it is shown: a browser sees
the queue in its order, and all of it.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from broker_shim.broker.flow.header_scan import BatchSize, headers_of
from broker_shim.broker.flow.served_queues import ServedQueues
from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.broker.storage.header_reader import ReadHeaders
from broker_shim.errors import StoreError
from broker_shim.selectors import Selector
from broker_shim.store.interface import Entry

_log = logging.getLogger(__name__)


class BrowseCursor:
    """One browser's way through a queue, in its order, past what its selector does not want.

    Attributes:
        found: What is to be shown next.
        entries: What the service told of those, at a member.
        is_reading: It waits for what it asked for; then `on_found` is called.
    """

    def __init__(
        self,
        served: ServedQueues,
        queue: QueueDispatch,
        selector: Selector | None,
        on_found: Callable[[], None],
    ) -> None:
        self._served, self._queue, self._selector = served, queue, selector
        self._on_found, self._is_let_go = on_found, False
        self._cursor, self._size = queue.cursor(), BatchSize()
        self.ready: deque[int] = deque()
        self.entries: dict[int, Entry] = {}
        self.is_reading = False

    @property
    def is_at_end(self) -> bool:
        """True if nothing waits that it has not shown."""
        is_through = not self.ready and not self.is_reading
        return is_through and self._queue.has_browsed(self._cursor)

    def let_go(self) -> None:
        """The browser is gone: what is read from now on is shown to nobody."""
        self._on_found, self._is_let_go = _nothing, True

    def go_on(self) -> bool:
        """Look at the next ones; False if there is nothing new, or nothing new yet."""
        if self.is_reading:
            return False
        if not self._queue.can_look(self._cursor, self._is_known):
            self.is_reading = True
            return False
        if self._queue.has_browsed(self._cursor):
            return False
        batch = [number for _place, number in self._queue.browse(self._cursor, self._size.count)]
        if self._selector is None or not batch:
            self._add(batch)
            return True
        self._read(batch, self._selector)
        return False

    def _read(self, batch: Sequence[int], selector: Selector) -> None:
        """Have the headers of these read, and show those that the selector wants."""
        self.is_reading = True

        def read(error: StoreError | None, headers: ReadHeaders) -> None:
            if self._is_let_go:
                return
            if error is not None:
                _log.warning("%r is not looked at now: %s", self._queue.name, error)
                self._served.again(partial(self._read, batch, selector))
                return
            self.is_reading = False
            self._judge(batch, headers, selector)
            self._on_found()

        if not self._is_let_go:
            self._served.calls.read_headers(batch, read)

    def _judge(self, batch: Sequence[int], read: ReadHeaders, selector: Selector) -> None:
        began_s = time.monotonic()
        headers = headers_of(self._served.headers, batch, read).items()
        wanted = [i for i, header in headers if header is not None and selector.fits(header.get)]
        self._size.took(time.monotonic() - began_s, len(batch))
        self._add(wanted)

    def _add(self, message_ids: Sequence[int]) -> None:
        self.ready += message_ids
        for message_id in message_ids:
            entry = self._queue.entry_of_browsed(message_id)
            if entry is not None:
                self.entries[message_id] = entry

    def _is_known(self) -> None:
        self.is_reading = False
        self._on_found()


def _nothing() -> None:
    """Ignore the call, as no browser looks any more."""
