"""Hides messages from consumers until their time, by one timer for all queues.

The store decides when a message may be delivered: its entry says so (`core.annotations`). Here that
is kept: what comes, comes back or is recovered with a time that is not over yet goes out of
dispatch, and waits after all others of its priority when its time has come.

Why no message is hidden for ever: each that goes out of dispatch has its time in the queue's timing
wheel, and a timer is set for the soonest of all queues, before anything else happens on the loop's
thread. A timer that comes too soon, as all that wait at an hour's bucket or after the clock was set
back, is set again. After `_LONGEST_S` the clock is looked at in any case, so one that was set
forward is seen. A restart reads the times from the entries; what is due by then has its place by
them, too (`broker.queues.recovered_order`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from broker_shim.broker.flow.served_queues import ServedQueues
from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.broker.storage.loop import SoonestTimer, wall_us
from sparkstore.core.annotations import delivery_time_of
from sparkstore.core.entries import Entries

_LONGEST_S = 60.0
_TURN_IDS = 5_000
"""Messages of one queue that a turn touches: some ms."""


class DeliveryDelays:
    """Knows which queues have messages that wait for their time. On the loop's thread only."""

    def __init__(self, served: ServedQueues, now_us: Callable[[], int] = wall_us) -> None:
        """Begin with no message that waits for its time."""
        self._served, self._now_us = served, now_us
        self._delaying: dict[str, QueueDispatch] = {}
        self._timer = SoonestTimer(served.later, self._turn)

    def recovered(self, queue: QueueDispatch) -> None:
        """Hide what is on a queue after a start and has to wait."""
        entries = self._served.calls.entries(queue.name)
        if isinstance(entries, Entries) and entries.has_delays:
            self.came(queue, [message_id for message_id, _entry in entries.marked()])

    def came(self, queue: QueueDispatch, message_ids: Iterable[int]) -> None:
        """Hide messages that wait on a queue, and whose time has not come.

        One that is due already, but no sooner than another that still waits for the timer, is
        hidden with it: they come in the order of their times.
        """
        entries = self._served.calls.entries(queue.name)
        if not (isinstance(entries, Entries) and entries.has_delays):  # most often
            return
        now_us, is_new = self._now_us(), False
        later_us = now_us + 1
        for message_id in message_ids:
            entry = entries.get(message_id)
            at_us = None if entry is None else delivery_time_of(entry.detail)
            if at_us is not None and at_us >= min(later_us, queue.delayed.next_us or later_us):
                queue.delayed.hide(message_id, at_us)
                is_new = True
        if is_new:
            self._delaying[queue.name] = queue
            self._set_timer(queue, now_us)

    def _set_timer(self, queue: QueueDispatch, now_us: int) -> None:
        due_us = queue.delayed.next_us
        if due_us is None:
            return
        wait_s = min(max(0.0, (due_us - now_us) / 1e6), _LONGEST_S)
        self._timer.ask(now_us + wait_s * 1e6, wait_s)

    def _turn(self) -> None:
        """Show messages whose time has come, some at a time, and wait for the next."""
        now_us = self._now_us()
        for name, queue in [*self._delaying.items()]:
            if not self._served.serves(queue):
                del self._delaying[name]
                continue
            self._show(queue, queue.delayed.due(now_us, _TURN_IDS))
            if queue.delayed.next_us is None:
                del self._delaying[name]
            else:
                self._set_timer(queue, now_us)

    def _show(self, queue: QueueDispatch, message_ids: Iterable[int]) -> None:
        for message_id in message_ids:
            entry = self._served.calls.entry(queue.name, message_id)
            if entry is not None:
                queue.delayed.end(message_id, entry.priority)
                self._served.wanted(queue.name)
