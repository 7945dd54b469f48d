"""Messages that wait on a queue, chosen by simple conditions without a JVM."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from sparkstore.cli.output import time_of

if TYPE_CHECKING:
    from sparkstore.content.reader import ContentReader
    from sparkstore.core.entries import Entry
    from sparkstore.core.fold import State
    from sparkstore.core.records import MessageHeader
    from sparkstore.operations.choice import Choice

_HEADERS = 1_000
"""So many headers are read together."""

Chosen = tuple[int, "Entry", "MessageHeader | None"]


def chosen(state: State, reader: ContentReader, queue: str, choice: Choice) -> Iterator[Chosen]:
    """The messages on a queue that a choice means, in the order of the queue.

    A message that left the queue since the state was read may be among them: whoever acts on it is
    told that it is gone.

    Args:
        state: What Delta has.
        reader: Reads headers, if the choice needs them.
        queue: Name of the queue as the store knows it.
        choice: The conditions that a message must meet.
    """
    now_us = time.time_ns() // 1_000
    entries = state.queues[queue].entries
    there = (pair for pair in entries.items() if choice.takes_entry(*pair, now_us))
    if not choice.needs_header:
        for message_id, entry in there:
            yield message_id, entry, None
        return
    while part := [*islice(there, _HEADERS)]:
        headers = reader.headers([message_id for message_id, _entry in part])
        for message_id, entry in part:
            header = headers.get(message_id)
            if header is not None and choice.takes_header(header):
                yield message_id, entry, header


def sample(found: Sequence[Chosen], reader: ContentReader) -> list[dict[str, Any]]:
    """Rows of some messages for people, as a choice by Spark shows them."""
    headers = reader.headers([message_id for message_id, *_ in found])
    return [_row(message_id, entry, headers.get(message_id)) for message_id, entry, _ in found]


def _row(message_id: int, entry: Entry, header: MessageHeader | None) -> dict[str, Any]:
    return {
        "message_id": message_id,
        "enqueued_at": time_of(entry.at),
        "acquired_by": entry.acquired_by,
        "delivery_count": entry.delivery_count,
        "priority": entry.priority,
        "message_bytes": entry.message_bytes,
        "subject": None if header is None else header.subject,
        "properties": {} if header is None else dict(header.properties),
    }
