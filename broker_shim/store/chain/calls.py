"""The calls that a chain passes to its members when its first store has accepted them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from broker_shim.completion import OnComplete
from sparkstore.core.annotations import annotations_of
from sparkstore.core.state_machine.call_values import RecordStep

PREPARE = "prepare"
"""The operation that comes last among the calls of a branch; its argument is the xid."""


class StoreCall(NamedTuple):
    """One call of a `BrokerStore` that changes something.

    Attributes:
        operation: The method's name.
        arguments: By position, all that stand before `on_complete`.
        options: By name, without `on_complete` and `transaction`.
    """

    operation: str
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]


class ChainMember(Protocol):
    """A store, or what else is told of each call. One thread at a time calls it."""

    @property
    def name(self) -> str:
        """The name of this member in logs, metrics and errors."""

    def apply(self, calls: Sequence[StoreCall], on_complete: OnComplete) -> None:
        """Make calls true: a single one by itself, several in one transaction.

        If the last one is `PREPARE`, they wait as a branch in doubt until another call decides it.

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
        record = step.record
        if step.message is not None:  # the dead letter of what is taken off next
            options = {"annotations": annotations_of(record.detail)}
            calls.append(StoreCall("enqueue", (step.message, record.queue), options))
            continue
        where = (record.message_id, record.queue, None)
        calls.append(StoreCall("dequeue", where, {"outcome": json.loads(record.detail or "{}")}))
        yield calls
        calls = []
