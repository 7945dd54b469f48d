"""Plan an undo: what goes back to where it was, in which order, and what cannot, and why. Pure.

The log says where each message of the operation was, and what became of it since
(`operation_history`). What the operation moved goes back; what it took off for good is put there
again as a copy, with another id, since its content may leave history at any time; what an undo
restored is taken off again. The order on a queue is that of the stays' keys. What waits behind a
message that comes back is put there again behind it: it keeps its id, delivery count, annotations
and expiry. What a consumer holds stays where it is.

Why a repeated undo does nothing twice: its steps are requests of one transaction each, in the order
of each queue. What one did is in the log, so the next plan finds these messages at home, with their
keys, and begins after them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from sparkstore.core.annotations import (
    RESTORED,
    RESTORED_BY,
    RESTORED_FROM,
    Annotations,
    annotations_of,
)
from sparkstore.core.fold import Entry, QueueState
from sparkstore.core.queue_arguments import terms_of
from sparkstore.operations.bulk import Room
from sparkstore.operations.operation_history import Course, OperationHistory, Stay
from sparkstore.operations.placement import Placement

HELD = "held by a consumer"
EXPIRED = "expired since"
FULL = "no room on its queue"
QUEUE_GONE = "its queue is gone"
CONTENT_GONE = "its content is gone from history"


class UndoStep(NamedTuple):
    """A placement, and the message whose content it needs.

    Attributes:
        placement: What is done; its draft is missing.
        copies: The message that it puts a copy of; 0: it puts none.
        message_bytes: Bytes of the message, as far as they are known.
    """

    placement: Placement
    copies: int = 0
    message_bytes: int = 0


@dataclass
class UndoPlan:
    """The steps of an undo, and the messages that cannot go back.

    Attributes:
        steps: In the order in which they are done.
        restored: Messages that go back, by their queue.
        removed: Messages that the operation restored, and that are taken off again, by queue.
        shifted: Messages that are put again behind those that come back, by queue.
        lost: Messages that cannot go back, by the reason.
        undone: Messages that are back already.
    """

    steps: list[UndoStep] = field(default_factory=list)
    restored: dict[str, int] = field(default_factory=dict)
    removed: dict[str, int] = field(default_factory=dict)
    shifted: dict[str, int] = field(default_factory=dict)
    lost: dict[str, list[int]] = field(default_factory=dict)
    undone: int = 0


def plan_undo(
    history: OperationHistory,
    queues: Mapping[str, QueueState],
    operation: str,
    now_us: int,
    size_of: Callable[[int], int] = lambda _message_id: 0,
) -> UndoPlan:
    """Decide what an undo does.

    Args:
        history: The messages of the operation that it undoes.
        queues: All queues as they are now, not before the end of the history.
        operation: The name of the undo.
        now_us: The time that expiry is decided by, UTC µs.
        size_of: Returns the bytes of a message's header and body, by its id; asked of copies that
            come to a queue with a limit of bytes.
    """
    plan = UndoPlan()
    coming: dict[str, list[tuple[int, UndoStep]]] = {}
    for course in history.courses:
        _decide(plan, coming, _Case(history, queues, operation, now_us), course)
    homes = dict.fromkeys(course.queue for course in history.courses if course.home is not None)
    for queue in homes:
        if queue in queues:
            steps = sorted(coming.get(queue, ()), key=lambda step: step[0])
            _leave_out(plan, queues[queue], queue, steps, size_of)
            _order(plan, history, queues[queue], queue, steps)
    return plan


class _Case(NamedTuple):
    history: OperationHistory
    queues: Mapping[str, QueueState]
    operation: str
    now_us: int

    def entry(self, course: Course) -> Entry | None:
        """The entry of a message where its course has led; None: it is not there any more."""
        if course.at is None or course.at[0] not in self.queues:
            return None
        stay = self.history.stays.get(course.at)
        entry = self.queues[course.at[0]].entries.get(course.at[1])
        is_it = stay is not None and entry is not None and entry.position == stay.position
        return entry if is_it else None

    def is_home(self, course: Course) -> bool:
        """True if nothing has to be done about a message any more."""
        if course.home is None:
            return course.at is None and course.ended is None
        if course.at is None or course.at[0] != course.queue or course.is_replaced:
            return False
        stay = self.history.stays.get(course.at)
        return stay is not None and stay.key == course.home.key


def _decide(
    plan: UndoPlan, coming: dict[str, list[tuple[int, UndoStep]]], case: _Case, course: Course
) -> None:
    if case.is_home(course):
        plan.undone += 1
        return
    entry, why = case.entry(course), course.ended
    if course.at is not None and entry is None:
        why = why or "left meanwhile"
    elif entry is not None and entry.acquired_by is not None:
        why = HELD
    elif course.queue not in case.queues:
        why = QUEUE_GONE
    home = course.home
    if why is None and home is not None and _is_over(home, case.now_us):
        why = EXPIRED
    if why is not None:
        plan.lost.setdefault(why, []).append(course.message_id)
    elif home is None:
        assert course.at is not None
        plan.steps.append(UndoStep(Placement(course.at[1], course.at[0])))
        _count(plan.removed, course.queue, 1)
    else:
        step = _step(case, course, home, entry)
        coming.setdefault(course.queue, []).append((home.key, step))


def _is_over(home: Stay, now_us: int) -> bool:
    return home.expires_at is not None and home.expires_at <= now_us


def _step(case: _Case, course: Course, home: Stay, entry: Entry | None) -> UndoStep:
    """Put a message, or a copy of one, back at home; its replacement, if it has one, leaves."""
    source, message_id = (None, 0) if course.at is None else (course.at[0], course.at[1])
    is_copy = course.at is None or course.is_replaced
    added = _restored(case, course, home) if is_copy else _annotations(home.detail)
    failures = home.delivery_count
    if source == course.queue and not is_copy:  # it was there all the time: failures since count
        stay = case.history.stays[source, message_id]
        failures += stay.delivery_count - stay.first_count
    placement = Placement(message_id, source, course.queue, None, home.expires_at, failures, added)
    message_bytes = 0 if entry is None else entry.message_bytes
    return UndoStep(placement, course.message_id if is_copy else 0, message_bytes)


def _annotations(detail: str | None) -> Annotations | None:
    return None if detail is None else annotations_of(detail)


def _restored(case: _Case, course: Course, home: Stay) -> Annotations:
    before = annotations_of(home.detail)
    kept = {key: value for key, value in before.items() if not key.startswith(RESTORED)}
    return {
        **kept,
        RESTORED_FROM: ("ulong", str(course.message_id)),
        RESTORED_BY: ("string", f"{case.operation}/{case.history.operation}"),
    }


def _leave_out(
    plan: UndoPlan,
    state: QueueState,
    queue: str,
    coming: list[tuple[int, UndoStep]],
    size_of: Callable[[int], int],
) -> None:
    """Leave out what a queue has no room for, and all that would stand behind that."""
    arguments, entries = terms_of(state.detail).arguments, state.entries
    room = Room(arguments, len(entries), entries.message_bytes)
    fitting = []
    for key, step in coming:
        size = step.message_bytes
        if step.copies and arguments.max_bytes is not None:
            size = size_of(step.copies)
        if step.placement.source == queue or room.takes(size):
            fitting.append((key, step))
        else:
            plan.lost.setdefault(FULL, []).append(step.copies or step.placement.message_id)
    coming[:] = fitting


def _order(
    plan: UndoPlan,
    history: OperationHistory,
    state: QueueState,
    queue: str,
    coming: list[tuple[int, UndoStep]],
) -> None:
    """Put what comes to a queue in order with what waits there.

    Both are sorted by their keys. As far as that is the order in which messages wait already, they
    stay; from the first that does not, all are put again. What is held is no part of it.
    """
    entries = state.entries
    leaving = {step.placement.message_id for _, step in coming if step.placement.source == queue}
    waiting = [
        (_key(history, queue, message_id, entry), UndoStep(_again(queue, message_id, entry)))
        for message_id, entry in entries.items()
        if message_id not in leaving and entry.acquired_by is None
    ]
    together = sorted([*coming, *waiting], key=lambda step: step[0])
    same = 0
    while same < len(waiting) and together[same] is waiting[same]:
        same += 1
    plan.steps += [step for _key, step in together[same:]]
    _count(plan.restored, queue, len(coming))
    _count(plan.shifted, queue, len(together) - same - len(coming))


def _count(counts: dict[str, int], queue: str, count: int) -> None:
    if count:
        counts[queue] = counts.get(queue, 0) + count


def _key(history: OperationHistory, queue: str, message_id: int, entry: Entry) -> int:
    stay = history.stays.get((queue, message_id))
    return stay.key if stay is not None and stay.position == entry.position else entry.position


def _again(queue: str, message_id: int, entry: Entry) -> Placement:
    carried = entry.expires_at, entry.delivery_count, _annotations(entry.detail)
    return Placement(message_id, queue, queue, None, *carried, is_shift=True)
