"""What members did by requests, brought to the broker that decides for all.

Why its queues are always as the store will have them: the broker changes a message's place only on
completions of its own calls and on what is observed here, and both come in the order of the store.

- A message that waits here, or is held here for a member, is moved by what its members did.
- A message that this broker has handed out itself is left to that: if its call is refused, the
  broker looks at what the store says now (`Broker.lost`). What is observed of it meanwhile is
  older than the call's outcome.

The broker may look at the store's state, which is ahead of what is observed: then what comes later
is passed over (a message that is gone is not put on its queue), or is corrected by it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from broker_shim.broker.virtual_host import Broker
from broker_shim.members.stream import WiringStream
from broker_shim.members.wiring_rows import WIRING_KINDS, apply, row_of
from sparkstore.core.records import Kind, Record
from sparkstore.core.state_machine.values import RecordStep


class MemberObserver:
    """See above. On the loop's thread only."""

    def __init__(self, broker: Broker, stream: WiringStream) -> None:
        self._broker, self._stream = broker, stream

    def took(self, steps: Sequence[RecordStep]) -> None:
        """Steps are durable, in the order of the store."""
        for step in steps:
            record = step.record
            if record.kind in WIRING_KINDS:
                apply(self._broker, row_of(record))
                self._stream.add(row_of(record), record.member)
            else:
                act = self._ACTS.get(record.kind)
                if act is not None:
                    act(self, record.queue or "", record.message_id or 0, record)

    def _enqueued(self, name: str, message_id: int, _record: Record) -> None:
        entry = self._broker.calls.entry(name, message_id)
        queue = self._broker.queues.get(name)
        if entry is not None and queue is not None and message_id not in queue:
            durable = entry.position > 0
            self._broker.arrived(name, message_id, entry.priority, durable=durable)

    def _dequeued(self, name: str, message_id: int, _record: Record) -> None:
        queue = self._broker.queues.get(name)
        if queue is None:
            return
        if queue.waits(message_id):
            queue.held_elsewhere(message_id)
        if queue.is_elsewhere(message_id):
            queue.removed(message_id)

    def _acquired(self, name: str, message_id: int, _record: Record) -> None:
        queue = self._broker.queues.get(name)
        if queue is not None and queue.waits(message_id):
            queue.held_elsewhere(message_id)

    def _released(self, name: str, message_id: int, record: Record) -> None:
        queue = self._broker.queues.get(name)
        if queue is not None and queue.is_elsewhere(message_id):
            failed = (record.delivery_count or 0) > queue.delivery_count(message_id)
            self._broker.settlement.released(message_id, queue, failed=failed)

    _ACTS: ClassVar[Mapping[Kind, Callable[[MemberObserver, str, int, Record], None]]] = {
        Kind.ENQUEUED: _enqueued,
        Kind.DEQUEUED: _dequeued,
        Kind.ACQUIRED: _acquired,
        Kind.RELEASED: _released,
    }
