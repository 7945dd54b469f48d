"""The meaning of BATCH: one record for many messages, every one a request of its own. Pure.

Each is decided as if it came alone, in order. What is decided together is what cannot change one
another: messages that a batch names twice are decided one after the other (`parts_of`). A refusal
takes its place among the steps of the others, as its record does in the log. Wherever the log is
cut off, all numbers up to the last one that is there are decided, and their refusals are there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.service.decisions.arrivals import Fields, check_record, record_of
from broker_shim.service.decisions.decisions import Decisions
from broker_shim.store import protocol as wire
from broker_shim.store.protocol import Body
from sparkstore.core.records import Kind, MessageHeader, Record
from sparkstore.core.state_machine import batches
from sparkstore.core.state_machine.admission import Admission
from sparkstore.core.state_machine.arguments import MAX_NUMBER
from sparkstore.core.state_machine.batches import RequestOrigin
from sparkstore.core.state_machine.call_values import RecordStep

_KINDS = frozenset({Kind.ENQUEUED, Kind.ACQUIRED, Kind.DEQUEUED, Kind.RELEASED})
_FIELDS = len(Record._fields)
_QUEUE, _DETAIL = Record._fields.index("queue"), Record._fields.index("detail")
_new = tuple.__new__
_BEFORE_ID, _AFTER_ID = slice(0, 3), slice(4, 7)
_CONTENT, _AFTER_CONTENT = slice(7, 9), slice(9, _FIELDS)

Refuse = Callable[[int, StoreError], list[RecordStep]]
"""The steps that keep that a request was refused."""


class Part(NamedTuple):
    """Some requests of one BATCH.

    Attributes:
        first: The number of the first of them.
        record: For each of them, without id and content.
        message_ids: The message of each, none twice but in what has just come off the wire.
        contents: Header and body of each, if it is `enqueued`.
    """

    first: int
    record: Fields
    message_ids: tuple[int, ...]
    contents: tuple[tuple[Any, Any], ...] | None

    def at(self, index: int) -> Fields:
        """The whole record of one.

        Raises:
            InvalidRequest: It is none that a client may send.
        """
        content = self.record[_CONTENT] if self.contents is None else self.contents[index]
        before, after = self.record[_BEFORE_ID], self.record[_AFTER_ID]
        rest = self.record[_AFTER_CONTENT]
        return check_record((*before, self.message_ids[index], *after, *content, *rest))

    def from_(self, start: int, end: int | None = None) -> Part:
        """Cut the part to its requests from an index on."""
        contents = None if self.contents is None else self.contents[start:end]
        return Part(self.first + start, self.record, self.message_ids[start:end], contents)


def part_of(body: Body) -> Part:
    """Read the body of a BATCH; its record and contents are looked at as they are decided.

    Raises:
        InvalidRequest: It is not what the protocol says.
    """
    part = Part(*body)
    record, message_ids, contents = part[1:]
    is_right = (
        0 < len(message_ids) <= wire.MAX_BATCH
        and part.first + len(message_ids) - 1 <= MAX_NUMBER
        and all(type(i) is int and 0 <= i <= MAX_NUMBER for i in message_ids)
        and len(record) == _FIELDS
        and type(record[0]) is int
        and record[0] in _KINDS
        and record[3] is record[7] is record[8] is None
        and (contents is not None) == (record[0] == Kind.ENQUEUED)
    )
    if is_right and contents is not None:
        is_right = len(contents) == len(message_ids)
        is_right = is_right and all(type(pair) is tuple and len(pair) == 2 for pair in contents)
    if not is_right:
        message = f"the body of a frame of type {wire.BATCH} is not what the protocol says"
        raise InvalidRequest(message)
    return part


def parts_of(part: Part) -> Iterator[Part]:
    """Part a batch, in order, so that each part names no message twice."""
    if len(set(part.message_ids)) == len(part.message_ids):
        yield part
    else:
        yield from (part.from_(index, index + 1) for index in range(len(part.message_ids)))


def decided(decisions: Decisions, part: Part, member: str, refuse: Refuse) -> list[RecordStep]:
    """The steps of requests that name no message twice; the last of each names its request."""
    if part.contents is not None:
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
    is_plain = record.kind is Kind.ACQUIRED or (
        record.kind is Kind.DEQUEUED and record.detail is None
    )
    return batches.of_entries(
        decisions.machine,
        part.message_ids,
        record.queue or "",
        decisions.holder_of_free(record.holder),
        record.kind if is_plain else None,
        one,
        RequestOrigin(member, part.first),
    ).steps


def _enqueued(decisions: Decisions, part: Part, member: str, refuse: Refuse) -> list[RecordStep]:
    def one(index: int, admission: Admission) -> list[RecordStep]:
        return decisions.enqueued(part.at(index), (member, part.first + index), admission)

    def refused(index: int, refusal: StoreError) -> list[RecordStep]:
        return refuse(part.first + index, refusal)

    contents = part.contents or ()
    try:
        record = check_record(part.at(0))
        plain = record[_DETAIL] is None and all(type(header) is tuple for header, _ in contents)
    except InvalidRequest:
        plain = False
    messages = [
        (message_id, _new(MessageHeader, header) if plain else None, body)
        for message_id, (header, body) in zip(part.message_ids, contents, strict=True)
    ]
    origin, most_bytes = RequestOrigin(member, part.first), decisions.max_message_bytes
    queue = record[_QUEUE] if plain else None
    return batches.enqueue_given(
        decisions.machine, messages, queue, most_bytes, one, refused, origin
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
