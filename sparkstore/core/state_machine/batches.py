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
from functools import partial
from typing import NamedTuple

from sparkstore.core import records
from sparkstore.core.durability import TerminusDurability
from sparkstore.core.entries import Entries
from sparkstore.core.packed_integers import is_run, neighbours_in
from sparkstore.core.records import Kind, MessageHeader, Record, each_header, run_of
from sparkstore.core.state_machine.admission import Admission
from sparkstore.core.state_machine.arguments import (
    check_contents,
    check_entry,
    check_header_fields,
    check_new_run,
    check_queue,
    check_taken,
    with_lengths,
)
from sparkstore.core.state_machine.call_values import (
    AcquireCall,
    DequeueCall,
    EntryCall,
    NewMessageRun,
    RecordStep,
    ReleaseCall,
    StoreCall,
    StoredMessage,
    StoredRun,
    Transaction,
    joined,
    number_of,
)
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
    return Decided(arrivals.steps, outcomes), ids


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
    outcomes: list[StoreError | None] = [None] * count
    arrivals.extend(first, headers, bodies, queue, outcomes.__setitem__)
    return range(first, first + count), outcomes


def new_messages(
    machine: StoreStateMachine,
    headers: Sequence[MessageHeader],
    bodies: Sequence[bytes],
    most_bytes: int,
) -> tuple[StoredRun, list[RecordStep]]:
    """Make messages as `StoreStateMachine.message` does, whose ids follow each other.

    Returns:
        The run, and the reservation of ids if one is due.

    Raises:
        InvalidRequest: A header or content cannot be; none was made.
    """
    check_new_run(NewMessageRun(headers, bodies, ""))
    check_contents(headers, bodies)
    headers = with_lengths(headers, bodies, most_bytes)
    arrivals, ids = _Arrivals(machine), range(machine.next_id, machine.next_id + len(bodies))
    arrivals.give_ids(len(bodies))
    machine.fresh.update(zip(ids, map(bool, bodies), strict=True))
    return StoredRun(ids, headers, bodies), arrivals.steps


class _Arrivals:
    """New messages on their way through an admission; of neighbours that are plain it makes a run.

    A message that is asked for anything is decided by `Admission.admit`, in its place among them.
    """

    def __init__(self, machine: StoreStateMachine, member: str | None = None) -> None:
        """Begin; `member` asked for the messages, if their requests have numbers."""
        self.machine, self._member = machine, member
        self._reserved = machine.state.next_message_id
        self.admission = Admission(machine)

    @property
    def steps(self) -> list[RecordStep]:
        """The steps by now, to which others may be added."""
        return self.admission.steps

    def give_ids(self, count: int) -> None:
        """Give out the next ids, so many; they are reserved before anybody has one."""
        self.machine.next_id += count
        if self.machine.next_id > self._reserved:
            self._reserved = self.machine.next_id + max(ID_BLOCK - count, 0)
            keeps = self.machine.durability >= TerminusDurability.UNSETTLED_STATE
            record = records.ids_reserved(self.admission.now_us, self._reserved)
            self.steps.append(RecordStep(record, keeps))

    def extend(
        self,
        first: int,
        headers: Sequence[MessageHeader],
        bodies: Sequence[bytes],
        queue: str,
        refuse: Callable[[int, StoreError], None],
        request: int | None = None,
    ) -> None:
        """Put messages whose ids follow each other on a queue.

        Args:
            first: The id of the first.
            headers: One for each, or one that all of them share.
            bodies: The content of each.
            queue: Name of the queue, which is there.
            refuse: Told of each that is refused, in its place: its index, and why.
            request: The number of the first one's request, if they have numbers.
        """
        count, member = len(bodies), self._member
        is_kept, _arguments, asks = self.machine.terms[queue]
        is_plain = is_kept and not (asks or self.machine.held_back)
        if is_plain and all(header.durable for header in headers):
            what = Kind.ENQUEUED, self.admission.now_us, queue, first
            run = run_of(Record(*what, member=member, request=request), count, headers, bodies)
            self.steps.append(RecordStep(run, is_kept=True))
            return
        for index, (header, body) in enumerate(
            zip(each_header(headers, count), bodies, strict=True)
        ):
            message = _new(StoredMessage, (first + index, header, body, False))
            number = None if request is None else request + index
            try:
                self.admission.admit(message, queue, None, member, number)
            except StoreError as refusal:
                refuse(index, refusal)


def enqueue_given(
    machine: StoreStateMachine,
    message_ids: Sequence[int],
    contents: tuple[Sequence[MessageHeader | None], Sequence[bytes | None]],
    queue: str | None,
    most_bytes: int,
    decide: Callable[[int, Admission], list[RecordStep]],
    refuse: Callable[[int, StoreError], list[RecordStep]],
    origin: RequestOrigin,
) -> list[RecordStep]:
    """Put messages on one queue whose ids were given out before.

    Args:
        machine: Of the store.
        message_ids: As they were sent; none twice.
        contents: Header and content of each, as they were sent. No header: the message is left to
            `decide`.
        queue: Name of the queue; None: all are left to `decide`.
        most_bytes: How long the content of a message may be.
        decide: The single call, of the message at an index.
        refuse: The steps that keep that the message at an index is refused.
        origin: Who asked; the records of `decide` say it themselves.
    """
    (member, first), (headers, bodies) = origin, contents
    arrivals = _Arrivals(machine, member)
    is_known_queue = queue in machine.terms and not machine.in_doubt
    known, staged, next_id = machine.state.messages, machine.state.staged, machine.next_id
    are_plain = [
        is_known_queue
        and header is not None
        and message_id < next_id
        and message_id not in known
        and message_id not in staged
        and _is_plain(header, body, most_bytes)
        for message_id, header, body in zip(message_ids, headers, bodies, strict=True)
    ]

    def refused(start: int, index: int, refusal: StoreError) -> None:
        arrivals.steps.extend(refuse(start + index, refusal))

    for start, end in _stretches(message_ids, are_plain):
        if are_plain[start]:
            some = headers[start:end]
            shared = some[:1] if all(header is some[0] for header in some) else some
            its = message_ids[start], shared, bodies[start:end], queue
            arrivals.extend(*its, partial(refused, start), first + start)  # type: ignore[arg-type]  # `are_plain`
            continue
        try:
            decide(start, arrivals.admission)
        except StoreError as refusal:
            refused(start, 0, refusal)
    return arrivals.steps


