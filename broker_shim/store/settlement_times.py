"""Times how long accepted messages were on their queues, by whatever road they were accepted."""

from __future__ import annotations

from collections.abc import Sequence

from sparkstore.core.records import Kind
from sparkstore.core.state_machine.call_values import RecordStep
from sparkstore.core.state_machine.state_machine import StoreStateMachine
from sparkstore.metrics.histograms import MESSAGE_BOUNDS_S, Histogram


class SettlementTimes:
    """A histogram of the time between a message's record `enqueued` and that it is `dequeued`.

    Both times stand in the records, so SQL over `messages` gives the same durations. A message
    that leaves for another reason (purged, moved, too old) is not counted.

    Attributes:
        taken: The durations, in seconds.
    """

    def __init__(self, machine: StoreStateMachine) -> None:
        self._queues = machine.state.queues
        self.taken = Histogram(MESSAGE_BOUNDS_S)

    def note(self, steps: Sequence[RecordStep]) -> None:
        """Count steps that accept messages; under the store's lock, before they are applied."""
        for step in steps:
            record = step.record
            if record.kind is Kind.DEQUEUED and record.detail is None:
                queue, message_ids = self._queues.get(record.queue or ""), step.run.message_ids
                if queue is None or message_ids[0] not in queue.entries:
                    continue
                for came_at, count in queue.entries.came_at(message_ids):
                    self.taken.observe((record.at - came_at) / 1e6, count)
