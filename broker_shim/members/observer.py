"""The requests of members, brought to the broker that decides for all.

Why its queues are always as the store will have them: the broker changes a message's place only on
completions of its own calls and on what is observed here. Both come in the order of the store.

- A message that waits here, or is held here for a member, is moved by what its members did.
- A message that this broker has handed out itself is left to that: if its call is refused, the
  broker looks at what the store says now (`Broker.lost`). What is observed of it meanwhile is
  older than the call's outcome.

The broker may look at the store's state, which is ahead of what is observed. Then what comes later
is passed over (a message that is gone is not put on its queue), or is corrected by it.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker_shim.broker.virtual_host import Broker
from broker_shim.members.stream import WiringStream
from broker_shim.members.wiring_rows import WIRING_KINDS, applied, row_of
from sparkstore.core.state_machine.call_values import RecordStep


class MemberObserver:
    """An observer of the store's steps for that broker. On the loop's thread only."""

    def __init__(self, broker: Broker, stream: WiringStream) -> None:
        self._broker, self._stream = broker, stream

    def took(self, steps: Sequence[RecordStep]) -> None:
        """Apply steps that have become durable to queues and wiring, in store order."""
        for step in steps:
            record = step.record
            if record.kind in WIRING_KINDS:
                applied(self._broker, row_of(record))
                self._stream.add(row_of(record), None)
            else:
                self._broker.observer.took(step.run)
