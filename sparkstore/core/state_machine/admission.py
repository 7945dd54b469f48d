"""Decide whether a message may be put on a queue, and how: for every road that enqueues. Pure.

A single call, a batch, a frame of a member's requests, a transaction and a prepared branch all ask
`Admission.admit`. Whoever asks has seen that the queue is there, and that the message may be put on
it; what is decided here is what the queue makes of it:

* whether it is kept, by the durability of both, and whether the disk has room for it (`room`);
* whether the queue has room for it (`QueueArguments.why_full`), or makes some;
* when it expires (`QueueArguments.expires_at`), and from when on it is handed out
  (`QueueArguments.delivered_from`);
* whether it is a duplicate: the queue has seen its sender's id of late (`recent_ids`);
* which record says so, and whether that brings the content.

Why a limit holds for a frame of many: they are decided before any of them is applied, so an
`Admission` counts what it has admitted. It lives no longer than the state that it was made on.
What a prepared branch has promised to a queue counts, too: its commit cannot be refused any more.

Decision: a limit is for new messages. A message that is on a queue already may move to a full one:
a dead letter, what an administrator moves, what is routed on when its queue is deleted. Refused,
it would stay where it may not be, and be handed out again. Senders are refused until enough is
gone. Neither is a Broker-J host refused, for the reason that `room` gives.

Where `when_full` is `drop_head`, the oldest messages that wait are dequeued before the new one is
enqueued, in the same group of the log; also those that came earlier in the same frame. What
somebody holds stays: if all that is left is held, a new message is refused.

A full last-value queue likewise takes a newer value in the place of the one that waits. Which one
that is, the broker knows (`last_value`), but it may be behind the log: so the newest values that
were applied are remembered, too. Either is a hint: the entry itself is looked at. If somebody holds
it, there is no room, as for the broker itself.

A duplicate is accepted and dropped, as its sender only wants to know that it is there. It needs no
room. It is put on the queue and taken off in one group, so a member's request is answered by a
record of its number, and history tells of it. Of a prepared branch the commit decides it, so its
content is staged as that of the others: it may be no duplicate by then.

Where it is `dead_letter`, a new message that finds no room is put on the queue, on its dead-letter
queue, and taken off the first, in the same group. So history says how it came there, and a group
that is cut off leaves it nowhere. A dead letter is let in by every limit, so two queues that are
the dead letters of each other make no circle: a message moves once. If the dead-letter queue is not
there, the message is refused.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain, repeat

from sparkstore.core import records
from sparkstore.core.annotations import (
    QUEUE_FULL,
    Death,
    as_detail,
    delivery_time_of,
    with_death,
    with_delivery_time,
)
from sparkstore.core.entries import Entries
from sparkstore.core.fold import Entry
from sparkstore.core.queue_arguments import QueueArguments
from sparkstore.core.queue_names import shown
from sparkstore.core.records import Kind, MessageHeader, Record
from sparkstore.core.state_machine.call_values import RecordStep, StoredMessage, arrivals_in
from sparkstore.core.state_machine.definitions import as_json
from sparkstore.core.state_machine.room import RoomStateMachine
from sparkstore.core.state_machine.sole_host import sole_host
from sparkstore.errors import Full, InvalidRequest

DROPPED_OUTCOME: Mapping[str, str] = {"outcome": "dropped", "reason": "full"}
DROPPED = as_json(DROPPED_OUTCOME)
"""The outcome of a message that made room on a full queue, as JSON."""

REPLACED = as_json({"outcome": "replaced", "reason": QUEUE_FULL})
"""The outcome of a message that made room for a newer one of its value, as JSON."""

DUPLICATE_OUTCOME: Mapping[str, str] = {"outcome": "dropped", "reason": "duplicate"}
DUPLICATE = as_json(DUPLICATE_OUTCOME)
"""The outcome of a message whose queue has seen its id before, as JSON."""

_new = tuple.__new__  # a NamedTuple's own constructor is a call of Python for each


_Waiting = tuple[int, int, bool]
"""A message that may be taken off a queue: its id, its bytes, and whether it is kept."""


class Admission:
    """Decides about messages in their order, each with those before it in view.

    Attributes:
        steps: What was decided so far; who decides something else in between may add to it.
        number: Of the transaction, if it is one.
        now_us: The time at which all of it is decided.
        taken: Entries (queue, message id) that the same transaction dequeues.
        overflowed: Where (queue, message id) new messages went as dead letters for want of room.
        brought: Messages whose content comes with an earlier step of the same transaction.
    """

    def __init__(
        self,
        machine: RoomStateMachine,
        number: int | None = None,
        taken: Set[tuple[str, int]] = frozenset(),
        claimed: Container[tuple[str, int]] = frozenset(),
        *,
        is_promised: bool = False,
        is_tried: bool = False,
    ) -> None:
        """Begin with nothing admitted.

        Args:
            machine: Of the store; its state may not change until the steps are applied.
            number: Of the transaction, if it is one.
            taken: Entries that the transaction dequeues.
            claimed: Entries that the transaction does anything with: it cannot drop them.
            is_tried: The steps are not applied, as those of a branch that is being prepared.
            is_promised: They are of a branch that was prepared: nothing of it may be refused.
        """
        self._machine, self.number, self._is_promised = machine, number, is_promised
        self.now_us = machine.now_us()
        self._coming: dict[str, _Coming] = {}
        self._claimed, self._is_tried = claimed, is_tried
        self._named: set[tuple[str, Hashable]] = set()
        self.overflowed: set[tuple[str, int]] = set()
        self._decided: set[tuple[str | None, int | None]] = set()
        self._seen = 0
        self.steps: list[RecordStep] = []
        self.taken = taken
        self.brought: set[int] = set()

    def admit(
        self,
        message: StoredMessage,
        queue: str,
        detail: str | None = None,
        member: str | None = None,
        request: int | None = None,
        *,
        is_logged: bool = False,
        is_dead: bool = False,
    ) -> None:
        """Put a message on a queue: add the steps that do it.

        Args:
            message: With its content, unless that was staged or is in the log.
            queue: Name of the queue, which is there.
            detail: What the entry adds to the message's annotations.
            member: Who asked, of a store service.
            request: The number of its request.
            is_logged: The log has header and content of the message.
            is_dead: It comes as a dead letter, for which limits are not.

        Raises:
            Full: There is no room for it; no step was added.
            InvalidRequest: It was staged, and the queue does not keep it.
        """
        message_id, header, body, is_staged = message
        machine, target, identity, value, is_free = self._machine, None, None, None, is_dead
        is_kept, arguments, asks = machine.terms[queue]
        is_kept = is_kept and header.durable
        if is_staged and not is_kept and not is_logged:
            refusal = f"queue {queue!r} is transient: stage the message with durable=False"
            raise InvalidRequest(refusal)
        if machine.held_back and is_kept and not is_logged:
            # What is staged is on the disk, as are the messages of a branch that was promised.
            machine.check_room(is_new=message_id not in machine.state.staged)
        if self.overflowed and (queue, message_id) in self.overflowed:
            refusal = f"message {message_id} is on {shown(queue)} as a dead letter: send again"
            raise Full(refusal)
        if asks:
            if arguments.duplicate_window_ms is not None and not is_dead:
                identity = self._identity(message_id, header)
                if (is_free := self._is_again(queue, identity, arguments)) and not self._is_tried:
                    self._drop(message, queue, member, request, is_kept=is_kept)
                    return
            target, value = self._find_room(queue, arguments, message_id, header, is_kept, is_free)
            header, detail = self._timed(arguments, header, detail)
        if is_logged:
            header = header.known()
        brings = is_kept and not is_logged and not is_staged
        fields = (Kind.ENQUEUED, self.now_us, queue, message_id, None, None, self.number, header)
        rest = (None, None, None, detail, member, request, None)
        record = _new(Record, (*fields, body if brings else None, *rest))
        self.steps.append(_new(RecordStep, (record, is_kept, message, identity, value)))
        self._admitted(message, queue, identity, target, is_logged=is_logged or is_kept)

    def _timed(
        self, arguments: QueueArguments, header: MessageHeader, detail: str | None
    ) -> tuple[MessageHeader, str | None]:
        """Say when a message expires on its queue, and from when on it is handed out."""
        header = header._replace(expires_at=arguments.expires_at(header.expires_at, self.now_us))
        if arguments.delivery_delay_ms:
            at_us = arguments.delivered_from(delivery_time_of(detail), self.now_us)
            detail = with_delivery_time(detail, at_us or self.now_us)
        return header, detail

    def _admitted(
        self,
        message: StoredMessage,
        queue: str,
        identity: Hashable | None,
        target: str | None,
        *,
        is_logged: bool,
    ) -> None:
        """Note what was just put on a queue, for what follows in the same batch."""
        if identity is not None:
            self._named.add((queue, identity))
        if is_logged and self.number is not None:
            self.brought.add(message.message_id)
        if target is not None:
            self._dead_letter(message, target, is_logged=is_logged)

    def count_failures(self, queue: str, message_id: int, delivery_count: int) -> None:
        """Begin an entry that was just admitted with failed deliveries, as it had them elsewhere.

        A record of its own says so, as after a delivery: an entry that comes has none.
        """
        put = self.steps[-1]
        if put.record.kind is Kind.ENQUEUED and put.record.queue == queue:
            fields = self.now_us, queue, message_id, delivery_count, self.number
            self.steps.append(RecordStep(records.message_released(*fields), put.is_kept))

    def _dead_letter(self, message: StoredMessage, target: str, *, is_logged: bool) -> None:
        """Move a message that was just put on a full queue to the dead letters.

        The last record of a request has its number, so the first one gives that away.
        """
        put = self.steps[-1]
        first, message_id = put.record, message.message_id
        queue = first.queue or ""
        self.steps[-1] = put._replace(run=first._replace(member=None, request=None))
        detail = as_detail(with_death(first.detail, Death(queue, QUEUE_FULL, 0, self.now_us)))
        dead = message._replace(header=message.header._replace(expires_at=None))
        self.admit(dead, target, detail, is_logged=is_logged, is_dead=True)
        self.overflowed.add((target, message_id))
        why = overflow(target), self.number
        record = records.message_dequeued(self.now_us, queue, message_id, None, *why)
        record = record._replace(member=first.member, request=first.request)
        self.steps.append(RecordStep(record, put.is_kept))
        self._machine.has_dropped = True

    def _identity(self, message_id: int, header: MessageHeader) -> Hashable | None:
        """Return the id that a new message's sender gave it; None without, or if not new."""
        is_new = message_id not in self._machine.state.messages and not self._has_own_limits
        return self._machine.identity_of(header) if is_new else None

    def _is_again(self, queue: str, identity: Hashable | None, arguments: QueueArguments) -> bool:
        """Tell whether a message of this id came in the queue's window, or before in this batch."""
        if identity is None:
            return False
        since_us = self.now_us - (arguments.duplicate_window_ms or 0) * 1000
        is_known = self._machine.recent_ids.is_known(queue, identity, since_us)
        return is_known or (queue, identity) in self._named

    def _drop(
        self,
        message: StoredMessage,
        queue: str,
        member: str | None,
        request: int | None,
        *,
        is_kept: bool,
    ) -> None:
        """Put a duplicate on its queue without its content, and take it off: history says so.

        Its content is not written for this queue; another queue of the message may bring it.
        """
        known, message_id = message.header.known(), message.message_id
        place = self.now_us, queue, message_id
        put = records.message_enqueued(*place, known, None, self.number)
        bare = message._replace(header=known, body=b"", is_staged=False)
        self.steps.append(RecordStep(put, is_kept, bare))
        off = records.message_dequeued(*place, None, DUPLICATE, self.number)
        self.steps.append(RecordStep(off._replace(member=member, request=request), is_kept))
        self._machine.has_dropped = True

    def _find_room(
        self,
        queue: str,
        arguments: QueueArguments,
        message_id: int,
        header: MessageHeader,
        is_kept: bool,  # noqa: FBT001
        is_free: bool,  # noqa: FBT001
    ) -> tuple[str | None, str | None]:
        """Count a message that comes to a queue with limits; make room for it where that is asked.

        Returns:
            The queue where it goes instead; its value, on a last-value queue.

        Raises:
            Full: There is no room for it.
        """
        entries = self._machine.state.queues[queue].entries
        coming = self._coming.get(queue)
        if coming is None:
            coming = self._coming[queue] = self._promised(queue, entries)
        size = header.header_bytes + header.body_bytes
        depth, byte_count = len(entries) + coming.count + 1, entries.message_bytes + coming.bytes
        why = arguments.why_full(depth, byte_count + size)
        value, older = self._with_value(queue, arguments, header, coming)
        if why is not None and not self._has_own_limits:
            where = queue, arguments, coming, (depth, byte_count + size)
            oldest = self._waiting(queue, coming) if arguments.drops_head else ()
            has_room = self._take_off(*where, older, REPLACED)
            has_room = has_room or self._take_off(*where, oldest, DROPPED)
            is_asked = not (has_room or is_free) and message_id not in self._machine.state.messages
            if is_asked and (target := self._overflow_queue(arguments, queue, message_id)):
                # The commit of a branch decides it.
                return (None if self._is_tried else target), value
            if is_asked and not self._is_promised:
                self._machine.on_full(queue)
                message = f"queue {shown(queue)} is full ({why}): nothing was done, send again"
                message += " when messages have left it"
                raise Full(message)
        coming.count, coming.bytes = coming.count + 1, coming.bytes + size
        if arguments.drops_head or value is not None:
            coming.new[message_id] = size, is_kept
        if value is not None:
            coming.values[value] = message_id
        return None, value

    @property
    def _has_own_limits(self) -> bool:
        """True if whoever enqueues sees to limits: a Broker-J host, the first store of a chain."""
        return self._machine.is_copy or sole_host(self._machine.state) is not None

    def _overflow_queue(self, arguments: QueueArguments, queue: str, message_id: int) -> str | None:
        """The queue of dead letters for a new message; None if there is none that takes it."""
        target = arguments.overflow_queue(queue)
        overflow_queue = self._machine.state.queues.get(target or "")
        if target is None or overflow_queue is None or message_id in overflow_queue.entries:
            return None
        begin, self._seen = self._seen, len(self.steps)
        for step in self.steps[begin:]:
            self._decided.update((step.record.queue, number) for number in step.run.message_ids)
        return None if (target, message_id) in self._decided else target

    def _take_off(
        self,
        queue: str,
        arguments: QueueArguments,
        coming: _Coming,
        waiting_now: tuple[int, int],
        waiting: Iterable[_Waiting],
        outcome: str,
    ) -> bool:
        """Take messages that wait off a full queue, in their order; none, if that makes no room.

        What a branch only promises makes no room yet: its commit does.
        """
        (depth, byte_count), why = waiting_now, (None, outcome, self.number)
        off: list[RecordStep] = []
        for message_id, size, is_kept in waiting:
            if self._is_tried:
                return True
            record = records.message_dequeued(self.now_us, queue, message_id, *why)
            off.append(RecordStep(record, is_kept))
            depth, byte_count = depth - 1, byte_count - size
            if arguments.why_full(depth, byte_count) is None:
                break
        else:
            return False
        self.steps += off
        self._machine.has_dropped = True
        coming.gone.update(step.record.message_id or 0 for step in off)
        coming.count -= waiting_now[0] - depth
        coming.bytes -= waiting_now[1] - byte_count
        return True

    def _waiting(self, queue: str, coming: _Coming) -> Iterator[_Waiting]:
        """Messages that nobody holds or has a claim on, the oldest first."""
        entries = self._machine.state.queues[queue].entries
        waiting = chain(entries.walk(), zip(coming.new, repeat(None)))
        return filter(None, (self._free(queue, *entry, coming) for entry in waiting))

    def _free(
        self, queue: str, message_id: int, entry: Entry | None, coming: _Coming
    ) -> _Waiting | None:
        """A message of a queue; None if somebody holds it or has a claim on it."""
        key = queue, message_id
        if message_id in coming.gone or key in self._claimed or key in self._machine.claims:
            return None
        if entry is None:
            return message_id, *coming.new[message_id]
        is_free = entry.acquired_by is None
        return (message_id, entry.message_bytes, entry.position > 0) if is_free else None

    def _with_value(
        self, queue: str, arguments: QueueArguments, header: MessageHeader, coming: _Coming
    ) -> tuple[str | None, Iterable[_Waiting]]:
        """The value of a new message on a last-value queue, and what waits there with it."""
        if not arguments.has_limits or (key := arguments.last_value_key) is None:
            return None, ()
        value, newest = self._machine.last_value(queue, key, header)
        recent = self._machine.recent_values.get((queue, value or ""))
        entries = self._machine.state.queues[queue].entries
        for older in (coming.values.get(value), recent, newest) if value is not None else ():
            if older is not None and (older in entries or older in coming.new):
                return value, filter(None, [self._free(queue, older, entries.get(older), coming)])
        return value, ()

    def _promised(self, queue: str, entries: Entries) -> _Coming:
        """Count what branches in doubt will put there, less what this transaction takes off."""
        headers = [
            message.header
            for branch in self._machine.branches.values()
            for target, message in arrivals_in(branch.steps)
            if target == queue
        ]
        if self._is_promised:
            headers = []
        off = [entries.get(message_id) for name, message_id in self.taken if name == queue]
        gone = [entry.message_bytes for entry in off if entry is not None]
        comes = [header.header_bytes + header.body_bytes for header in headers]
        return _Coming(len(comes) - len(gone), sum(comes) - sum(gone))


