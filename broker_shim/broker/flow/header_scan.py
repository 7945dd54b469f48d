"""Selectors and message groups over what waits: headers are read in batches, beside the loop.

A batch is chosen, its headers are read on a thread of their own (`header_reader`), and it is judged
when they are there. That is done in slices of so many steps (a selector of 2,000 words and signs
has as many for each message). So the loop is held up by one slice at most, and sockets, timers and
completions have their turn between two. How many messages are one batch follows from how long the
judging of the last took.

Why no message is missed, though the queue changes while a batch is read. A message of the batch
that was handed out meanwhile, or left, is not waiting in its place when it would be handed out, and
is passed over. If it is given back after that, it is looked at again. One that arrives has a place
after the cursor, or is given back. A batch whose headers cannot be read now is put back.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from broker_shim.broker.flow.served_queues import ServedQueues
from broker_shim.broker.queues.message_groups import Groups
from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.broker.queues.selective_cursor import Batch, SelectiveCursor, WorkBudget, group_of
from broker_shim.errors import StoreError
from broker_shim.messages.header import CommonHeader, HeaderReader
from broker_shim.store.interface import MessageHeader

_log = logging.getLogger(__name__)

Headers = Mapping[int, CommonHeader | None]
"""By message id; None for one that is on no queue, or cannot be read."""
SLICE_S = 0.005
"""How long the judging of a batch may take, in seconds, as far as the last one tells."""
SLICE_STEPS = 2_500
"""Of one slice: some milliseconds, whatever is judged."""
MOST, FIRST = 1024, 64
"""Messages in a batch: at most, and in the first."""


class BatchSize:
    """The number of messages to judge in one go."""

    def __init__(self) -> None:
        self.count = FIRST

    def took(self, took_s: float, count: int) -> None:
        """Adapt the size of a batch to the time that judging so many took."""
        if took_s > SLICE_S:
            self.count = max(1, count // 2)
        elif count >= self.count and took_s < SLICE_S / 2:
            self.count = min(MOST, 2 * self.count)


class HeaderScan:
    """Looks at queues for consumers that do not take whatever comes next."""

    def __init__(self, served: ServedQueues, dispatch: Callable[[], None]) -> None:
        """Look at nothing yet; `dispatch` hands out what waits, where no turn of it follows."""
        self._served, self._dispatch = served, dispatch
        self._size = BatchSize()
        self._asked: set[str] = set()

    def turn(self, queue: QueueDispatch) -> None:
        """Hand out what was found, and look on."""
        is_over = False
        while not is_over:  # what was found waits for a look at what is before it, if only at gaps
            for message_id, consumer in queue.take_found():
                consumer.assign((message_id,))
            is_over = queue.name in self._asked or not queue.unfinished() or self._ask(queue)
        for consumer in queue.caught_up():
            consumer.caught_up()

    def _ask(self, queue: QueueDispatch) -> bool:
        """Have the next batch read; False if there was none: cursors are at the end, or at gaps."""
        groups = queue.groups
        if groups is not None and (held := [*groups.unplaced][:MOST]):
            self._asked.add(queue.name)
            self._served.calls.read_headers(held, partial(self._place, queue, groups, held))
            return True
        batches = queue.to_look_at(self._size.count)
        message_ids = sorted({i for _cursor, batch in batches for _place, i in batch})
        if message_ids:
            self._asked.add(queue.name)
            done = partial(self._read, queue, batches, message_ids)
            self._served.calls.read_headers(message_ids, done)
        return bool(message_ids)

    def _place(
        self,
        queue: QueueDispatch,
        groups: Groups,
        held: Sequence[int],
        error: StoreError | None,
        read: Sequence[MessageHeader | None],
    ) -> None:
        """Note the groups of messages that were held before a restart."""
        self._asked.discard(queue.name)
        if error is None:
            for message_id, header in headers_of(self._served.headers, held, read).items():
                groups.placed(message_id, None if header is None else group_of(header))
            self._served.wanted(queue.name)
        else:
            self._put_off(queue, error)

    def _read(
        self,
        queue: QueueDispatch,
        batches: list[tuple[SelectiveCursor, Batch]],
        message_ids: Sequence[int],
        error: StoreError | None,
        read: Sequence[MessageHeader | None],
    ) -> None:
        if error is None:
            self._judge(queue, batches, headers_of(self._served.headers, message_ids, read), 0.0)
            return
        self._asked.discard(queue.name)
        for cursor, batch in batches:
            cursor.put_off(batch)
        self._put_off(queue, error)

    def _put_off(self, queue: QueueDispatch, error: StoreError) -> None:
        _log.warning("%r is not looked at now: %s", queue.name, error)
        self._served.again(partial(self._again, queue.name))

    def _judge(
        self,
        queue: QueueDispatch,
        batches: list[tuple[SelectiveCursor, Batch]],
        headers: Headers,
        took_s: float,
    ) -> None:
        """Judge one slice of a batch; the next is another turn's."""
        began_s = time.monotonic()
        rest = queue.judge(batches, headers, WorkBudget(SLICE_STEPS))
        took_s += time.monotonic() - began_s
        if rest:
            self._served.later(0.0, partial(self._judge, queue, rest, headers, took_s))
            return
        self._asked.discard(queue.name)
        self._size.took(took_s, len(headers))
        self._served.wanted(queue.name)

    def _again(self, name: str) -> None:
        self._served.wanted(name)
        self._dispatch()


def headers_of(
    reader: HeaderReader,
    message_ids: Sequence[int],
    read: Sequence[MessageHeader | None],
) -> Headers:
    """Map each message id to the common view of its header, by which it is judged."""
    return {
        message_id: None if header is None else reader(header)
        for message_id, header in zip(message_ids, read, strict=True)
    }
