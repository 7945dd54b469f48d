"""An order about many messages of a queue: a part of it a turn of the loop.

A turn takes `RUN_IDS` messages at most, and of what is in no run (priorities alternate, or others
have every second message) only `TURN_IDS`. So it does where the store decides each message by
itself: messages that are not durable. Of a purge several parts are on their way at a time, so
nobody waits for the disk between two turns. Of any other order the next part begins when the one
before is durable: what is moved keeps its order, also where a part is refused. What fails ends it
when all that was asked for is answered. A queue that is not there any more is such a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from broker_shim.broker.flow.served_queues import ServedQueues
from broker_shim.broker.orders.bulk_operations import BulkOperations
from broker_shim.errors import InvalidRequest, NotNow, StoreError, Unavailable
from sparkstore.operations.bulk import RUN_IDS, TURN_IDS, Action, Answer, Request

_MOST_WAITING = 16
"""Parts of a purge on their way at the same time."""


class BulkTurns:
    """Carries one order out. On the loop's thread only."""

    def __init__(
        self,
        served: ServedQueues,
        bulk: BulkOperations,
        request: Request,
        show: Callable[[Answer], bool],
        on_answer: Callable[[StoreError | None, Answer], None],
    ) -> None:
        """Begin with nothing done.

        Args:
            served: The queues of the virtual host.
            bulk: Carries out each part.
            request: What is asked for, and of which queue; its ids are not looked at.
            show: Told how far it is; False: nobody waits for it any more, so it ends.
            on_answer: Called when it is done, durably, with all that is done.
        """
        self._served, self._bulk, self._request = served, bulk, request
        self._show, self._on_answer = show, on_answer
        self._most_waiting = _MOST_WAITING if request.action is Action.PURGE else 1
        self._total, self._waiting, self._is_over = Answer(), 0, False
        self._error: StoreError | None = None
        self._is_answered = self._is_scheduled = False
        self._parts: Iterator[Sequence[int]] = iter(())
        self._part: Sequence[int] = ()
        self._at = 0  # in the part
        self._unseen = 0

    def start(
        self, message_ids: Sequence[int] | None = None, last_position: int | None = None
    ) -> None:
        """Begin with the first part.

        Args:
            message_ids: The messages, none of them twice; None: all that are on the queue now.
            last_position: What came after it stays, and what is not durable; None: all are meant.
        """
        try:
            self._bulk.check(self._request)
        except InvalidRequest as refusal:
            self._on_answer(refusal, self._total)
            return
        calls, queue = self._served.calls, self._request.queue
        self._unseen = len(calls.entries(queue) if message_ids is None else message_ids)
        self._parts = calls.entry_ids(queue) if message_ids is None else iter([message_ids])
        if last_position is not None:
            came = (([i for i in part if self._came_by(last_position, i)]) for part in self._parts)
            self._parts = came
        self._is_over = not self._show(self._total)
        self._go_on()

    def _came_by(self, last_position: int, message_id: int) -> bool:
        return 0 < self._position(message_id) <= last_position

    def _position(self, message_id: int) -> int:
        entry = self._served.calls.entry(self._request.queue, message_id)
        return 0 if entry is None else entry.position

    def _next(self) -> Sequence[int]:
        """Take what may be looked at in the next turn; nothing: that is all."""
        while self._at >= len(self._part):
            part = next(self._parts, None)
            if part is None:
                return ()
            self._part, self._at = part, 0
        first = self._part[self._at]
        queue = self._served.queues.get(self._request.queue)
        is_run = queue is not None and not queue.not_durable and self._position(first) > 0
        return self._part[self._at : self._at + (RUN_IDS if is_run else TURN_IDS)]

    def _go_on(self) -> None:
        """Ask for the next part, unless it is over, or enough is on its way."""
        served, self._is_scheduled = self._served, False
        if self._waiting >= self._most_waiting:
            return
        part = () if self._is_over else self._next()
        if part and served.is_stopping:
            self._error, part = Unavailable("the broker is stopping"), ()
        if part:
            self._waiting += 1
            self._go_on_later()
            request = self._request._replace(message_ids=part)
            count = self._bulk.run_part(request, self._answered, TURN_IDS)
            self._at += count
            self._unseen -= count
        elif not self._is_answered:
            self._is_over = True
            self._end_if_answered()

    def _go_on_later(self) -> None:
        """Have one part taken in the next turn, whoever asks for it, and how often."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._served.later(0.0, self._go_on)

    def _answered(self, error: StoreError | None, answer: Answer) -> None:
        self._waiting -= 1
        if answer.full:  # what comes next would overtake those that stay
            answer = answer.plus(Answer(full=self._unseen))
            self._part, self._parts = (), iter(())
        self._total, self._error = self._total.plus(answer), self._error or error
        self._is_over |= self._error is not None or not self._show(self._total)
        if self._waiting == self._most_waiting - 1:
            self._go_on_later()
        self._end_if_answered()

    def _end_if_answered(self) -> None:
        if self._is_over and not (self._waiting or self._is_answered):
            self._is_answered, error, done = True, self._error, self._total.done
            if error is not None and (done or isinstance(error, NotNow)):
                operation = self._request.operation
                undo = f", or undo operation {operation}" if operation and done else ""
                error = type(error)(f"{error} ({done} messages are done: run it again{undo})")
            self._on_answer(error, self._total)
