"""The calls that a chain passes to its members when its first store has accepted them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from broker_shim.completion import OnComplete
from sparkstore.core.annotations import annotations_of
from sparkstore.core.state_machine.call_values import (
    DequeueCall,
    EnqueueCall,
    RecordStep,
    StoreCall,
)


class ChainMember(Protocol):
    """A store, or what else is told of each call. One thread at a time calls it."""

    @property
    def name(self) -> str:
        """The name of this member in logs, metrics and errors."""

    def apply(self, calls: Sequence[StoreCall], on_complete: OnComplete) -> None:
        """Make calls true: a single one by itself, several in one transaction.

        If the last one is a `PrepareCall`, they wait as a branch in doubt until another call
        decides it.

        `on_complete` fires once, on any thread, in the order of these calls. It must not block, and
        raises nothing: what is wrong is told by `on_complete`.
        """

    def flush(self, on_complete: OnComplete) -> None:
        """Complete when all earlier calls are where queries see them, as `MessageStore.flush`."""

    def drop(self) -> None:
        """Take notice that no call follows. From here on the member is not like the first store."""

    def close(self) -> None:
        """Complete what is under way, then let go of everything."""


def calls_that_make_room(steps: Iterable[RecordStep]) -> Iterator[list[StoreCall]]:
    """Yield the calls by which a full queue dropped messages: each a dequeue, or a move."""
    calls: list[StoreCall] = []
    for step in steps:
        record, queue = step.record, step.record.queue
        assert queue is not None
        if step.message is not None:  # the dead letter of what is taken off next
            calls.append(EnqueueCall(step.message, queue, annotations_of(record.detail)))
            continue
        outcome = json.loads(record.detail or "{}")
        calls.append(DequeueCall(step.run.message_ids, queue, None, outcome))
        yield calls
        calls = []
