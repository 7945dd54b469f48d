"""Copies of what waits on a queue, brought to one browser in their order. Nothing is acquired.

A copy whose content the store cannot give now holds up the others until it can: a browser sees the
queue in its order. One that can never be read is passed over, and the log says so; one that left
the queue meanwhile, or is too old, is passed over in silence.
"""

from __future__ import annotations

import logging
from functools import partial

from broker_shim.broker.delivery.content_line import ContentLine
from broker_shim.broker.delivery.outlet import CopyOutlet
from broker_shim.broker.delivery.taken_run import TakenRun, taken
from broker_shim.broker.flow.served_queues import ServedQueues
from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.broker.storage.loop import wall_us
from broker_shim.errors import InvalidRequest, NotNow, StoreError
from broker_shim.store.interface import Entry

_log = logging.getLogger(__name__)


class CopyDelivery:
    """Brings one browser copies. On the loop's thread only.

    Attributes:
        count: Copies under way: taken up, and not sent or passed over.
    """

    def __init__(
        self,
        served: ServedQueues,
        queue: QueueDispatch,
        holder: str,
        outlet: CopyOutlet,
        *,
        is_whole: bool,
    ) -> None:
        """Bring nothing yet; `is_whole`: a message is never sent in pieces."""
        self._served, self._queue, self._holder, self._outlet = served, queue, holder, outlet
        self._calls, self._metrics, self._is_whole = served.calls, served.metrics, is_whole
        self._line = ContentLine(served.calls, self._show, self._missing, self._went)
        self.count = 0
        self._is_gone = self._is_let_go = False

    def show(self, message_id: int, entry: Entry | None) -> None:
        """Bring a copy in its turn; `entry` is what the queue's service told of it, at a member."""
        calls = self._calls
        entry = entry or calls.entry(self._queue.name, message_id)
        if entry is None:
            return  # it is not on the queue any more
        [run] = taken(
            calls.messages,
            {message_id: entry},
            (message_id,),
            self._holder,
            whole=self._is_whole,
            most_bytes=0,
        )
        self.count += 1
        self._outlet.took(run)
        self._line.ask(run)
        self._line.add((run,))

    def gone(self) -> None:
        """Let go of what waits: the browser is gone."""
        for run in self._line.clear():
            self._pass_over(run)
        self._is_gone = True
        self._let_go()

    def _let_go(self) -> None:
        """Let go of the outlet, which holds this delivery, once nothing is under way after the end.

        Else each browser that ends would be a cycle, which only Python's collector finds.
        """
        if self._is_gone and not (self.count or self._is_let_go):
            self._is_let_go = True
            self._line.let_go()
            del self._outlet

    def large_ended(self, run: TakenRun) -> None:
        """Go on after a large copy, which was sent or broken off."""
        self._done(run)
        self._line.go()

    def _done(self, run: TakenRun) -> None:
        self.count -= 1
        run.release()
        self._let_go()

    def _pass_over(self, run: TakenRun) -> None:
        self._outlet.unsent(run)
        self._done(run)

    def _missing(self, run: TakenRun, error: StoreError) -> None:
        """Try again later to read a message, or never show it."""
        if isinstance(error, NotNow) and not self._outlet.is_gone:
            self._line.hold()
            self._served.again(partial(self._again, run))
        else:
            if not isinstance(error, InvalidRequest | NotNow):
                self._cannot_be_read(run, error)
            self._pass_over(run)

    def _again(self, run: TakenRun) -> None:
        if self._outlet.is_gone:
            self._pass_over(run)
        else:
            self._line.again(run)
            self._line.go()

    def _show(self, run: TakenRun) -> None:
        [has_expired] = run.has_expired(wall_us())
        if self._outlet.is_gone or has_expired:
            self._metrics.expired += has_expired
            self._pass_over(run)
            return
        try:
            is_taken = self._outlet.copy(run, self._queue.delivery_count(run.message_ids[0]))
        except Exception as error:  # noqa: BLE001  # one message must not stop the others
            self._cannot_be_read(run, error)
            self._pass_over(run)
            return
        if not is_taken:
            text = "message %d of %r is larger than a browser takes: it is not shown there"
            _log.info(text, run.message_ids[0], self._queue.name)
            self._pass_over(run)
            return
        self._metrics.delivered += 1
        if run.is_large:
            self._line.hold()
        else:
            self._done(run)

    def _cannot_be_read(self, run: TakenRun, error: Exception) -> None:
        text = "message %d of %r cannot be read: %s"
        _log.error(text, run.message_ids[0], self._queue.name, error)

    def _went(self) -> None:
        if self._is_let_go:
            return
        self._outlet.went()
        if not self.count and not self._outlet.is_gone:
            self._served.wanted(self._queue.name)  # on with the look, when the loop comes round
