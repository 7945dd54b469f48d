"""Decide many calls of one kind at once, each for itself, as if they came one by one. Pure.

Whatever is plainly right is decided here, without a call for each; all else is left to the single
call of `StoreStateMachine`, which decides it and says why it is refused. So there is one place for
each rule, and a property test holds a batch equal to its calls one by one. A batch names no entry
twice (`without_repeats`): what one call of it makes true changes nothing for another, but the room
that is left on a queue. So the enqueues of a batch have one `Admission`, as a single call has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sparkstore.core import records
from sparkstore.core.durability import TerminusDurability
from sparkstore.core.entries import Entries
from sparkstore.core.records import Kind, MessageHeader, Record, run_of
from sparkstore.core.state_machine.admission import Admission
from sparkstore.core.state_machine.arguments import (
    check_body,
    check_entry,
    check_header,
    check_header_fields,
    check_queue,
    check_size,
    check_taken,
)
from sparkstore.core.state_machine.call_values import RecordStep, StoredMessage
from sparkstore.core.state_machine.state_machine import ID_BLOCK, StoreStateMachine
from sparkstore.errors import InvalidRequest, StoreError

_new = tuple.__new__  # a NamedTuple's own constructor is a call of Python for each
_NO_ENTRIES = Entries()


class Decided(NamedTuple):
    """The decision about a batch of calls.

    Attributes:
        steps: Of all calls that were not refused, in their order.
        outcomes: Of each call: None, or why it is refused.
    """

    steps: list[RecordStep]
    outcomes: list[StoreError | None]


class RequestOrigin(NamedTuple):
    """The member and the request that a batch's records will name.

    Attributes:
        member: Of a store service.
        first: Number of the request that is the first call; the others follow.
    """

    member: str
    first: int


class NewEntry(NamedTuple):
    """A message to be made and put on a queue.

    Attributes:
        header: Its lengths are set to those of `header.header` and of the body.
        body: All of its content.
        queue: Name of the queue.
    """

    header: MessageHeader
    body: bytes
    queue: str


def enqueue_new(
    machine: StoreStateMachine, messages: Sequence[NewEntry], most_bytes: int
) -> tuple[Decided, list[int]]:
    """Make new messages and put each on its queue.

    Args:
        machine: Of the store; it gives out the ids.
        messages: In the order in which they are to be on their queues.
        most_bytes: How long the content of a message may be.

    Returns:
        What was decided, and the id of each; 0 for one that got none.
    """
    arrivals, ids = _Arrivals(machine), list[int]()
    outcomes: list[StoreError | None] = []
    keeps, now_us = machine.durability >= TerminusDurability.UNSETTLED_STATE, machine.now_us()
    reserved = machine.state.next_message_id
    for asked in messages:
        ids.append(machine.next_id)
        try:
            try:
                header = _header_of(machine, asked, most_bytes)
            finally:  # the id is used up, whatever was refused
                if ids[-1] >= reserved and machine.next_id > ids[-1]:
                    reserved = ids[-1] + ID_BLOCK
                    arrivals.end().append(RecordStep(records.ids_reserved(now_us, reserved), keeps))
            arrivals.add(ids[-1], header, asked.body, asked.queue)
        except StoreError as refusal:
            outcomes.append(refusal)
            continue
        outcomes.append(None)
    return Decided(arrivals.end(), outcomes), ids


class _Arrivals:
    """New messages on their way through an admission; of neighbours that are plain it makes a run.

    A message that is asked for anything is decided by `Admission.admit`, in its place among them.
    """

    def __init__(self, machine: StoreStateMachine, member: str | None = None) -> None:
        """Begin with no run; `member` asked for the messages, if their requests have numbers."""
        self._machine, self._member = machine, member
        self.admission = Admission(machine)
        self._headers: list[MessageHeader] = []
        self._bodies: list[bytes] = []
        self._queue, self._first = "", 0
        self._request: int | None = None
        self._is_shared = True

    def add(
        self,
        message_id: int,
        header: MessageHeader,
        body: bytes,
        queue: str,
        request: int | None = None,
    ) -> None:
        """Put a message on a queue: see `Admission.admit`, also for what it raises."""
        bodies = self._bodies
        is_kept, _arguments, asks = self._machine.terms[queue]
        if asks or self._machine.held_back or not (is_kept and header.durable):
            self.end()
            message = _new(StoredMessage, (message_id, header, body, False))
            self.admission.admit(message, queue, None, self._member, request)
            return
        if bodies and not self._is_next(message_id, queue, request):
            self.end()
            bodies = self._bodies
        if not bodies:
            self._queue, self._first, self._request = queue, message_id, request
        elif header is not self._headers[-1]:
            self._is_shared = False
        self._headers.append(header)
        bodies.append(body)

    def _is_next(self, message_id: int, queue: str, request: int | None) -> bool:
        count, first = len(self._bodies), self._request
        is_asked_next = request == first if first is None else request == first + count
        return queue == self._queue and message_id == self._first + count and is_asked_next

    def end(self) -> list[RecordStep]:
        """End the run that is open; the steps by now, to which others may be added."""
        steps, headers, bodies = self.admission.steps, self._headers, self._bodies
        if bodies:
            what = Kind.ENQUEUED, self.admission.now_us, self._queue, self._first
            first = Record(*what, member=self._member, request=self._request)
            shared = headers[:1] if self._is_shared else headers
            steps.append(RecordStep(run_of(first, len(bodies), shared, bodies), is_kept=True))
            self._headers, self._bodies, self._is_shared = [], [], True
        return steps


def new_entry(asked: object) -> NewEntry:
    """Check that a value is a `NewEntry`, and return it; InvalidRequest if not."""
    if type(asked) is not NewEntry:
        message = f"a new message cannot be {type(asked).__name__}: give a NewEntry"
        raise InvalidRequest(message)
    return asked


def _header_of(machine: StoreStateMachine, asked: NewEntry, most_bytes: int) -> MessageHeader:
    """Take the next id for a message; it is used up if only its enqueue is refused.

    Returns:
        The message's header, with its lengths.

    Raises:
        InvalidRequest: It is none, or it cannot be put on its queue.
    """
    if type(asked) is not NewEntry:
        new_entry(asked)  # which says so
    header, body, queue = asked
    check_header(header)
    if type(body) is not bytes:
        check_body(body)  # which says so
    machine.next_id += 1
    size = len(body)
    if size > most_bytes or type(queue) is not str or header.protocol is None:
        check_queue(queue)
        check_size(size, most_bytes)
        raise InvalidRequest("a new message names the protocol of its header: this one has None")
    if queue not in machine.terms:
        machine.queue(queue)  # which says that there is none
    header_bytes = 0 if header.header is None else len(header.header)
    if header.body_bytes != size or header.header_bytes != header_bytes:
        header = header._replace(header_bytes=header_bytes, body_bytes=size)
    return header


def plain_enqueue(
    machine: StoreStateMachine, message: StoredMessage, queue: str, most_bytes: int
) -> list[RecordStep] | None:
    """The batch of one that a store gets the most: a message that was on no queue yet.

    The queue is not looked into: a message that was never put on a queue is on none. While any
    branch is in doubt, all is left to the single call.

    Args:
        machine: Of the store.
        message: As the caller gave it, whatever it is.
        queue: As the caller gave it, whatever it is.
        most_bytes: How long the content of a message may be.

    Returns:
        The steps; None if it is not plainly right: the single call decides it, or says why not.

    Raises:
        Full: There is no room for it.
    """
    if type(message) is not StoredMessage or type(queue) is not str:
        return None
    message_id, header, body, is_staged = message
    if (
        machine.in_doubt
        or machine.promised
        or queue not in machine.terms
        or is_staged is not False
        or type(message_id) is not int
        or not machine.is_fresh(message_id)
        or type(header) is not MessageHeader
        or not _is_plain(header, body, most_bytes)
    ):
        return None
    admission = Admission(machine)
    admission.admit(message, queue)
    return admission.steps


def enqueue_given(
    machine: StoreStateMachine,
    messages: Sequence[tuple[int, MessageHeader | None, bytes | None]],
    queue: str | None,
    most_bytes: int,
    decide: Callable[[int, Admission], list[RecordStep]],
    refuse: Callable[[int, StoreError], list[RecordStep]],
    origin: RequestOrigin,
) -> list[RecordStep]:
    """Put messages on one queue whose ids were given out before.

    Args:
        machine: Of the store.
        messages: Id, header and content of each, as they were sent; no id twice. No header: the
            message is left to `decide`.
        queue: Name of the queue; None: all are left to `decide`.
        most_bytes: How long the content of a message may be.
        decide: The single call, of the message at an index.
        refuse: The steps that keep that the message at an index is refused.
        origin: Who asked; the records of `decide` say it themselves.
    """
    member, first = origin
    arrivals = _Arrivals(machine, member)
    plain = queue if queue in machine.terms and not machine.in_doubt else None
    known, staged, next_id = machine.state.messages, machine.state.staged, machine.next_id
    for index, (message_id, header, body) in enumerate(messages):
        try:
            if (
                plain is not None
                and header is not None
                and message_id < next_id
                and message_id not in known
                and message_id not in staged
                and _is_plain(header, body, most_bytes)
            ):
                assert body is not None
                arrivals.add(message_id, header, body, plain, first + index)
            else:
                arrivals.end()
                decide(index, arrivals.admission)
        except StoreError as refusal:
            arrivals.end().extend(refuse(index, refusal))
    return arrivals.end()


def _is_plain(header: MessageHeader, body: bytes | None, most_bytes: int) -> bool:
    """True if a message is whole and nothing is wrong with it."""
    try:
        check_header_fields(header)
    except InvalidRequest:
        return False
    return (
        type(body) is bytes
        and len(body) == header.body_bytes <= most_bytes
        and header.header_bytes == len(header.header or b"")
        and header.protocol is not None
    )


def acquire(
    machine: StoreStateMachine, message_ids: Sequence[int], queue: str, holder: str
) -> Decided:
    """Reserve each of these messages for one holder."""
    return of_entries(
        machine,
        message_ids,
        queue,
        holder,
        Kind.ACQUIRED,
        lambda _index, message_id: machine.acquire(message_id, queue, holder),
    )


def dequeue(
    machine: StoreStateMachine,
    message_ids: Sequence[int],
    queue: str,
    holder: str | None,
    outcome: Mapping[str, Any] | None = None,
) -> Decided:
    """Remove each of these messages from its queue for good."""
    return of_entries(
        machine,
        message_ids,
        queue,
        holder,
        None if outcome is not None else Kind.DEQUEUED,
        lambda _index, message_id: machine.dequeue(message_id, queue, holder, outcome),
    )


def plain_dequeue(
    machine: StoreStateMachine, message_id: int, queue: str, origin: RequestOrigin
) -> RecordStep | None:
    """The batch of one that a service gets the most: nobody holds the entry, nor claims it.

    Args:
        machine: Of the store.
        message_id: The message to remove; it may be on no queue.
        queue: That it is removed from; there may be none of that name.
        origin: Who asked, as the record will say.

    Returns:
        The step; None if it is not plainly right: the single call decides it, or says why not.
    """
    standing = None if machine.claims else machine.state.queues.get(queue)
    whose = None if standing is None else standing.entries.holder(message_id)
    if whose is None or whose[0] is not None:
        return None
    what = (Kind.DEQUEUED, machine.now_us(), queue, message_id, None)
    record = _new(Record, (*what, *_NONE_TO_MEMBER, origin.member, origin.first, None))
    return _new(RecordStep, (record, whose[1] > 0, None, None, None))


def without_repeats(message_ids: Sequence[int]) -> Iterator[Sequence[int]]:
    """Parts of a batch, in order, each of which names no message twice."""
    try:
        if len(set(message_ids)) == len(message_ids):
            yield message_ids
            return
    except TypeError:  # what cannot be hashed is no id: it is refused by itself
        pass
    yield from ([message_id] for message_id in message_ids)


def of_entries(
    machine: StoreStateMachine,
    message_ids: Sequence[int],
    queue: str,
    holder: str | None,
    kind: Kind | None,
    decide: Callable[[int, int], list[RecordStep]],
    origin: RequestOrigin | None = None,
) -> Decided:
    """Decide about entries of one queue: to acquire them, or to remove them.

    Args:
        machine: Of the store.
        message_ids: None of them twice.
        queue: That they are on.
        holder: Who asks for them, as the records will say.
        kind: Of the records, where they say nothing else; None: leave all to `decide`.
        decide: The single call, of the id at an index.
        origin: Who asked, if the records are to say it; those of `decide` say it themselves.
    """
    steps: list[RecordStep] = []
    outcomes: list[StoreError | None] = []
    entries = _plain_entries(machine, queue, holder, kind)
    held_by = holder if kind is Kind.DEQUEUED else None
    first = Record(kind or Kind.ACQUIRED, machine.now_us(), queue, holder=holder)
    if origin is not None:
        first = first._replace(member=origin.member)
    for neighbours in _neighbours(message_ids):
        at = 0
        while at < len(neighbours):
            index, left = len(outcomes), neighbours[at:]
            count = entries.free(left, held_by) if type(left) is range else 0
            if count:
                request = None if origin is None else origin.first + index
                record = first._replace(message_id=left[0], request=request)
                steps.append(RecordStep(run_of(record, count), is_kept=True))
                outcomes += [None] * count
            else:
                outcomes.append(_outcome(steps, decide, index, left[0]))
            at += count or 1
    return Decided(steps, outcomes)


def _outcome(
    steps: list[RecordStep],
    decide: Callable[[int, int], list[RecordStep]],
    index: int,
    message_id: int,
) -> StoreError | None:
    """Decide a call by itself, and add its steps; the reason if it is refused."""
    try:
        steps += decide(index, message_id)
    except StoreError as refusal:
        return refusal
    return None


def _neighbours(message_ids: Sequence[int]) -> Iterator[Sequence[int]]:
    """Part message ids, in order, into ranges that rise by one; what is no id is by itself."""
    first, count = message_ids[0], len(message_ids)
    if {*map(type, message_ids)} != {int}:
        yield from ([message_id] for message_id in message_ids)
        return
    if [*message_ids] == [*range(first, first + count)]:  # as nearly always
        yield range(first, first + count)
        return
    start = 0
    for index in range(1, count + 1):
        if index == count or message_ids[index] != message_ids[index - 1] + 1:
            yield range(message_ids[start], message_ids[index - 1] + 1)
            start = index


def _plain_entries(
    machine: StoreStateMachine, queue: str, holder: str | None, kind: Kind | None
) -> Entries:
    """Those of a queue if no rule but theirs may refuse a call; else none."""
    if machine.claims or kind is None:
        return _NO_ENTRIES
    try:
        (check_entry if kind is Kind.ACQUIRED else check_taken)(0, queue, holder)
        return machine.queue(queue).entries
    except InvalidRequest:
        return _NO_ENTRIES


_NONE_TO_MEMBER = (None,) * (
    Record._fields.index("member") - Record._fields.index("delivery_count")
)
