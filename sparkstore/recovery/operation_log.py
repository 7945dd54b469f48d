"""Read the bulk operations that the log has, and the records that tell what became of one. No JVM.

`sparkstore.operations.operation_history` gives these records their meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from sparkstore.core.annotations import RESTORED_BY
from sparkstore.core.queue_names import is_reserved
from sparkstore.core.records import Kind
from sparkstore.operations.operation_history import (
    LogRow,
    Mark,
    deletion_name,
    deletion_position,
    family_of,
    mark_of,
)
from sparkstore.recovery.recorded_rows import recorded_rows
from sparkstore.tables.root import Root
from sparkstore.tables.schema import ROW
from sparkstore.tables.snapshot import columns_of

_COLUMNS = columns_of(ROW, ("epoch", *LogRow._fields))
_KINDS = tuple(
    kind.column
    for kind in (
        *(Kind.ENQUEUED, Kind.DEQUEUED, Kind.RELEASED, Kind.CREATED, Kind.ALTERED),
        *(Kind.DESTROYED, Kind.BOUND, Kind.UNBOUND),
    )
)


@dataclass
class LoggedOperation:
    """A bulk operation that the log has.

    Attributes:
        operation: The name that its records have.
        action: What it did: an outcome, `redriven`, `deleted` or `undone`.
        queue: The queue that its first message left; of an undo, one that it restored.
        to: Where that message went; None: on no queue.
        at: When it began, UTC µs.
        messages: So many of its records the log has; of a deletion None: they are not counted.
        undoes: The operation that it undoes; None: it is no undo.
        undone_by: The newest operation that undoes it; None: none did.
    """

    operation: str
    action: str
    queue: str
    to: str | None
    at: int
    messages: int | None
    undoes: str | None
    undone_by: str | None = None


def operations(root: Root) -> list[LoggedOperation]:
    """List the bulk operations of the root, in the order in which they began.

    Raises:
        Unavailable: Storage did not answer, again and again.
    """
    logged: dict[str, LoggedOperation] = {}
    copies: set[int | None] = set()
    for row in _marked(root):
        mark = mark_of(row)
        if row.kind == Kind.ENQUEUED.column and row.message_id in copies:
            continue  # it has the annotations of its copy, and was put elsewhere
        if row.kind == Kind.ENQUEUED.column:
            copies.add(row.message_id)
        if mark is None and row.kind == Kind.DESTROYED.column and not is_reserved(row.queue or ""):
            name = deletion_name(row.position)
            logged[name] = LoggedOperation(
                name, "deleted", row.queue or "", None, row.at, None, None
            )
        elif mark is not None:
            operation = logged.setdefault(mark.operation, _begun(row, mark))
            operation.messages = (operation.messages or 0) + 1
            if mark.undoes in logged:
                logged[mark.undoes].undone_by = mark.operation
    return [*logged.values()]


def operation_rows(root: Root, operation: str) -> list[LogRow]:
    """Read every record about the queues of an operation, and of all that undo it.

    Empty: the log has no such operation.

    Raises:
        Unavailable: Storage did not answer, again and again.
    """
    deletion = deletion_position(operation)
    queues: set[str] = set()
    if deletion is not None:
        where = (ds.field("position") == deletion) & (ds.field("kind") == Kind.DESTROYED.column)
        queues = {row.queue for row in _rows(root, where) if row.queue is not None}
        if not queues:
            return []
    marked = [(row, mark) for row in _marked(root) if (mark := mark_of(row)) is not None]
    family = {*family_of(operation, (mark for _row, mark in marked))}
    touched = [(mark, _queues(row, mark)) for row, mark in marked]
    for mark, names in touched:
        if mark.operation in family:
            queues |= names
    if not queues:
        return []
    # What another undo brought to one of these queues has its order from where it was taken off.
    undos = [names for mark, names in touched if mark.undoes is not None and len(names) > 1]
    while any(names & queues and not names <= queues for names in undos):
        queues |= {name for names in undos if names & queues for name in names}
    return _rows(root, ds.field("kind").isin(_KINDS) & ds.field("queue").isin(sorted(queues)))


def _queues(row: LogRow, mark: Mark) -> set[str]:
    """The queue that a record is about, and the one that its message went to."""
    return {name for name in (row.queue, mark.outcome.get("to")) if name}


def deletion_of(root: Root, queue: str) -> str | None:
    """Name the newest deletion of a queue; None: the log has none.

    Raises:
        Unavailable: Storage did not answer, again and again.
    """
    destroyed = ds.field("kind") == Kind.DESTROYED.column
    rows = _rows(root, destroyed & (ds.field("queue") == queue))
    return deletion_name(rows[-1].position) if rows else None


def _begun(row: LogRow, mark: Mark) -> LoggedOperation:
    outcome: Mapping[str, Any] = mark.outcome
    action = "undone" if mark.undoes else outcome.get("reason", outcome["outcome"])
    return LoggedOperation(
        mark.operation, action, row.queue or "", outcome.get("to"), row.at, None, mark.undoes
    )


def _marked(root: Root) -> list[LogRow]:
    """Records that an operation made, or may have made."""
    detail, kind = ds.field("detail"), ds.field("kind")
    took = (kind == Kind.DEQUEUED.column) & pa.compute.match_substring(detail, '"operation"')
    put = (kind == Kind.ENQUEUED.column) & pa.compute.match_substring(detail, RESTORED_BY)
    gone = (kind == Kind.DESTROYED.column) & ds.field("queue").is_valid()
    return _rows(root, took | put | gone)


def _rows(root: Root, where: ds.Expression) -> list[LogRow]:
    table = recorded_rows(root, _COLUMNS, where).sort_by("position")
    for name in ("at", "expires_at"):  # as integers, µs: quicker than Python's own times
        column = table[name].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        table = table.set_column(table.column_names.index(name), name, column)
    columns = (table[name].to_pylist() for name in LogRow._fields)
    return [*map(LogRow._make, zip(*columns, strict=True))]
