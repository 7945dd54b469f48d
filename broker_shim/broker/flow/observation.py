"""The broker's view of what others did to its messages, as records that are durable.

Others are members of the store's service, and operators who decide prepared branches.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import groupby
from typing import ClassVar

from broker_shim.broker.flow.served_queues import ServedQueues
from broker_shim.broker.flow.settlement import Settlement
from broker_shim.broker.queues.queue import QueueDispatch
from sparkstore.core.records import Kind, MessageHeader, Run
from sparkstore.core.state_machine.admission import REPLACED


class EntryObserver:
    """Moves messages of the broker's queues. On the loop's thread only."""

    def __init__(self, served: ServedQueues, settlement: Settlement) -> None:
        self._served, self._settlement = served, settlement

    def took(self, run: Run) -> None:
        """Apply records that have become durable to their queue, in store order."""
        act = self._ACTS.get(run.record.kind)
        queue = self._served.queues.get(run.record.queue or "")
        if act is not None and queue is not None:
            act(self, queue, run)

    def _enqueued(self, queue: QueueDispatch, run: Run) -> None:
        entries = self._served.calls.entries(queue.name)
        arrivals = zip(run.message_ids, run.headers, strict=True)
        for (priority, durable), alike in groupby(arrivals, _terms_of):
            new = [i for i, _header in alike if i in entries and i not in queue]
            if new:
                self._served.wait(queue.name, new, priority, durable=durable and queue.is_kept)
                self._served.on_arrived(queue, new)

    def _dequeued(self, queue: QueueDispatch, run: Run) -> None:
        detail = run.record.detail
        self._served.metrics.replaced += run.rows * (detail == REPLACED)
        self._acquired(queue, run)
        ended = [i for i in run.message_ids if queue.is_elsewhere(i)]
        queue.removed(ended, "accepted" if detail is None else _outcome_in(detail))

    def _acquired(self, queue: QueueDispatch, run: Run) -> None:
        for message_id in run.message_ids:
            if queue.waits(message_id):
                queue.held_elsewhere(message_id)

    def _released(self, queue: QueueDispatch, run: Run) -> None:
        for message_id in run.message_ids:
            if queue.is_elsewhere(message_id):
                failed = (run.record.delivery_count or 0) > queue.delivery_count(message_id)
                self._settlement.released(message_id, queue, failed=failed)

    _ACTS: ClassVar[Mapping[Kind, Callable[[EntryObserver, QueueDispatch, Run], None]]] = {
        Kind.ENQUEUED: _enqueued,
        Kind.DEQUEUED: _dequeued,
        Kind.ACQUIRED: _acquired,
        Kind.RELEASED: _released,
    }


def _terms_of(arrival: tuple[int, MessageHeader | None]) -> tuple[int, bool]:
    header = arrival[1]
    assert header is not None  # in `enqueued`
    return header.priority, header.durable


def _outcome_in(detail: str) -> str:
    """Find why a message left, as its record says."""
    outcome = json.loads(detail).get("outcome")
    return outcome if isinstance(outcome, str) else "other"
