"""Follow the messages of a bulk operation through the records of the log. Pure.

Nothing is stored for an operation: the log has it already. Each of its requests is a transaction,
and the outcome of each message that it took names the operation. A message that an undo restored
is a copy, whose annotations name the undo. A queue's deletion is one record, and its position names
it. So an operation is in the log as far as its transactions are, whatever was killed when.

An undo is an operation, too, and names what it undoes. An operation, what undoes it, what undoes
that, and so on are its *family*. A `Course` follows one message through the family: from its home,
the place on a queue that it had before the operation, to where it is now. Others may have taken it
meanwhile; then its course has ended, and it says how.

A stay on a queue has a *key*, which its order there goes by: the position of the record that began
it. What any undo puts back has the key again that it had there, and what an undo puts again behind
that keeps its key. So the order that an undo is to reach can be read from the log at any time, also
after one that was cut off.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

from sparkstore.core.annotations import RESTORED_BY, RESTORED_FROM, annotations_of
from sparkstore.core.records import Kind
from sparkstore.operations.placement import SHIFTED

_DEQUEUED, _ENQUEUED = Kind.DEQUEUED.column, Kind.ENQUEUED.column  # asked of each record
_DELETED = "d"
_DIGITS = 8
"""At least so many, so that the name is one of an operation (`bulk.is_operation`)."""


class LogRow(NamedTuple):
    """The columns of a record that are needed here; `kind` as the tables spell it."""

    position: int
    kind: str
    queue: str | None
    message_id: int | None
    at: int
    transaction: int | None = None
    delivery_count: int | None = None
    expires_at: int | None = None
    detail: str | None = None
    exchange: str | None = None
    binding_key: str | None = None


@dataclass(slots=True)
class Stay:
    """A message's stay on a queue.

    Attributes:
        position: Position of the record that began it.
        key: What its order on the queue goes by.
        delivery_count: Failed deliveries so far.
        detail: What the entry adds to the message's annotations (JSON).
        expires_at: UTC µs; None: never.
        first_count: The failed deliveries that it began with.
    """

    position: int
    key: int
    delivery_count: int = 0
    detail: str | None = None
    expires_at: int | None = None
    first_count: int = 0


Spot = tuple[str, int]
"""Queue and message id."""


@dataclass(slots=True)
class Course:
    """The course of one message through a family of operations.

    Attributes:
        message_id: The message that the operation took, or that it restored.
        queue: Its home; of one that the operation restored, the queue that it was put on.
        home: Its stay before the operation; None: the operation restored it.
        at: Where the message, or its copy, is now because of the family; None: on no queue.
        ended: How others took it from there; None: they did not.
        is_replaced: At `at` is another message, which came in its place (`resubmit`).
    """

    message_id: int
    queue: str
    home: Stay | None
    at: Spot | None = None
    ended: str | None = None
    is_replaced: bool = False


class Mark(NamedTuple):
    """An operation as a record names it."""

    operation: str
    undoes: str | None
    outcome: Mapping[str, Any]


@dataclass
class OperationHistory:
    """The courses of an operation's messages, and all stays on its queues.

    Attributes:
        operation: The name that its records have.
        family: The operations of its family, in the order of the log.
        courses: One for each message that the operation took or restored, in that order.
        stays: Each message that is on one of its queues now.
        definition: Definition of the queue that the operation deleted (JSON).
        bindings: Bindings that this queue had: exchange, key, and arguments (JSON).
    """

    operation: str
    family: list[str]
    courses: list[Course] = field(default_factory=list)
    stays: dict[Spot, Stay] = field(default_factory=dict)
    definition: str | None = None
    bindings: list[tuple[str, str, str]] = field(default_factory=list)


def deletion_name(position: int) -> str:
    """Name the deletion of a queue by the position of its record."""
    return f"{_DELETED}{position:0{_DIGITS}}"


def deletion_position(operation: str) -> int | None:
    """Return the position of the record that an operation's name means; None: it is no deletion."""
    digits = operation.removeprefix(_DELETED)
    is_one = len(digits) >= _DIGITS and digits != operation and digits.isdecimal()
    return int(digits) if is_one else None


def mark_of(row: LogRow) -> Mark | None:
    """Read the operation that a record belongs to; None: to none.

    A record that puts a restored message elsewhere has its annotations, too: who knows whether it
    is the first of its message sees to that.
    """
    if row.detail is None:
        return None
    if row.kind == _DEQUEUED and '"operation"' in row.detail:
        return _mark_in(row.detail)
    if row.kind == _ENQUEUED and RESTORED_BY in row.detail:
        operation, _, undoes = annotations_of(row.detail)[RESTORED_BY][1].partition("/")
        return Mark(operation, undoes or None, {"outcome": "restored"})
    return None


