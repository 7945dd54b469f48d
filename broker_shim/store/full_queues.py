"""Counts what full queues refused or dropped, says so in the log, and tells a broker of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from itertools import islice

from broker_shim.completion import OnComplete
from broker_shim.errors import StoreError
from sparkstore.core.queue_arguments import QueueArguments
from sparkstore.core.queue_names import shown
from sparkstore.core.records import Kind
from sparkstore.core.state_machine.admission import DUPLICATE, REPLACED, dropped_of
from sparkstore.core.state_machine.call_values import RecordStep
from sparkstore.core.state_machine.room import LastValue, RoomStateMachine

_log = logging.getLogger(__name__)

_QUIET_S = 60.0
"""Of one queue there is a line so often at most."""
_MAX_QUEUES = 1_000
"""Queues that are counted, and have lines; others are in `total` alone."""


class FullQueues:
    """The refusals and drops of a store by queue: one line a minute, then how many since.

    Attributes:
        total: Messages that were refused.
        counts: The same of each queue.
        dropped: Messages that were dropped to make room, by queue.
        duplicates: Messages that were dropped as they had come before, by queue.
        on_dropped: Told of the steps that dropped messages, when these are durable, on the thread
            that fires completions: after the completion of the call that they made room for.
        pass_on: Told before that, likewise: the chain whose first store it is.
    """

    def __init__(
        self, machine: RoomStateMachine, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Have the state machine of a store tell what it refuses and drops."""
        machine.on_full, machine.on_dropped = self.note, self._note_dropped
        self._machine, self._clock = machine, clock
        self._said: dict[str, tuple[float, int]] = {}
        self.total = 0
        self.counts: dict[str, int] = {}
        self.dropped: dict[str, int] = {}
        self.duplicates: dict[str, int] = {}
        self.on_dropped: Callable[[Sequence[RecordStep]], None] = _nobody
        self.pass_on: Callable[[Sequence[RecordStep]], None] = _nobody

    def trust_all(self) -> None:
        """Take all that comes: this store is a copy, and the first of its chain has decided."""
        self._machine.is_copy = True

    def replace_by(self, last_value: LastValue) -> None:
        """Let newer values take the place of older ones where a last-value queue is full.

        Args:
            last_value: Tells the value of a new message, and who has it on the queue.
        """
        self._machine.last_value = last_value

    def note(self, queue: str) -> None:
        """Count a message that was refused; under the store's lock, so nothing may call it."""
        self.total += 1
        self._count(queue, self.counts)

    def refusals(self) -> dict[str, int]:
        """Count the refusals of each queue that may refuse, from 0. On any thread.

        A counter that begins to exist with its first refusal has not risen for whoever watches it.
        """
        return self._from_0(lambda terms: terms.has_limits, self.counts)

    def drops(self) -> dict[str, dict[str, int]]:
        """Count what each queue let go, by reason and queue, likewise from 0."""
        return {
            "full": self._from_0(lambda terms: terms.has_limits and terms.drops_head, self.dropped),
            "duplicate": self._from_0(
                lambda terms: terms.duplicate_window_ms is not None, self.duplicates
            ),
        }

    def _from_0(
        self, counts_of: Callable[[QueueArguments], bool], counts: dict[str, int]
    ) -> dict[str, int]:
        terms = [*self._machine.terms.items()]  # a copy at once: the store changes them
        names = (name for name, queue in terms if counts_of(queue.arguments))
        return dict.fromkeys(islice(names, _MAX_QUEUES), 0) | dict(counts)

    def telling(self, steps: Sequence[RecordStep], on_complete: OnComplete) -> OnComplete:
        """Wrap the completion of steps, so that a broker hears of what they drop.

        It hears of it after it was told that the new messages are there: one of them may have been
        dropped for another of the same batch.
        """
        if not self._machine.has_dropped or not (dropped := dropped_of(steps)):
            return on_complete

        def complete(error: StoreError | None) -> None:
            on_complete(error)
            if error is None:
                self.pass_on(dropped)
                self.on_dropped(dropped)

        return complete

    def _note_dropped(self, steps: Sequence[RecordStep]) -> None:
        for step in steps:
            queue = step.record.queue or ""
            if step.record.detail == DUPLICATE:
                if queue in self.duplicates or len(self.duplicates) < _MAX_QUEUES:
                    self.duplicates[queue] = self.duplicates.get(queue, 0) + step.run.rows
            elif step.record.kind is Kind.DEQUEUED and step.record.detail != REPLACED:
                self._count(queue, self.dropped, step.run.rows)

    def _count(self, queue: str, counts: dict[str, int], more: int = 1) -> None:
        if queue not in counts and len(counts) >= _MAX_QUEUES:
            return
        counts[queue] = counts.get(queue, 0) + more
        count, now_s = self.counts.get(queue, 0) + self.dropped.get(queue, 0), self._clock()
        said_s, said_count = self._said.get(queue, (now_s - _QUIET_S, 0))
        if now_s - said_s >= _QUIET_S:
            self._said[queue] = now_s, count
            what = "senders are refused" if counts is self.counts else "messages leave it"
            text = "queue %s is full: %s, %d messages since the last line"
            _log.warning(text, shown(queue), what, count - said_count)


def _nobody(_steps: Sequence[RecordStep]) -> None:
    """Nobody has the queues in memory."""
