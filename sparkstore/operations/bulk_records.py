"""Bulk operations over the fold of a root that nobody serves: requests → records. Pure.

What `broker_shim.store` decides for a running broker is decided here for a root at rest, by the
same `bulk.decide`; a contract test holds both equal.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sparkstore.core import records
from sparkstore.core.annotations import as_detail
from sparkstore.core.fold import State
from sparkstore.core.queue_arguments import QueueArguments, Terms, terms_of
from sparkstore.core.records import Record
from sparkstore.errors import InvalidRequest
from sparkstore.operations.bulk import (
    Answer,
    BulkStep,
    Dequeue,
    Enqueue,
    MessageDraft,
    MessageFacts,
    Release,
    Request,
    decide,
)
from sparkstore.operations.bulk import check as check_request

PIECE_BYTES = 1 << 20
"""Larger content is written in pieces, each a record of its own: a group of the write-ahead log
must fit into its file."""

NEW_QUEUE = json.dumps({"arguments": {}, "durability": 2}, sort_keys=True)
"""The definition of a dead-letter queue that was not there."""


class Plan(NamedTuple):
    """What a request comes to: records that become true together, and its answer."""

    records: list[Record]
    answer: Answer


def plan(state: State, request: Request, *, now_us: int, transaction: int) -> Plan:
    """The records of a request.

    Args:
        state: The fold of everything; it is not changed.
        request: What is asked for.
        now_us: The time of the records, and that expiry is decided by, UTC µs.
        transaction: The number that groups the records.

    Raises:
        InvalidRequest: Queue, target or number of messages is wrong (`bulk.check`).
    """
    target = check_request(request, lambda name: _terms(state, name))
    source = _terms(state, request.queue) or Terms()
    to = Terms() if target is None else _terms(state, target) or Terms()
    entries = state.queues[request.queue].entries
    on_target = state.queues[target].entries if target in state.queues else {}
    written: list[Record] = []
    if target is not None and target not in state.queues:
        written.append(records.queue_created(now_us, target, NEW_QUEUE))
    answer = Answer()
    for message_id in dict.fromkeys(request.message_ids):
        entry = entries.get(message_id)
        if entry is None:
            answer = answer.plus(Answer(gone=1))
            continue
        facts = MessageFacts(entry, message_id in on_target, source.arguments, now_us)
        steps = decide(request, target, facts)
        answer = answer.plus(Answer(done=1) if steps else Answer(left=1))
        written += _records(steps, message_id, to.arguments, now_us, transaction)
    return Plan(written if answer.done else [], answer)


def plan_put(
    state: State, queue: str, messages: Sequence[MessageDraft], *, now_us: int, transaction: int
) -> list[list[Record]]:
    """The records that put new messages on a queue, in groups; the last makes it true.

    What groups before it bring is content that a cut leaves on no queue.

    Raises:
        InvalidRequest: No such queue, or one that keeps no messages.
    """
    terms = _terms(state, queue)
    if terms is None or not terms.keeps_messages:
        message = f"unknown queue {queue!r}, or one that keeps no messages: create it first"
        raise InvalidRequest(message)
    first_id = state.next_message_id
    groups = [[records.ids_reserved(now_us, first_id + len(messages))]]
    enqueued: list[Record] = []
    for message_id, (header, body) in enumerate(messages, first_id):
        header_bytes = len(header.header or b"")
        sized = header._replace(
            header_bytes=header_bytes,
            body_bytes=len(body),
            expires_at=terms.arguments.expires_at(header.expires_at, now_us),
        )
        pieces = range(0, len(body), PIECE_BYTES) if len(body) > PIECE_BYTES else ()
        for start in pieces:
            piece = body[start : start + PIECE_BYTES]
            groups.append([records.content_staged(now_us, message_id, start, piece)])
        inline = None if pieces else body
        enqueued.append(
            records.message_enqueued(now_us, queue, message_id, sized, inline, transaction)
        )
    return [*groups, enqueued]


def _terms(state: State, name: str) -> Terms | None:
    queue = state.queues.get(name)
    return None if queue is None else terms_of(queue.detail)


def _records(
    steps: Iterable[BulkStep], message_id: int, to: QueueArguments, now_us: int, transaction: int
) -> Iterable[Record]:
    for step in steps:
        match step:
            case Enqueue(queue, header, _, annotations):
                expires_at = to.expires_at(header.expires_at, now_us)
                known = header._replace(expires_at=expires_at)
                put = records.message_enqueued(now_us, queue, message_id, known, None, transaction)
                yield put if annotations is None else put._replace(detail=as_detail(annotations))
            case Dequeue(queue, outcome, _):
                detail = json.dumps(outcome, sort_keys=True)
                yield records.message_dequeued(now_us, queue, message_id, None, detail, transaction)
            case Release(queue, count, detail):
                place = (now_us, queue, message_id)
                yield records.message_released(*place, count, transaction, detail)
