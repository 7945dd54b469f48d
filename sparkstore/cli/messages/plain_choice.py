"""Rows of messages that were chosen without a JVM, as a choice by Spark shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sparkstore.cli.output import time_of

if TYPE_CHECKING:
    from sparkstore.content.reader import ContentReader
    from sparkstore.control.message_choice import Chosen
    from sparkstore.core.entries import Entry
    from sparkstore.core.records import MessageHeader
    from sparkstore.recovery.departed_messages import DepartedMessage


def departed_row(each: DepartedMessage, header: MessageHeader) -> dict[str, Any]:
    """A row of a message that left, for people, as a choice by Spark shows it."""
    return {
        "message_id": each.message_id,
        "dequeued_at": time_of(each.dequeued_at),
        "outcome": each.outcome,
        "message_bytes": header.header_bytes + header.body_bytes,
        "subject": header.subject,
        "properties": dict(header.properties),
    }


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
