"""The meaning of BATCH and RUN: one record for many messages, each a request of its own. Pure.

Each is decided as if it came alone, in order. What is decided together is what cannot change one
another: messages that a batch names twice are decided one after the other (`parts_of`). A refusal
takes its place among the steps of the others, as its record does in the log. Wherever the log is
cut off, all numbers up to the last one that is there are decided, and their refusals are there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.service.decisions.arrivals import Fields, check_record, object_of, record_of
from broker_shim.service.decisions.decisions import Decisions
from broker_shim.store import protocol as wire
from broker_shim.store.protocol import Body
from sparkstore.core.records import Kind, MessageHeader, Record
from sparkstore.core.state_machine import batches
from sparkstore.core.state_machine.admission import Admission
from sparkstore.core.state_machine.arguments import MAX_NUMBER
from sparkstore.core.state_machine.batches import RequestOrigin
from sparkstore.core.state_machine.call_values import RecordStep, joined
from sparkstore.core.state_machine.definitions import as_json

_KINDS = frozenset({Kind.ENQUEUED, Kind.ACQUIRED, Kind.DEQUEUED, Kind.RELEASED})
_FIELDS = len(Record._fields)
_QUEUE, _DETAIL = Record._fields.index("queue"), Record._fields.index("detail")
_new = tuple.__new__
_BEFORE_ID, _AFTER_ID = slice(0, 3), slice(4, 7)
_CONTENT, _AFTER_CONTENT = slice(7, 9), slice(9, _FIELDS)

Refuse = Callable[[int, StoreError], list[RecordStep]]
"""The steps that keep that a request was refused."""


class Part(NamedTuple):
    """Some requests of one BATCH or RUN.

    Attributes:
        first: The number of the first of them.
        record: For each of them, without id and content.
        message_ids: The message of each, none twice but in what has just come off the wire.
        headers: The header of each, if it is `enqueued`; equal neighbours are one object.
        bodies: The content of each, if it is `enqueued`.
    """

    first: int
    record: Fields
    message_ids: Sequence[int]
    headers: Sequence[Any]
    bodies: Sequence[Any]

    def at(self, index: int) -> Fields:
        """The whole record of one.

        Raises:
            InvalidRequest: It is none that a client may send.
        """
        content = self.record[_CONTENT]
        if self.bodies:
            content = self.headers[index], self.bodies[index]
        before, after = self.record[_BEFORE_ID], self.record[_AFTER_ID]
        rest = self.record[_AFTER_CONTENT]
        return check_record((*before, self.message_ids[index], *after, *content, *rest))

    def from_(self, start: int, end: int | None = None) -> Part:
        """Cut the part to its requests from an index on."""
        first, part = self.first + start, slice(start, end)
        columns = self.message_ids[part], self.headers[part], self.bodies[part]
        return Part(first, self.record, *columns)


def part_of(kind: int, body: Body) -> Part:
    """Read the body of a BATCH or RUN; its record and contents are looked at as they are decided.

    Raises:
        InvalidRequest: It is not what the protocol says.
    """
    part = _run_of(body) if kind == wire.RUN else _batch_of(body)
    if part is None or not _is_right(part):
        message = f"the body of a frame of type {kind} is not what the protocol says"
        raise InvalidRequest(message)
    return part


def _batch_of(body: Body) -> Part | None:
    """Read a BATCH, but for what `_is_right` looks at."""
    first, record, message_ids, contents = body
    if not all(type(i) is int and 0 <= i <= MAX_NUMBER for i in message_ids):
        return None
    if contents is None:
        return Part(first, record, message_ids, (), ())
    if not all(type(pair) is tuple and len(pair) == 2 for pair in contents):
        return None
    headers, before = list[Any](), None
    for header, _body in contents:
        if header != before or header is None:
            before = header
        headers.append(before)
    return Part(first, record, message_ids, headers, [body for _header, body in contents])


def _run_of(body: Body) -> Part | None:
    """Read a RUN, but for what `_is_right` looks at: it may lie about its lengths."""
    first, record, first_id, count, headers, bodies = body
    if not (first_id >= 0 and 0 < count <= wire.MAX_BATCH and first_id + count - 1 <= MAX_NUMBER):
        return None
    message_ids = range(first_id, first_id + count)
    if headers is None or bodies is None:
        return Part(first, record, message_ids, (), ()) if headers is bodies else None
    if len(headers) == 1:
        headers *= count
    return Part(first, record, message_ids, headers, bodies)


def _is_right(part: Part) -> bool:
    """True if there are as many of each as there are requests, and the record is one for many."""
    first, record, message_ids, headers, bodies = part
    count = len(message_ids)
    return (
        0 < count <= wire.MAX_BATCH
        and first + count - 1 <= MAX_NUMBER
        and len(record) == _FIELDS
        and type(record[0]) is int
        and record[0] in _KINDS
        and record[3] is record[7] is record[8] is None
        and len(headers) == len(bodies) == (count if record[0] == Kind.ENQUEUED else 0)
    )


def parts_of(part: Part) -> Iterator[Part]:
    """Part a batch, in order, so that each part names no message twice."""
    ids = part.message_ids
    if type(ids) is range or len(set(ids)) == len(ids):
        yield part
    else:
        yield from (part.from_(index, index + 1) for index in range(len(ids)))


def decided(decisions: Decisions, part: Part, member: str, refuse: Refuse) -> list[RecordStep]:
    """The steps of requests that name no message twice; the last of each names its request."""
    if part.bodies:
        return _enqueued(decisions, part, member, refuse)

    def one(index: int, _message_id: int) -> list[RecordStep]:
        try:
            return asked_by(decisions.one(part.at(index)), member, part.first + index)
        except StoreError as refusal:
            return refuse(part.first + index, refusal)

    try:
        record = record_of(part.at(0))
    except InvalidRequest:  # each of them is refused by itself
        return [step for index in range(len(part.message_ids)) for step in one(index, 0)]
    kind, detail = _alike(record)
    steps = batches.of_entries(
        decisions.machine,
        part.message_ids,
        record.queue or "",
        decisions.holder_of_free(record.holder),
        kind,
        one,
        RequestOrigin(member, part.first),
        detail,
    ).steps
    return [*joined(steps)] if kind is None else steps


def _alike(record: Record) -> tuple[Kind | None, str | None]:
    """Find kind and detail of the records that such requests make; no kind: it depends on each."""
    if record.kind is Kind.RELEASED:
        return None, None
    if record.detail is None or record.kind is Kind.ACQUIRED:
        return record.kind, None
    try:
        return record.kind, as_json(object_of(record.detail))
    except InvalidRequest:  # as each is told by itself
        return None, None


def _enqueued(decisions: Decisions, part: Part, member: str, refuse: Refuse) -> list[RecordStep]:
    def one(index: int, admission: Admission) -> list[RecordStep]:
        return decisions.enqueued(part.at(index), (member, part.first + index), admission)

    def refused(index: int, refusal: StoreError) -> list[RecordStep]:
        return refuse(part.first + index, refusal)

    try:
        record = check_record(part.at(0))
        is_plain = record[_DETAIL] is None and all(type(header) is tuple for header in part.headers)
    except InvalidRequest:
        is_plain = False
    headers: list[MessageHeader | None] = [None] * len(part.bodies)
    if is_plain:
        made = {id(header): _new(MessageHeader, header) for header in part.headers}
        headers = [made[id(header)] for header in part.headers]
    origin, most_bytes = RequestOrigin(member, part.first), decisions.max_message_bytes
    queue, contents = record[_QUEUE] if is_plain else None, (headers, part.bodies)
    return batches.enqueue_given(
        decisions.machine, part.message_ids, contents, queue, most_bytes, one, refused, origin
    )


def asked_by(steps: list[RecordStep], member: str, request: int) -> list[RecordStep]:
    """Name who asked in the last of the steps that is kept.

    If none is kept, the last one does: others are told who did it.
    """
    last = max((index for index, step in enumerate(steps) if step.is_kept), default=-1)
    if steps:
        record = steps[last].record._replace(member=member, request=request)
        steps[last] = steps[last]._replace(run=record)
    return steps


def by_request(steps: Iterable[RecordStep]) -> Iterator[list[RecordStep]]:
    """Split steps that were decided together into those of each request."""
    own: list[RecordStep] = []
    for step in steps:
        own.append(step)
        if step.record.request is not None:
            yield own
            own = []
    if own:
        yield own
