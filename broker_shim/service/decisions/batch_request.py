"""The meaning of requests about entries: one record for many, each a request of its own. Pure.

BATCH and RUN are many, DO of one record is one. Of those that follow one another without a gap, and
say the same of messages whose ids rise by one, one part is made: a member asks in a turn what its
clients said in several reads.

Each is decided as if it came alone, in order. What is decided together is what cannot change one
another: messages that a batch names twice are decided one after the other (`parts_of`). A refusal
takes its place among the steps of the others, as its record does in the log. Wherever the log is
cut off, all numbers up to the last one that is there are decided, and their refusals are there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.service.decisions.arrivals import Fields, check_record, object_of, record_of
from broker_shim.service.decisions.decisions import Decisions
from broker_shim.store import protocol as wire
from broker_shim.store.protocol import Body, Frame
from sparkstore.core.packed_integers import as_range
from sparkstore.core.records import Kind, MessageHeader, Record, each_header
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
    """Some requests that say the same of messages.

    Attributes:
        first: The number of the first of them.
        record: For each of them, without id and content.
        message_ids: The message of each, none twice but in what has just come off the wire.
        headers: The header of each, if it is `enqueued`, or one that all share; equal neighbours
            are one object.
        bodies: The content of each, if it is `enqueued`.
    """

    first: int
    record: Fields
    message_ids: Sequence[int]
    headers: Sequence[Any]
    bodies: Sequence[Any]

    @property
    def header_of_each(self) -> Sequence[Any]:
        """The header of each, also if all share one."""
        return each_header(self.headers, len(self.message_ids))

    def at(self, index: int) -> Fields:
        """The whole record of one.

        Raises:
            InvalidRequest: It is none that a client may send.
        """
        content = self.record[_CONTENT]
        if self.bodies:
            content = self.header_of_each[index], self.bodies[index]
        before, after = self.record[_BEFORE_ID], self.record[_AFTER_ID]
        rest = self.record[_AFTER_CONTENT]
        return check_record((*before, self.message_ids[index], *after, *content, *rest))

    def from_(self, start: int, end: int | None = None) -> Part:
        """Cut the part to its requests from an index on."""
        first, part = self.first + start, slice(start, end)
        headers = self.headers if len(self.headers) == 1 else self.headers[part]
        return Part(first, self.record, self.message_ids[part], headers, self.bodies[part])


def requests_of(frames: Iterable[Frame]) -> Iterator[tuple[int, Body | Part]]:
    """Iterate over checked requests, in order: parts, and the type and body of any other.

    Raises:
        InvalidRequest: As `frames`, or a body is not what the protocol says, after all before it.
    """
    parts, fault = list[Part](), None
    try:
        for kind, body in frames:
            part = part_of(kind, body)
            if parts and (part is None or not _goes_on(parts, part)):
                yield wire.RUN, _joined(parts)
                parts = []
            if part is None:
                yield kind, body
            else:
                parts.append(part)
    except InvalidRequest as reason:
        fault = reason
    if parts:
        yield wire.RUN, _joined(parts)
    if fault is not None:
        raise fault


def _goes_on(parts: Sequence[Part], part: Part) -> bool:
    """True if a part may be one with others: it begins where they end, and says the same."""
    before, ids = parts[-1], part.message_ids
    return (
        part.first == before.first + len(before.message_ids)
        and type(ids) is type(before.message_ids) is range
        and ids[0] == before.message_ids[-1] + 1
        and ids[-1] - parts[0].message_ids[0] < wire.MAX_BATCH
        and part.record == before.record
    )


def _joined(parts: Sequence[Part]) -> Part:
    """Make one part of some that follow one another."""
    first = parts[0]
    if len(parts) == 1:
        return first
    message_ids = range(first.message_ids[0], parts[-1].message_ids[-1] + 1)
    headers, shared = [part.headers for part in parts], first.headers
    if len(shared) != 1 or headers.count(shared) < len(headers):
        shared = [*chain.from_iterable(part.header_of_each for part in parts)]
    bodies = [*chain.from_iterable(part.bodies for part in parts)]
    return Part(first.first, first.record, message_ids, shared, bodies)


def part_of(kind: int, body: Body) -> Part | None:
    """Read a request about entries; its record and contents are looked at as they are decided.

    Returns:
        The part; None if it is none, or a DO whose record is not for a client to send.

    Raises:
        InvalidRequest: It is no BATCH or RUN as the protocol says.
    """
    if kind == wire.DO:
        return _single_of(body)
    if kind not in {wire.BATCH, wire.RUN}:
        return None
    part = _run_of(body) if kind == wire.RUN else _batch_of(body)
    if part is None or not _is_right(part):
        message = f"the body of a frame of type {kind} is not what the protocol says"
        raise InvalidRequest(message)
    return part


def _single_of(body: Body) -> Part | None:
    """Read a DO of one record about an entry."""
    request, taken = body
    if len(taken) != 1:
        return None
    try:
        fields = check_record(taken[0])
    except InvalidRequest:  # it is refused in its turn
        return None
    if fields[0] not in _KINDS:
        return None
    record, message_id = (*fields[:3], None, *fields[4:7], None, None, *fields[9:]), fields[3]
    contents = (fields[7:8], fields[8:9]) if fields[0] == Kind.ENQUEUED else ((), ())
    return Part(request, record, range(message_id, message_id + 1), *contents)


def _batch_of(body: Body) -> Part | None:
    """Read a BATCH, but for what `_is_right` looks at."""
    first, record, message_ids, contents = body
    if not message_ids or not all(type(i) is int and 0 <= i <= MAX_NUMBER for i in message_ids):
        return None
    if contents is None:
        return Part(first, record, as_range(message_ids), (), ())
    if not all(type(pair) is tuple and len(pair) == 2 for pair in contents):
        return None
    headers, before = list[Any](), None
    for header, _body in contents:
        if header != before or header is None:
            before = header
        headers.append(before)
    bodies = [body for _header, body in contents]
    return Part(first, record, as_range(message_ids), headers, bodies)


def _run_of(body: Body) -> Part | None:
    """Read a RUN, but for what `_is_right` looks at: it may lie about its lengths."""
    first, record, first_id, count, headers, bodies = body
    if not (first_id >= 0 and 0 < count <= wire.MAX_BATCH and first_id + count - 1 <= MAX_NUMBER):
        return None
    message_ids = range(first_id, first_id + count)
    if headers is None or bodies is None:
        return Part(first, record, message_ids, (), ()) if headers is bodies else None
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
        and len(bodies) == (count if record[0] == Kind.ENQUEUED else 0)
        and (len(headers) == len(bodies) or len(headers) == 1 < len(bodies))
    )


def parts_of(part: Part) -> Iterator[Part]:
    """Part a batch, in order, so that each part names no message twice."""
    at = 0
    for ids in batches.without_repeats(part.message_ids):
        yield part if ids is part.message_ids else part.from_(at, at + len(ids))
        at += len(ids)


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
    record = Record(
        *(record.kind, 0, record.queue or ""),
        holder=decisions.holder_of_free(record.holder),
        detail=detail,
    )
    machine, origin = decisions.machine, RequestOrigin(member, part.first)
    steps, _outcomes = batches.of_entries(
        machine, part.message_ids, record, one, is_plain=kind is not None, origin=origin
    )
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
    headers: list[MessageHeader | None] = [None]
    if is_plain:
        made = {id(header): _new(MessageHeader, header) for header in part.headers}
        headers = [made[id(header)] for header in part.headers]
    headers = [*headers] * len(part.bodies) if len(headers) == 1 else headers
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
        step, before = steps[last], list[RecordStep]()
        run = step.run
        if not isinstance(run, Record):
            others, run = run.before_last()
            before = [step._replace(run=others)]
        named = step._replace(run=run._replace(member=member, request=request))
        steps[last : last + 1 or None] = [*before, named]
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