@lru_cache(maxsize=256)
def _mark_in(detail: str) -> Mark:
    """Read the outcome of a message, which is that of all that went with it."""
    outcome = json.loads(detail)
    return Mark(outcome["operation"], outcome.get("undoes"), outcome)


def family_of(operation: str, marks: Iterable[Mark]) -> list[str]:
    """Find the operations that undo an operation, undo that, and so on; marks in log order."""
    family = {operation: None}
    for mark in marks:
        if mark.undoes in family:
            family[mark.operation] = None
    return [*family]


def follow(operation: str, rows: Sequence[LogRow]) -> OperationHistory:
    """Follow the messages of an operation.

    Args:
        operation: The name that its records have.
        rows: Every record about the queues of its family, in the order of positions.
    """
    marks = (mark for row in rows if (mark := mark_of(row)) is not None)
    history = OperationHistory(operation, family_of(operation, marks))
    walk = _Walk(history, deletion_position(operation))
    for group in _transactions(rows):
        walk.take(group)
    return history


def _transactions(rows: Sequence[LogRow]) -> Iterator[list[LogRow]]:
    """Part records into transactions, whose positions follow one another."""
    group: list[LogRow] = []
    for row in rows:
        last = group[-1] if group else None
        is_one = last is not None and last.transaction is not None
        if last and not (
            is_one and last.transaction == row.transaction and last.position + 1 == row.position
        ):
            yield group
            group = []
        group.append(row)
    if group:
        yield group


