"""Carries out an undo: reads the log, plans, and gives requests to whoever has the queues.

The log is flushed first, so that all of the operation is in the tables. Then a deleted queue is
made again, and the plan's steps go in requests, each one transaction: neighbours that go the same
way are one run. An undo that is cut off can be run again: what its requests did is in the log, and
`operation_history` finds it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sparkstore.content.reader import ContentReader
from sparkstore.core.fold import QueueState, State
from sparkstore.core.queue_arguments import arguments_of, own_arguments_of
from sparkstore.core.queue_names import shown
from sparkstore.errors import InvalidRequest
from sparkstore.operations.administration import AdminAction, Order
from sparkstore.operations.bulk import RUN_IDS, TURN_IDS, Answer, MessageDraft
from sparkstore.operations.operation_history import LogRow, OperationHistory, follow
from sparkstore.operations.placement import Placement, PlacementRequest, joined
from sparkstore.operations.undo import CONTENT_GONE, UndoPlan, UndoStep, plan_undo
from sparkstore.recovery.operation_log import operation_rows
from sparkstore.tables.root import Root

_PUT_BYTES = 4 << 20


class PlaceClient(Protocol):
    """The part of `AdminClient` that an undo needs: orders, and changes of place."""

    def order(self, order: Order) -> dict[str, Any]:
        """Carry out an order of an administrator."""

    def place(self, request: PlacementRequest) -> Answer:
        """Carry out changes of place, all of those that are possible or none."""


@dataclass
class Undo:
    """An undo that was planned.

    Attributes:
        operation: The name of the operation that it undoes.
        history: What became of the operation's messages.
        plan: What goes back, and what cannot.
        queue: The queue that was deleted; empty: none was.
        unbound: Its exchanges that are gone, so that it is not bound to them again.
    """

    operation: str
    history: OperationHistory
    plan: UndoPlan
    queue: str = ""
    unbound: list[str] = field(default_factory=list)


def planned_undo(
    root: Root, state: State, operation: str, undo: str, rows: Sequence[LogRow] | None = None
) -> Undo:
    """Plan to undo an operation.

    Args:
        root: The root whose log has it.
        state: What the tables have; read after all of the operation was in them.
        operation: The name of the operation.
        undo: The name that the undo has in history.
        rows: The records of the operation (`operation_rows`); None: they are read.

    Raises:
        InvalidRequest: There is no such operation, or it is undone already; a queue that it
            deleted is there again with other arguments.
        Unavailable: History cannot be read now.
    """
    rows = operation_rows(root, operation) if rows is None else rows
    if not rows:
        message = f"no operation {shown(operation)}: sparkstore operations lists those that history"
        raise InvalidRequest(f"{message} has")
    history, queues = follow(operation, rows), dict(state.queues)
    deleted = "" if history.definition is None else rows[0].queue or ""
    is_missing = _is_missing(history.definition, deleted, state)
    if is_missing:
        queues[deleted] = QueueState(history.definition or "{}", 0)
    reader = ContentReader(root)

    def size_of(message_id: int) -> int:
        header = reader.headers([message_id]).get(message_id)
        return 0 if header is None else header.header_bytes + header.body_bytes

    plan = plan_undo(history, queues, undo, time.time_ns() // 1000, size_of)
    _find_content(reader, plan)
    unbound = [name for name, _key, _detail in history.bindings if name not in state.exchanges]
    planned = Undo(operation, history, plan, deleted, sorted({*unbound}))
    if not (is_missing or plan.steps) and (len(history.family) > 1 or not plan.lost):
        raise InvalidRequest(_why_nothing(operation, history.family[-1]))
    return planned


def places_of(operation: str, rows: Sequence[LogRow]) -> tuple[set[str], set[str]]:
    """Name where messages of an operation go back to, and where an undo's copies are taken off.

    Whoever may not do that there is not to be told what a plan says of these queues.
    """
    history = follow(operation, rows)
    homes = {course.queue for course in history.courses if course.home is not None}
    if history.definition is not None and rows[0].queue:
        homes.add(rows[0].queue)
    return homes, {course.queue for course in history.courses if course.home is None}


def _why_nothing(operation: str, newest: str) -> str:
    if newest == operation:
        return f"operation {operation} left nothing to undo: its messages are where they were"
    return f"operation {operation} is undone already: sparkstore undo ROOT {newest} takes it back"


def _is_missing(definition: str | None, queue: str, state: State) -> bool:
    """Tell whether a queue that was deleted has to be made again.

    Raises:
        InvalidRequest: It is there with other arguments.
    """
    if definition is None or queue not in state.queues:
        return definition is not None
    detail = state.queues[queue].detail
    if json.loads(detail) != json.loads(definition):
        message = f"queue {shown(queue)} is there again as {detail}, it was {definition}: alter or"
        raise InvalidRequest(f"{message} delete it first")
    return False


def _find_content(reader: ContentReader, plan: UndoPlan) -> None:
    """Leave out what history has no content of any more."""
    wanted = [step.copies for step in plan.steps if step.copies]
    headers = reader.headers(wanted)
    gone = [message_id for message_id in wanted if message_id not in headers]
    if gone:
        plan.lost.setdefault(CONTENT_GONE, []).extend(gone)
        plan.steps = [step for step in plan.steps if step.copies not in {*gone}]
        for queue in plan.restored:
            placements = (step.placement for step in plan.steps)
            back = (not place.is_shift and place.target == queue for place in placements)
            plan.restored[queue] = sum(back)


def run_undo(
    control: PlaceClient, root: Root, planned: Undo, undo: str, show: Callable[[Answer], None]
) -> Answer:
    """Carry out a planned undo.

    Args:
        control: The client that changes queues.
        root: The root whose content is read.
        planned: What is to be done.
        undo: The name that the undo has in history.
        show: Called with the sum so far, after each request.

    Raises:
        StoreError: The broker or the store refused; run it again.
    """
    if planned.queue:
        _make_queue(control, planned)
    reader, total = ContentReader(root), Answer()
    for part in _portions(planned.plan.steps, reader):
        total = total.plus(control.place(PlacementRequest(part, undo, planned.operation)))
        show(total)
    return total


def _make_queue(control: PlaceClient, planned: Undo) -> None:
    """Make a queue again as it was; what is there already stays, after an undo that was cut off."""
    definition = planned.history.definition or "{}"
    content: dict[str, Any] = json.loads(definition)
    make = Order(AdminAction.CREATE_QUEUE, planned.queue, arguments=own_arguments_of(definition))
    control.order(make._replace(durability=content.get("durability", 2)))
    for exchange, key, detail in planned.history.bindings:
        if exchange not in planned.unbound:
            bind = Order(AdminAction.ADD_BINDING, planned.queue, exchange, key)
            control.order(bind._replace(arguments=arguments_of(detail)))


def _portions(steps: list[UndoStep], reader: ContentReader) -> Iterator[tuple[Placement, ...]]:
    """Part steps into requests: of so many runs, messages, and bytes of copies at most."""
    part, messages, size = list[Placement](), 0, 0
    for placement in joined(_drafted(steps, reader)):
        length = 0 if placement.draft is None else _bytes_of(placement.draft)
        for some in _cut(placement):
            is_full = len(part) == TURN_IDS or messages + some.messages > RUN_IDS
            if part and (is_full or size + length > _PUT_BYTES):
                yield tuple(part)
                part, messages, size = [], 0, 0
            part.append(some)
            messages, size = messages + some.messages, size + length
    if part:
        yield tuple(part)


def _drafted(steps: Iterable[UndoStep], reader: ContentReader) -> Iterator[Placement]:
    """Iterate over placements, those of copies with their content."""
    for placement, copies, _size in steps:
        if copies:
            header, body = reader.read(copies)
            header = header._replace(expires_at=placement.expires_at)
            yield placement._replace(draft=MessageDraft(header, body))
        else:
            yield placement


def _cut(placement: Placement) -> Iterator[Placement]:
    """Cut a long run into parts that a request may have."""
    for at in range(0, placement.messages, RUN_IDS):
        ids = placement.message_ids[at : at + RUN_IDS]
        yield placement._replace(message_id=ids.start, messages=len(ids))


def _bytes_of(draft: MessageDraft) -> int:
    return len(draft.body) + draft.header.header_bytes
