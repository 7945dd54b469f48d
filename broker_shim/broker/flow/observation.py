"""The broker's view of what others did to its messages, as records that are durable.

Others are members of the store's service, and operators who decide prepared branches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

from broker_shim.broker.flow.served_queues import ServedQueues
from broker_shim.broker.flow.settlement import Settlement
from sparkstore.core.records import Kind, Record
from sparkstore.core.state_machine.admission import REPLACED


class EntryObserver:
    """Moves messages of the broker's queues. On the loop's thread only."""

    def __init__(self, served: ServedQueues, settlement: Settlement) -> None:
        self._served, self._settlement = served, settlement

    def took(self, record: Record) -> None:
        """Apply a record that has become durable to its queue, in store order."""
        act = self._ACTS.get(record.kind)
        if act is not None:
            act(self, record.queue or "", record.message_id or 0, record)

    def _enqueued(self, name: str, message_id: int, _record: Record) -> None:
        entry = self._served.calls.entry(name, message_id)
        queue = self._served.queues.get(name)
        if entry is not None and queue is not None and message_id not in queue:
            durable = entry.position > 0
            self._served.arrived(name, message_id, entry.priority, durable=durable)

    def _dequeued(self, name: str, message_id: int, record: Record) -> None:
        self._served.metrics.replaced += record.detail == REPLACED
        queue = self._served.queues.get(name)
        if queue is None:
            return
        if queue.waits(message_id):
            queue.held_elsewhere(message_id)
        if queue.is_elsewhere(message_id):
            queue.removed((message_id,))

    def _acquired(self, name: str, message_id: int, _record: Record) -> None:
        queue = self._served.queues.get(name)
        if queue is not None and queue.waits(message_id):
            queue.held_elsewhere(message_id)

    def _released(self, name: str, message_id: int, record: Record) -> None:
        queue = self._served.queues.get(name)
        if queue is not None and queue.is_elsewhere(message_id):
            failed = (record.delivery_count or 0) > queue.delivery_count(message_id)
            self._settlement.released(message_id, queue, failed=failed)

    _ACTS: ClassVar[Mapping[Kind, Callable[[EntryObserver, str, int, Record], None]]] = {
        Kind.ENQUEUED: _enqueued,
        Kind.DEQUEUED: _dequeued,
        Kind.ACQUIRED: _acquired,
        Kind.RELEASED: _released,
    }