class _Walk:
    """Applies records, transaction by transaction."""

    def __init__(self, history: OperationHistory, deletion: int | None) -> None:
        self._history, self._deletion = history, deletion
        self._by_spot: dict[Spot, Course] = {}
        self._by_home: dict[Spot, Course] = {}
        self._keys: dict[int, int] = {}
        self._taken_keys: dict[tuple[str, str, int], int] = {}
        self._seen: set[int] = set()
        self._details: dict[str, str] = {}
        self._bindings: dict[tuple[str, str, str], str] = {}
        self._unbound: list[tuple[int, tuple[str, str, str]]] = []
        self._came: dict[int, LogRow] = {}

    def take(self, group: list[LogRow]) -> None:
        """Apply the records of one transaction, or a single one."""
        self._came = {
            row.message_id: row
            for row in group
            if row.kind == _ENQUEUED and row.message_id is not None
        }
        for row in group:
            apply = self._APPLY.get(row.kind)
            if apply is not None and row.queue is not None:
                apply(self, row, row.queue)

    def _enqueued(self, row: LogRow, queue: str) -> None:
        assert row.message_id is not None
        stay = Stay(row.position, row.position, 0, row.detail, row.expires_at)
        stay.key = self._keys.pop(row.position, row.position)
        self._history.stays[queue, row.message_id] = stay
        mark = None if row.message_id in self._seen else mark_of(row)
        self._seen.add(row.message_id)
        if mark is not None and mark.undoes is not None:
            old = int(annotations_of(row.detail)[RESTORED_FROM][1])
            stay.key = self._taken_keys.get((mark.undoes, queue, old), stay.key)
            self._restored((queue, row.message_id), old, mark.operation)

    def _restored(self, spot: Spot, old: int, undo: str) -> None:
        """Note a copy of a message that an undo of the family put on a queue."""
        course = None
        if undo == self._history.operation and spot not in self._by_spot:
            course = Course(spot[1], spot[0], None, spot)
            self._history.courses.append(course)
        elif undo in self._history.family:
            course = self._by_home.get((spot[0], old))
        if course is not None:
            course.at, course.is_replaced, course.ended = spot, False, None
            self._by_spot[spot] = course

    def _released(self, row: LogRow, queue: str) -> None:
        stay = self._history.stays.get((queue, row.message_id or 0))
        if stay is not None:
            stay.delivery_count = row.delivery_count or 0
            stay.detail = stay.detail if row.detail is None else row.detail
            if row.message_id in self._came:
                stay.first_count = stay.delivery_count

    def _dequeued(self, row: LogRow, queue: str) -> None:
        assert row.message_id is not None
        spot = queue, row.message_id
        stay = self._history.stays.pop(spot, None)
        course, mark = self._by_spot.pop(spot, None), mark_of(row)
        if stay is None:
            return
        if mark is not None and mark.outcome["outcome"] == SHIFTED:
            self._shifted(spot, stay, course)
            return
        if mark is not None:
            self._taken_keys[mark.operation, queue, row.message_id] = stay.key
            self._set_key(row.message_id, mark)
        if mark is None or mark.operation not in self._history.family:
            self._left(course, row)
        elif mark.operation == self._history.operation:
            self._taken(row.message_id, queue, stay, mark)
        elif course is not None:
            self._place(course, row.message_id, mark)

    def _shifted(self, spot: Spot, stay: Stay, course: Course | None) -> None:
        """Keep key and course of a message that was put again on its queue."""
        came = self._came.get(spot[1])
        if came is not None:
            self._keys[came.position] = stay.key
        if course is not None:
            self._by_spot[spot] = course

    def _set_key(self, message_id: int, mark: Mark) -> None:
        """Give what an undo puts back the key that it had there."""
        came = self._came.get(message_id)
        if came is None or came.queue is None or mark.undoes is None:
            return
        key = self._taken_keys.get((mark.undoes, came.queue, message_id), came.position)
        stay = self._history.stays.get((came.queue, message_id))
        if stay is not None and stay.position == came.position:
            stay.key = key
        else:
            self._keys[came.position] = key

    def _left(self, course: Course | None, row: LogRow) -> None:
        if course is not None:
            outcome = json.loads(row.detail or "{}")
            to = f" to {outcome['to']}" if "to" in outcome else ""
            course.at, course.ended = None, f"{outcome.get('outcome', 'consumed')}{to} since"

    def _taken(self, message_id: int, queue: str, stay: Stay, mark: Mark) -> None:
        """Begin the course of a message that the operation took."""
        course = Course(message_id, queue, stay)
        self._place(course, message_id, mark)
        self._history.courses.append(course)
        self._by_home[queue, message_id] = course

    def _place(self, course: Course, message_id: int, mark: Mark) -> None:
        """Note where a message went, by the record that put it, or what replaced it, there."""
        replacement = mark.outcome.get("as")
        came = self._came.get(message_id if replacement is None else int(replacement))
        course.at = None
        if came is not None and came.queue is not None and came.message_id is not None:
            course.at = came.queue, came.message_id
            self._by_spot[course.at] = course
            course.is_replaced = replacement is not None and not _is_copy(came, course.message_id)

    def _created(self, row: LogRow, queue: str) -> None:
        self._details[queue] = row.detail or "{}"

    def _bound(self, row: LogRow, queue: str) -> None:
        self._bindings[row.exchange or "", queue, row.binding_key or ""] = row.detail or "{}"

    def _unbound_from(self, row: LogRow, queue: str) -> None:
        self._unbound.append((row.position, (row.exchange or "", queue, row.binding_key or "")))

    def _destroyed(self, row: LogRow, queue: str) -> None:
        is_ours = row.position == self._deletion
        for spot in [spot for spot in self._history.stays if spot[0] == queue]:
            stay, course = self._history.stays.pop(spot), self._by_spot.pop(spot, None)
            self._taken_keys[deletion_name(row.position), queue, spot[1]] = stay.key
            if is_ours:
                course = Course(spot[1], queue, stay)
                self._history.courses.append(course)
                self._by_home[spot] = course
            elif course is not None:
                course.at, course.ended = None, "its queue was deleted since"
        if is_ours:
            self._history.courses.sort(key=_home_key)
            self._history.definition = self._details.get(queue)
            self._note_bindings(row.position)

    def _note_bindings(self, position: int) -> None:
        """Note the bindings of a deleted queue: they went by the records right before its own."""
        for unbound, key in reversed(self._unbound):
            position -= 1
            if unbound != position:
                break
            detail = self._bindings.get(key, "{}")
            self._history.bindings.append((key[0], key[2], detail))

    _APPLY: ClassVar[dict[str, Callable[[_Walk, LogRow, str], None]]] = {
        _ENQUEUED: _enqueued,
        _DEQUEUED: _dequeued,
        Kind.RELEASED.column: _released,
        Kind.CREATED.column: _created,
        Kind.ALTERED.column: _created,
        Kind.BOUND.column: _bound,
        Kind.UNBOUND.column: _unbound_from,
        Kind.DESTROYED.column: _destroyed,
    }


def _is_copy(row: LogRow, message_id: int) -> bool:
    """True if a record puts a copy of a message on a queue."""
    return annotations_of(row.detail).get(RESTORED_FROM) == ("ulong", str(message_id))


def _home_key(course: Course) -> int:
    return 0 if course.home is None else course.home.key