def _stretches(message_ids: Sequence[int], are_plain: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """Part messages, in order: plain ones whose ids rise by one together, any other by itself."""
    start = 0
    for end in range(1, len(message_ids) + 1):
        if (
            end == len(message_ids)
            or not (are_plain[start] and are_plain[end])
            or message_ids[end] != message_ids[end - 1] + 1
        ):
            yield start, end
            start = end


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


def decided(
    machine: StoreStateMachine,
    call: EntryCall,
    message_ids: Sequence[int],
    transaction: Transaction | None = None,
) -> Decided:
    """Decide a call about entries, for these of its messages; none of them is there twice.

    In a transaction there are no steps yet: the entries are claimed, and wait in it.
    """
    kind, detail = _KINDS.get(type(call)), None
    if isinstance(call, DequeueCall) and call.outcome is not None:
        try:
            detail = as_json(call.outcome)
        except InvalidRequest:  # each by itself says so
            kind = None

    def one(_index: int, message_id: int) -> list[RecordStep]:
        terms = {**call.by_name(), "transaction": transaction}
        del terms["message_ids"]
        steps: list[RecordStep] = getattr(machine, call.operation)(message_id, **terms)
        return steps

    record = Record(kind or Kind.RELEASED, 0, call.queue, holder=call.holder, detail=detail)
    is_plain, own = kind is not None, transaction
    steps, outcomes = of_entries(
        machine, message_ids, record, one, is_plain=is_plain, transaction=own
    )
    return Decided([*joined(steps)] if isinstance(call, ReleaseCall) else steps, outcomes)


_KINDS: Mapping[type[StoreCall], Kind] = {DequeueCall: Kind.DEQUEUED, AcquireCall: Kind.ACQUIRED}
"""Of calls whose records say the same of all messages; a release may not."""


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
    record: Record,
    decide: Callable[[int, int], list[RecordStep]],
    *,
    is_plain: bool = True,
    origin: RequestOrigin | None = None,
    transaction: Transaction | None = None,
) -> Decided:
    """Decide about entries of one queue: to acquire, to remove, or to give them back.

    Args:
        machine: Of the store.
        message_ids: None of them twice.
        record: What is asked of each: kind, queue, holder and detail.
        decide: The single call, of the id at an index.
        is_plain: The record says all of it; else all is left to `decide`.
        origin: Who asked, if the records are to say it; those of `decide` say it themselves.
        transaction: That claims the entries; then there are no steps yet.
    """
    queue, holder = record.queue or "", record.holder
    steps: list[RecordStep] = []
    outcomes: list[StoreError | None] = []
    is_open = transaction is None or transaction.is_open
    entries = _plain_entries(machine, record) if is_plain and is_open else _NO_ENTRIES
    held_by = holder if record.kind is Kind.DEQUEUED else None
    member, number = None if origin is None else origin.member, number_of(transaction)
    first = record._replace(at=machine.now_us(), transaction=number, member=member)
    for neighbours, are_free in _by_claims(machine, queue, message_ids):
        at = 0
        while at < len(neighbours):
            index, left = len(outcomes), neighbours[at:]
            count = entries.free(left, held_by) if are_free and is_run(left) else 0
            if count:
                request = None if origin is None else origin.first + index
                run = run_of(first._replace(message_id=left[0], request=request), count)
                if transaction is None:
                    steps.append(RecordStep(run, is_kept=True))
                else:
                    machine.claim(run, transaction, holder)
                outcomes += [None] * count
            else:
                outcomes.append(_outcome(steps, decide, index, left[0]))
            at += count or 1
    return Decided(steps, outcomes)


def _by_claims(
    machine: StoreStateMachine, queue: str, message_ids: Sequence[int]
) -> Iterator[tuple[Sequence[int], bool]]:
    """Part message ids as `rising_parts`, and where claims begin or end; True: without a claim."""
    for part in rising_parts(message_ids):
        if not machine.claims or not is_run(part):
            yield part, True
            continue
        are_free = [(queue, message_id) not in machine.claims for message_id in part]
        start = 0
        for end in range(1, len(part) + 1):
            if end == len(part) or are_free[end] is not are_free[start]:
                yield part[start:end], are_free[start]
                start = end


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


def rising_parts(message_ids: Sequence[int]) -> Iterator[Sequence[int]]:
    """Part message ids, in order, into ranges that rise by one; what is no id is by itself."""
    are_ids = type(message_ids) is range or {*map(type, message_ids)} == {int}
    return neighbours_in(message_ids) if are_ids else ([what] for what in message_ids)


def _plain_entries(machine: StoreStateMachine, record: Record) -> Entries:
    """Those of a queue if no rule but theirs may refuse a call; else none."""
    with suppress(InvalidRequest):
        check = check_entry if record.kind is Kind.ACQUIRED else check_taken
        check(0, record.queue, record.holder)
        return machine.queue(record.queue or "").entries
    return _NO_ENTRIES
