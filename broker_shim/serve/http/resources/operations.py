"""Requests for what history has: operations and their undo, and the events of a message.

They read the tables of the root on a thread of their own, after the log was flushed, so all that
was acknowledged before is in them. A broker without a root has no history, and says so.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from msgspec import Struct, field

from broker_shim.security.rules.http_roles import HttpRole
from broker_shim.security.rules.rights import Act
from broker_shim.serve.http.bodies import Count, Limit, Model, OrderModel
from broker_shim.serve.http.call_control import CallControl
from broker_shim.serve.http.calls import Call, iso_time
from broker_shim.serve.http.endpoint import API, MONITOR, OPERATOR, Endpoint
from broker_shim.serve.http.refusals import HttpRefusal
from broker_shim.serve.http.table_reads import flushed, read_tables
from sparkstore.core.queue_names import shown
from sparkstore.embedded.message_history import message_events
from sparkstore.operations.bulk import new_operation


class OperationQuery(Model):
    """How many of the newest operations are asked for."""

    limit: Limit = 100


class OperationRow(Struct, kw_only=True):
    """An operation that history has; `undone_by`: the operation that took it back."""

    operation: str
    action: str
    queue: str
    to: str | None
    at: str
    messages: int | None
    undoes: str | None
    undone_by: str | None


class OperationList(Struct, kw_only=True):
    """The newest operations, the newest last; history has `total`."""

    total: int
    items: list[OperationRow]


class UndoOrder(OrderModel):
    """An operation to take back; a dry run tells what would be."""


class UndoOutcome(Struct, kw_only=True):
    """The messages that an undo restores or removes by queue, and those it cannot, by reason."""

    undoes: str
    dry_run: bool
    restored: dict[str, int]
    removed: dict[str, int]
    shifted: dict[str, int]
    lost: dict[str, list[int]]
    queue: str | None = None
    not_bound_to: list[str] = field(default_factory=list)
    done: int = 0
    left: int = 0
    gone: int = 0
    operation: str | None = None


class HistoryQuery(Model):
    """The part of a message's history that is asked for."""

    offset: Count = 0
    limit: Limit = 100


class HistoryRow(Struct, kw_only=True):
    """An event of a message; `detail` is the outcome, or the annotations."""

    position: int
    at: str
    kind: str
    queue: str | None
    message_id: int
    holder: str | None
    delivery_count: int | None
    detail: Any
    traceparent: str | None


class MessageHistory(Struct, kw_only=True):
    """The events of a message in their order, as far back as history goes."""

    message: int
    items: list[HistoryRow]


async def list_operations(call: Call) -> OperationList:
    """List the bulk operations that history has, the newest last."""
    from sparkstore.recovery.operation_log import operations  # noqa: PLC0415  # it loads pyarrow

    root = await flushed(call)
    rows = await read_tables(call, lambda: operations(root))
    items = [
        OperationRow(
            operation=row.operation,
            action=row.action,
            queue=row.queue,
            to=row.to,
            at=iso_time(row.at),
            messages=row.messages,
            undoes=row.undoes,
            undone_by=row.undone_by,
        )
        for row in rows[-call.query.limit :]
    ]
    return OperationList(total=len(rows), items=items)


async def undo_operation(call: Call) -> UndoOutcome:
    """Take back what a bulk operation did, as far as it can be."""
    from sparkstore.control.undo_run import places_of, planned_undo, run_undo  # noqa: PLC0415
    from sparkstore.recovery.operation_log import operation_rows  # noqa: PLC0415
    from sparkstore.recovery.recovered_state import recovered_state  # noqa: PLC0415

    operation, name = call.names["operation"], new_operation()
    root = await flushed(call)
    rows = await read_tables(call, lambda: operation_rows(root, operation))
    # By names in the log, and before a plan tells of these queues: some may be deleted.
    homes, copies = places_of(operation, rows) if rows else (set(), set())
    await call.check_recorded(Act.SEND, sorted(homes))
    await call.check_recorded(Act.PURGE, sorted(copies))
    undo = await read_tables(
        call, lambda: planned_undo(root, recovered_state(root), operation, name, rows)
    )
    if undo.queue:
        await call.check_role(HttpRole.ADMIN, f"undoing the deletion of {shown(undo.queue)}")
        await call.check_recorded(Act.MAKE_QUEUE, [undo.queue])
    places = [step.placement for step in undo.plan.steps]
    await call.check_recorded(Act.PURGE, sorted({row.source for row in places if row.source}))
    await call.check_recorded(Act.SEND, sorted({row.target for row in places if row.target}))
    outcome = UndoOutcome(
        undoes=operation,
        dry_run=call.body.dry_run,
        restored=dict(undo.plan.restored),
        removed=dict(undo.plan.removed),
        shifted=dict(undo.plan.shifted),
        lost={reason: [*ids] for reason, ids in undo.plan.lost.items()},
        queue=undo.queue or None,
        not_bound_to=undo.unbound,
    )
    if not outcome.dry_run:
        control = CallControl(call)
        answer = await asyncio.to_thread(run_undo, control, root, undo, name, lambda _sum: None)
        outcome.operation = answer.named(name)
        outcome.done, outcome.left, outcome.gone = answer.done, answer.left, answer.gone
    return outcome


async def show_history(call: Call) -> MessageHistory:
    """Show the events of a message, consumed or not, in their order."""
    text = call.names["message"]
    if not text.isdecimal() or len(text) > len(str(1 << 62)):
        raise HttpRefusal(400, f"{text!r:.40} is no message id: GET …/messages lists them")
    root, page = await flushed(call), call.query
    message_id = int(text)
    events = partial(message_events, root, message_id, offset=page.offset, limit=page.limit)
    rows = await read_tables(call, events)
    if not rows and not page.offset:
        raise HttpRefusal(404, f"history has no message {text}: it keeps history_days")
    queues = {row["queue"] for row in rows if row["queue"] is not None}
    if queues:  # by their names in the log: some may be deleted
        await call.check_recorded(Act.RECEIVE, sorted(queues))
    else:
        await call.check_everywhere(Act.RECEIVE, "no event here names a queue")
    call.audit_read("show-history", next(iter(sorted(queues)), None), message=message_id)
    items = [HistoryRow(**{**row, "at": iso_time(row["at"])}) for row in rows]
    return MessageHistory(message=message_id, items=items)


ENDPOINTS = (
    Endpoint("GET", API + "/operations", MONITOR, list_operations, OperationList, OperationQuery),
    Endpoint(
        "POST",
        API + "/operations/{operation}/undo",
        OPERATOR,
        undo_operation,
        UndoOutcome,
        body=UndoOrder,
        target_acts=(Act.SEND, Act.PURGE, Act.MAKE_QUEUE),
        conflict=409,
    ),
    Endpoint(
        "GET",
        API + "/messages/{message}/history",
        MONITOR,
        show_history,
        MessageHistory,
        HistoryQuery,
        acts=(Act.RECEIVE,),
    ),
)