@dataclass(slots=True)
class _Coming:
    """The change that an admission makes to the count and size of a queue with limits.

    Attributes:
        count: Messages that come, less those that go.
        bytes: The same of their headers and bodies.
        new: Size of each that comes, and whether it is kept, by its id, where it may be dropped.
        gone: Those that are dropped.
        values: The newest message of each value that comes to a last-value queue.
    """

    count: int
    bytes: int
    new: dict[int, tuple[int, bool]] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    values: dict[str, int] = field(default_factory=dict)


def dropped_of(steps: Sequence[RecordStep]) -> list[RecordStep]:
    """Return the steps that take messages off full queues or make dead letters of them."""
    dropped: list[RecordStep] = []
    for index, step in enumerate(steps):
        detail = step.record.detail
        if detail in (DROPPED, DUPLICATE, REPLACED):
            dropped.append(step)
        elif detail is not None and detail.startswith(_OVERFLOW):
            dropped += steps[index - 1 : index + 1]  # the dead letter, and what it was
    return dropped


def overflow(target: str) -> str:
    """Return the outcome, as JSON, of a message that became a dead letter for want of room."""
    return as_json({**_OVERFLOW_OUTCOME, "to": target})


_OVERFLOW_OUTCOME = {"outcome": "dead-lettered", "reason": QUEUE_FULL}
_OVERFLOW = as_json(_OVERFLOW_OUTCOME).removesuffix("}")
