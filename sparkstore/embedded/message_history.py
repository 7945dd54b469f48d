"""The events of a message, as history and the journal have them: consumed messages, too."""

from __future__ import annotations

import json
from typing import Any

from sparkstore.errors import InvalidRequest
from sparkstore.tables.root import Root

EVENTS = (
    'SELECT position, epoch_us("at") AS at, kind, queue, message_id, holder, delivery_count,'
    " detail, traceparent FROM message_history"
)
"""A query for the columns of an event."""


def events_of(root: Root, message: str) -> list[dict[str, Any]]:
    """Return the events of a message in their order; `detail` is read from its JSON.

    Args:
        root: The root that is read.
        message: The id of the message, as somebody wrote it.

    Raises:
        InvalidRequest: It is no id, or history has no such message.
    """
    if not message.isdecimal() or len(message) > len(str(1 << 62)):
        raise InvalidRequest(f"{message!r:.40} is no message id: browse lists them")
    events = message_events(root, int(message))
    if not events:
        raise InvalidRequest(f"history has no message {message}: it keeps history_days")
    return events


def message_events(
    root: Root, message_id: int, *, offset: int = 0, limit: int = 0
) -> list[dict[str, Any]]:
    """Return events of a message as `events_of` does; of an unknown one, none.

    Args:
        root: The root that is read.
        message_id: The id of the message.
        offset: How many of the first events are left out.
        limit: How many events are returned at most; 0: all.
    """
    from sparkstore.embedded.query import query  # noqa: PLC0415  # it loads duckdb

    part = f" LIMIT {limit} OFFSET {offset}" if limit else ""
    statement = f"{EVENTS} WHERE message_id = {message_id} ORDER BY position{part}"
    events: list[dict[str, Any]] = query(root, statement).to_pylist()
    for event in events:
        event["detail"] = None if event["detail"] is None else json.loads(event["detail"])
    return events
