"""Messages that wait on a queue, or left it, chosen by simple conditions without a JVM."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice

from sparkstore.content.reader import ContentReader
from sparkstore.control.bulk_run import REPLAYED
from sparkstore.core.entries import Entry
from sparkstore.core.fold import State
from sparkstore.core.records import MessageHeader
from sparkstore.operations.choice import Choice
from sparkstore.recovery.departed_messages import DepartedMessage, departed_messages
from sparkstore.tables.root import Root

_HEADERS = 1_000
"""So many headers are read together."""

Chosen = tuple[int, Entry, MessageHeader | None]


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
    pairs = (pair for pair in entries.items() if choice.takes(pair[0], pair[1].at, now_us))
    if not choice.needs_header:
        for message_id, entry in pairs:
            yield message_id, entry, None
        return
    while part := [*islice(pairs, _HEADERS)]:
        headers = reader.headers([message_id for message_id, _entry in part])
        for message_id, entry in part:
            header = headers.get(message_id)
            if header is not None and choice.takes_header(header):
                yield message_id, entry, header


def departed(
    root: Root, state: State, reader: ContentReader, queue: str, to: str, choice: Choice
) -> Iterator[tuple[DepartedMessage, MessageHeader]]:
    """Messages that left a queue, in the order in which they left, and have no copy on `to`.

    Args:
        root: The root whose history is read.
        state: Of the queues now.
        reader: Reads headers; a message that it does not find any more is left out.
        queue: Name of the queue that the messages left.
        to: Name of the queue where copies go.
        choice: The conditions; an age counts from when a message left.
    """
    now_us = time.time_ns() // 1_000
    entries = state.queues[queue].entries
    messages = departed_messages(root, queue, entries, REPLAYED, to)
    left = (it for it in messages if choice.takes(it.message_id, it.dequeued_at, now_us))
    while part := [*islice(left, _HEADERS)]:
        headers = reader.headers([message.message_id for message in part])
        for message in part:
            header = headers.get(message.message_id)
            if header is not None and choice.takes_header(header):
                yield message, header
