"""The messages that came to some queues of late, read back from journal and history, no JVM.

A store asks once, at its start, for queues that detect duplicates: what was consumed since is on no
queue, and in no state. It goes back as far as history does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from sparkstore.core.records import Kind, MessageHeader
from sparkstore.recovery.recorded_rows import recorded_rows
from sparkstore.tables.root import Root
from sparkstore.tables.schema import ROW
from sparkstore.tables.snapshot import columns_of

_CAME = columns_of(ROW, ("position", "epoch", "kind", "queue", "message_id", "at"))
_NAMED = columns_of(
    ROW, ("position", "epoch", "kind", "message_id", "at", "protocol", "header", "amqp_message_id")
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class RecentMessage(NamedTuple):
    """A message that was put on a queue.

    Attributes:
        queue: Name of the queue.
        at: When it came there, UTC µs.
        header: Its header, as far as it tells what its sender calls the message.
    """

    queue: str
    at: int
    header: MessageHeader


def recent_messages(root: Root, queues: Collection[str], since_us: int) -> Iterator[RecentMessage]:
    """Find the new messages that came to some queues since a time, in their order.

    What was moved there is not among them, if what brought it is older.

    Raises:
        Unavailable: Storage did not answer, again and again.
    """
    since = pa.scalar(_EPOCH + timedelta(microseconds=since_us), ROW.field("at").type)
    enqueued = (ds.field("kind") == Kind.ENQUEUED.column) & (ds.field("at") >= since)
    came = recorded_rows(root, _CAME, enqueued & ds.field("queue").isin([*queues]))
    named = recorded_rows(root, _NAMED, enqueued & ds.field("amqp_message_id").is_valid())
    named = named.filter(pc.is_in(named["message_id"], value_set=pc.unique(came["message_id"])))
    headers = {
        row["message_id"]: MessageHeader(
            row["protocol"], row["header"], amqp_message_id=row["amqp_message_id"]
        )
        for row in named.to_pylist()
    }
    first: set[tuple[str, int]] = set()
    for row in came.sort_by("position").select(["queue", "message_id", "at"]).to_pylist():
        place, header = (row["queue"], row["message_id"]), headers.get(row["message_id"])
        if header is not None and place not in first:
            first.add(place)
            yield RecentMessage(row["queue"], int(row["at"].timestamp() * 1_000_000), header)
