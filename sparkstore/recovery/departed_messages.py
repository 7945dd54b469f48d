"""Messages that left a queue and that history still has: the view `departed_messages`, no JVM.

The meaning is that of `sparkstore/sql/views/departed_messages.sql`, and a test of both holds them
equal. Only narrow columns of one queue's records are read; headers and bodies are read by id.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import NamedTuple

import pyarrow.compute as pc
import pyarrow.dataset as ds

from sparkstore.core.annotations import RESTORED_FROM, annotations_of
from sparkstore.core.records import Kind
from sparkstore.recovery.recorded_rows import recorded_rows
from sparkstore.tables.root import Root
from sparkstore.tables.schema import ROW
from sparkstore.tables.snapshot import columns_of

_EVENTS = columns_of(ROW, ("position", "epoch", "kind", "queue", "message_id", "at", "detail"))
_DETAILS = columns_of(ROW, ("position", "epoch", "kind", "detail"))
_COPIES = columns_of(ROW, ("position", "epoch", "kind", "queue", "properties"))
_LIVES_ON = {"moved", "dead-lettered", "resubmitted"}
"""Outcomes of a message that is on another queue since, or that a repaired one replaced."""


class DepartedMessage(NamedTuple):
    """A message that left a queue.

    Attributes:
        message_id: Id of the message.
        position: Position of the record by which it left.
        dequeued_at: When it left, UTC µs.
        outcome: How it left (JSON), None if its consumer accepted it.
    """

    message_id: int
    position: int
    dequeued_at: int
    outcome: str | None


def departed_messages(
    root: Root, queue: str, standing: Collection[int], mark: str, to: str
) -> list[DepartedMessage]:
    """Find what left a queue, is not on it now, and has no copy: on another queue, or by an undo.

    Args:
        root: The root whose tables are read.
        queue: Name of the queue that the messages left.
        standing: Ids of the messages that are on the queue now.
        mark: Property of a copy: it holds the id of the message that it is a copy of.
        to: Name of the queue where a copy may be.

    Returns:
        The messages in the order in which they left.

    Raises:
        Unavailable: Storage did not answer, again and again.
    """
    left = ds.field("kind") == Kind.DEQUEUED.column
    rows = recorded_rows(root, _EVENTS, left & (ds.field("queue") == queue)).sort_by("position")
    last: dict[int, DepartedMessage] = {}
    for row in rows.select(["message_id", "position", "at", "detail"]).to_pylist():
        at_us = int(row["at"].timestamp() * 1_000_000)
        message = DepartedMessage(row["message_id"], row["position"], at_us, row["detail"])
        last[message.message_id] = message
    copied = _copied(root, mark, to) | _restored(root)
    departed = (
        message
        for message in last.values()
        if message.message_id not in standing
        and message.message_id not in copied
        and json.loads(message.outcome or "{}").get("outcome") not in _LIVES_ON
    )
    return sorted(departed, key=lambda message: message.position)


def _copied(root: Root, mark: str, to: str) -> set[int]:
    """Ids of the messages of which a copy was put on a queue."""
    came = ds.field("kind") == Kind.ENQUEUED.column
    rows = recorded_rows(root, _COPIES, came & (ds.field("queue") == to))
    values = pc.map_lookup(rows["properties"], mark, "last")
    return {int(value) for value in pc.unique(values).to_pylist() if value and value.isdecimal()}


def _restored(root: Root) -> set[int]:
    """Ids of the messages that an undo restored as copies, on whichever queue."""
    came = ds.field("kind") == Kind.ENQUEUED.column
    marked = pc.match_substring(ds.field("detail"), RESTORED_FROM)
    details = recorded_rows(root, _DETAILS, came & marked)["detail"].to_pylist()
    return {int(annotations_of(detail)[RESTORED_FROM][1]) for detail in details}
