"""Decide many calls of one kind at once, each for itself, as if they came one by one. Pure.

Whatever is plainly right is decided here, without a call for each; all else is left to the single
call of `StoreStateMachine`, which decides it and says why it is refused. So there is one place for
each rule, and a property test holds a batch equal to its calls one by one. A batch names no entry
twice (`without_repeats`): what one call of it makes true changes nothing for another, but the room
that is left on a queue. So the enqueues of a batch have one `Admission`, as a single call has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from sparkstore.core import records
from sparkstore.core.durability import TerminusDurability
from sparkstore.core.entries import Entries
from sparkstore.core.packed_integers import neighbours_in
from sparkstore.core.records import Kind, MessageHeader, Record, each_header, run_of
from sparkstore.core.state_machine.admission import Admission
from sparkstore.core.state_machine.arguments import (
    check_contents,
    check_entry,
    check_header_fields,
    check_queue,
    check_taken,
    with_lengths,
)
from sparkstore.core.state_machine.call_values import NewMessageRun, RecordStep, StoredMessage
from sparkstore.core.state_machine.definitions import as_json
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


def enqueue_new(
    machine: StoreStateMachine, messages: NewMessageRun, most_bytes: int
) -> tuple[Decided, Sequence[int]]:
    """Make new messages and put each on the queue.

    Args:
        machine: Of the store; it gives out the ids.
        messages: In the order in which they are to be on their queue.
        most_bytes: How long the content of a message may be.

    Returns:
        What was decided, and the id of each; of one that is refused it says nothing.
    """
    arrivals = _Arrivals(machine)
    ids, outcomes = _taken_in(arrivals, messages, most_bytes)
    return Decided(arrivals.end(), outcomes), ids


def _taken_in(
    arrivals: _Arrivals, messages: NewMessageRun, most_bytes: int
) -> tuple[Sequence[int], list[StoreError | None]]:
    """Take in a run, or each of its messages for itself if anything is wrong with one of them."""
    machine, (headers, bodies, queue) = arrivals.machine, messages
    count, first, is_given = len(bodies), arrivals.machine.next_id, False
    try:
        check_contents(headers, bodies)
        is_given = True
        check_queue(queue)
        headers = with_lengths(headers, bodies, most_bytes)
        if queue not in machine.terms:
            machine.queue(queue)  # which says that there is none
    except InvalidRequest as refusal:
        if count == 1:
            if is_given:  # the id is used up
                arrivals.give_ids(1)
            return (first,), [refusal]
        parts = [_taken_in(arrivals, single, most_bytes) for single in messages.singles()]
        ids = [message_id for part, _outcomes in parts for message_id in part]
        return ids, [outcome for _ids, outcomes in parts for outcome in outcomes]
    arrivals.give_ids(count)
    return range(first, first + count), arrivals.extend(first, headers, bodies, queue)


class _Arrivals:
    """New messages on their way through an admission; of neighbours that are plain it makes a run.

    A message that is asked for anything is decided by `Admission.admit`, in its place among them.
    """

    def __init__(self, machine: StoreStateMachine, member: str | None = None) -> None:
        """Begin with no run; `member` asked for the messages, if their requests have numbers."""
        self.machine, self._member = machine, member
        self._reserved = machine.state.next_message_id
        self.admission = Admission(machine)
        self._headers: list[MessageHeader] = []
        self._bodies: list[bytes] = []
        self._queue, self._first = "", 0
        self._request: int | None = None
        self._is_shared = True

    def give_ids(self, count: int) -> None:
        """Give out the next ids, so many; they are reserved before anybody has one."""
        self.machine.next_id += count
        if self.machine.next_id > self._reserved:
            self._reserved = self.machine.next_id + ID_BLOCK - count
            keeps = self.machine.durability >= TerminusDurability.UNSETTLED_STATE
            record = records.ids_reserved(self.admission.now_us, self._reserved)
            self.end().append(RecordStep(record, keeps))

    def extend(
        self, first: int, headers: Sequence[MessageHeader], bodies: Sequence[bytes], queue: str
    ) -> list[StoreError | None]:
        """Put messages whose ids follow each other on a queue; why those are not that are not.

        Args:
            first: The id of the first.
            headers: One for each, or one that all of them share.
            bodies: The content of each.
            queue: Name of the queue, which is there.
        """
        outcomes: list[StoreError | None] = [None] * len(bodies)
        is_kept, _arguments, asks = self.machine.terms[queue]
        is_plain = is_kept and not (asks or self.machine.held_back)
        if is_plain and len(bodies) > 1 and all(header.durable for header in headers):
            record = Record(Kind.ENQUEUED, self.admission.now_us, queue, first)
            run = run_of(record, len(bodies), headers, bodies)
            self.end().append(RecordStep(run, is_kept=True))
            return outcomes
        messages = zip(each_header(headers, len(bodies)), bodies, strict=True)
        for index, (header, body) in enumerate(messages):
            try:
                self.add(first + index, header, body, queue)
            except StoreError as refusal:
                outcomes[index] = refusal
        return outcomes

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
        is_kept, _arguments, asks = self.machine.terms[queue]
        if asks or self.machine.held_back or not (is_kept and header.durable):
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
    kind, detail = None, None
    with suppress(InvalidRequest):  # it is no JSON: each call by itself says so
        detail = None if outcome is None else as_json(outcome)
        kind = Kind.DEQUEUED
    return of_entries(
        machine,
        message_ids,
        queue,
        holder,
        kind,
        lambda _index, message_id: machine.dequeue(message_id, queue, holder, outcome),
        detail=detail,
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
        if type(message_ids) is range or len(set(message_ids)) == len(message_ids):
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
    detail: str | None = None,
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
        detail: What the records say besides, likewise.
    """
    steps: list[RecordStep] = []
    outcomes: list[StoreError | None] = []
    entries = _plain_entries(machine, queue, holder, kind)
    held_by = holder if kind is Kind.DEQUEUED else None
    first = Record(kind or Kind.ACQUIRED, machine.now_us(), queue, holder=holder, detail=detail)
    if origin is not None:
        first = first._replace(member=origin.member)
    for neighbours in _neighbours(message_ids):
        at = 0
        while at < len(neighbours):
            index, left = len(outcomes), neighbours[at:]
            count = entries.free(left, held_by) if type(left) is range else 0
            if machine.claims:
                claims = machine.claims
                count = next((n for n in range(count) if (queue, left[n]) in claims), count)
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
    are_ids = type(message_ids) is range or {*map(type, message_ids)} == {int}
    return neighbours_in(message_ids) if are_ids else ([what] for what in message_ids)


def _plain_entries(
    machine: StoreStateMachine, queue: str, holder: str | None, kind: Kind | None
) -> Entries:
    """Those of a queue if no rule but theirs may refuse a call; else none."""
    with suppress(InvalidRequest):
        if kind is not None:
            (check_entry if kind is Kind.ACQUIRED else check_taken)(0, queue, holder)
            return machine.queue(queue).entries
    return _NO_ENTRIES


_NONE_TO_MEMBER = (None,) * (
    Record._fields.index("member") - Record._fields.index("delivery_count")
)
