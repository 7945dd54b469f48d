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


def events_of(root: Root, message: str, *, offset: int = 0, limit: int = 0) -> list[dict[str, Any]]:
    """Return the events of a message in their order; `detail` is read from its JSON.

    Args:
        root: The root that is read.
        message: The id of the message, as somebody wrote it.
        offset: How many of the first events are left out.
        limit: How many events are returned at most; 0: all.

    Raises:
        InvalidRequest: It is no id, or history has no such message.
    """
    from sparkstore.embedded.query import query  # noqa: PLC0415  # it loads duckdb

    if not message.isdecimal() or len(message) > len(str(1 << 62)):
        raise InvalidRequest(f"{message!r:.40} is no message id: browse lists them")
    part = f" LIMIT {limit} OFFSET {offset}" if limit else ""
    statement = f"{EVENTS} WHERE message_id = {int(message)} ORDER BY position{part}"
    events: list[dict[str, Any]] = query(root, statement).to_pylist()
    if not events and not offset:
        raise InvalidRequest(f"history has no message {message}: it keeps history_days")
    for event in events:
        event["detail"] = None if event["detail"] is None else json.loads(event["detail"])
    return events
