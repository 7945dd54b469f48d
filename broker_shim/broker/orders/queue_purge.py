"""A purge of a whole queue: a part of it a turn of the loop, and several parts on their way.

A turn takes `RUN_IDS` messages at most, and of what is in no run (priorities alternate, or others
have every second message) only `TURN_IDS`. So it does where the store decides each message by
itself: messages that are not durable, or a store that makes single calls of a batch. Nobody waits
for the disk between two turns, so a purge holds up its own answers at most; what fails ends it when
all that was asked for is answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from broker_shim.broker.flow.served_queues import ServedQueues
from broker_shim.broker.orders.bulk_operations import BulkOperations
from broker_shim.errors import StoreError, Unavailable
from sparkstore.core.entries import Entries
from sparkstore.operations.bulk import TURN_IDS, Answer, Request

RUN_IDS = 4096
"""Messages in runs that are taken in one turn."""
_MOST_WAITING = 16
"""Requests on their way at the same time."""


class QueuePurge:
    """Takes what is on a queue now off it, but for what is acquired. On the loop's thread only."""

    def __init__(
        self,
        served: ServedQueues,
        bulk: BulkOperations,
        request: Request,
        show: Callable[[Answer], bool],
        on_purged: Callable[[StoreError | None, Answer], None],
    ) -> None:
        """Begin with nothing taken; see `Administration.purge` for `show` and `on_purged`."""
        self._served, self._bulk, self._request = served, bulk, request
        self._show, self._on_purged = show, on_purged
        self._total, self._waiting, self._is_over = Answer(), 0, False
        self._error: StoreError | None = None
        self._is_answered = self._is_scheduled = False
        self._size = 0  # of the last part

    def start(self, last_position: int | None) -> None:
        """Take what came up to a position and is durable; None: all that is there now."""
        self._parts = self._turns(last_position)
        self._is_over = not self._show(self._total)
        self._go_on()

    def _turns(self, last_position: int | None) -> Iterator[Sequence[int]]:
        name, calls = self._request.queue, self._served.calls
        entry, queue = calls.entry, self._served.queues[name]
        entries = calls.entries(name)
        parts = entries.parts() if isinstance(entries, Entries) else iter([[*entries]])

        def position(message_id: int) -> int:
            known = entry(name, message_id)
            return 0 if known is None else known.position

        def came_before(message_id: int) -> bool:
            return 0 < position(message_id) <= (last_position or 0)

        def turns() -> Iterator[Sequence[int]]:
            for part in parts:
                ids = part if last_position is None else [*filter(came_before, part)]
                at = 0
                while at < len(ids):
                    are_runs = calls.is_batched and not queue.not_durable and position(ids[at]) > 0
                    yield ids[at : at + (RUN_IDS if are_runs else TURN_IDS)]
                    at += self._size

        return turns()

    def _go_on(self) -> None:
        """Ask for the next part, unless it is over, or enough is on its way."""
        served, self._is_scheduled = self._served, False
        if self._waiting >= _MOST_WAITING:
            return
        is_there = self._request.queue in served.queues and not self._is_over
        part = next(self._parts, None) if is_there else None
        if part is not None and served.is_stopping:
            text = f"the broker is stopping, {self._total.done} messages were purged: run it again"
            self._error, part = Unavailable(text), None
        if part is not None:
            self._waiting += 1
            self._go_on_later()
            request = self._request._replace(message_ids=part)
            self._size = self._bulk.purge(request, self._taken, TURN_IDS)
        elif not self._is_answered:
            self._is_over = True
            self._end_if_answered()

    def _go_on_later(self) -> None:
        """Have one part taken in the next turn, whoever asks for it, and how often."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._served.later(0.0, self._go_on)

    def _taken(self, error: StoreError | None, answer: Answer) -> None:
        self._waiting -= 1
        self._total, self._error = self._total.plus(answer), self._error or error
        self._is_over |= self._error is not None or not self._show(self._total)
        if self._waiting == _MOST_WAITING - 1:
            self._go_on_later()
        self._end_if_answered()

    def _end_if_answered(self) -> None:
        if self._is_over and not (self._waiting or self._is_answered):
            self._is_answered = True
            self._on_purged(self._error, self._total)
