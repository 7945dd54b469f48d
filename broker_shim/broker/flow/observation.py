"""The broker's view of what others did to its messages, as records that are durable.

Others are members of the store's service, and operators who decide prepared branches.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, ClassVar

from broker_shim.broker.flow.served_queues import ServedQueues
from broker_shim.broker.flow.settlement import Settlement
from broker_shim.broker.queues.queue import QueueDispatch
from sparkstore.core.entries import Entries
from sparkstore.core.packed_integers import is_run
from sparkstore.core.records import Kind, MessageHeader, Record, Run
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
        entries, start = self._served.calls.entries(queue.name), 0
        for (priority, durable), count in _alike(run):
            new = queue.unknown(_of_these(entries, run.message_ids[start : start + count]))
            start += count
            if new:
                self._served.wait(queue.name, new, priority, durable=durable and queue.is_kept)
                self._served.on_arrived(queue, new)

    def _dequeued(self, queue: QueueDispatch, run: Run) -> None:
        detail = run.record.detail
        self._served.metrics.replaced += run.rows * (detail == REPLACED)
        queue.taken_elsewhere(run.message_ids)
        ended = filter(queue.elsewhere.__contains__, run.message_ids)
        queue.removed([*ended], "accepted" if detail is None else _outcome_in(detail))

    def _acquired(self, queue: QueueDispatch, run: Run) -> None:
        queue.taken_elsewhere(run.message_ids)

    def _released(self, queue: QueueDispatch, run: Run) -> None:
        for message_id in [*filter(queue.elsewhere.__contains__, run.message_ids)]:
            failed = (run.record.delivery_count or 0) > queue.delivery_count(message_id)
            self._settlement.released((message_id,), queue, failed=failed)

    _ACTS: ClassVar[Mapping[Kind, Callable[[EntryObserver, QueueDispatch, Run], None]]] = {
        Kind.ENQUEUED: _enqueued,
        Kind.DEQUEUED: _dequeued,
        Kind.ACQUIRED: _acquired,
        Kind.RELEASED: _released,
    }


def _alike(run: Run) -> Iterator[tuple[tuple[int, bool], int]]:
    """Part the messages of `enqueued`, in order: priority and durability, and how many have it."""
    headers = run.headers if isinstance(run, Record) else run.messages
    if len(headers) == 1:
        yield _terms_of(headers[0]), run.rows
        return
    for terms, alike in groupby(map(_terms_of, headers)):
        yield terms, len([*alike])


def _terms_of(header: MessageHeader | None) -> tuple[int, bool]:
    assert header is not None  # in `enqueued`
    return header.priority, header.durable


def _of_these(entries: Mapping[int, Any], message_ids: Sequence[int]) -> Sequence[int]:
    """Leave out those of some messages that are not on their queue any more."""
    if isinstance(entries, Entries) and is_run(message_ids):
        are_all = entries.free(message_ids, None) == len(message_ids)
    else:
        are_all = False
    return message_ids if are_all else [*filter(entries.__contains__, message_ids)]


def _outcome_in(detail: str) -> str:
    """Find why a message left, as its record says."""
    outcome = json.loads(detail).get("outcome")
    return outcome if isinstance(outcome, str) else "other"
