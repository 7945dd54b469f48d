"""A journal of millions of records, made of whole Arrow columns.

What Python builds one by one would take longer than what is measured.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from sparkstore.core.records import Kind, ids_reserved, opened, queue_created
from sparkstore.operations.queue_alteration import definition
from sparkstore.tables.root import Root
from sparkstore.tables.rows import to_table
from sparkstore.tables.schema import ROW

QUEUES = [f"queue-{number}" for number in range(10)]
REGIONS = ["EU", "US", "JP", "BR", "IN"]
BODY_BYTES = 100
COMMIT_RECORDS = 200_000
SEGMENT_RECORDS = 1_000_000
_START_US = 1_700_000_000_000_000


class BulkJournal:
    """Appends to a root's journal as the store does: positions without gaps, ids that rise.

    Args:
        root: An empty root, or one whose records end at `last`.
        last: Its last position.
        next_id: The first message id that is free.
        queues: Names of the queues that messages go to, in turn.
        run: So many messages to one queue before it is the next one's turn.
    """

    def __init__(
        self,
        root: Root,
        last: int = 0,
        next_id: int = 1,
        queues: Sequence[str] = QUEUES,
        run: int = 1,
    ) -> None:
        self.root = root
        self._queues, self._run = list(queues), run
        self.last = last
        self.next_id = next_id
        if last == 0:
            records = [opened(1, "bench"), ids_reserved(1, 1 << 40)]
            records += [queue_created(1, queue, definition({}, 2)) for queue in self._queues]
            table = to_table(records, first_position=1, epoch=1, segment=0)
            write_deltalake(str(root.journal), table, mode="append")
            self.last = len(records)

    def enqueue(self, count: int) -> None:
        """So many new messages, each on one of the queues in turn, with a property and a body."""
        while count > 0:
            part = min(count, COMMIT_RECORDS)
            ids = np.arange(self.next_id, self.next_id + part)
            self._append(Kind.ENQUEUED, ids, _messages(ids))
            self.next_id += part
            count -= part

    def dequeue(self, ids: Sequence[int] | np.ndarray) -> None:
        """Take these messages."""
        message_ids = np.asarray(ids)
        for start in range(0, len(message_ids), COMMIT_RECORDS):
            self._append(Kind.DEQUEUED, message_ids[start : start + COMMIT_RECORDS], {})

    def trim(self) -> None:
        """Drop all that is there: it was folded."""
        table = DeltaTable(str(self.root.journal))
        table.delete(f"position <= {self.last}")
        table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)

    def _append(self, kind: Kind, ids: np.ndarray, more: dict[str, Any]) -> None:
        count = len(ids)
        positions = np.arange(self.last + 1, self.last + 1 + count)
        turns = ids // self._run % len(self._queues)
        columns: dict[str, Any] = {
            "position": positions,
            "segment": np.full(count, self.last // SEGMENT_RECORDS),
            "epoch": np.ones(count, int),
            "kind": pa.repeat(kind.column, count),
            "at": positions + _START_US,
            "queue": pa.DictionaryArray.from_arrays(turns, self._queues).cast(pa.string()),
            "message_id": ids,
            **more,
        }
        table = pa.Table.from_arrays(
            [_column(columns.get(field.name), field.type, count) for field in ROW], schema=ROW
        )
        write_deltalake(str(self.root.journal), table, mode="append")
        self.last += count


def _column(values: Any, kind: pa.DataType, count: int) -> pa.Array:
    if values is None:
        return pa.nulls(count, kind)
    if isinstance(values, pa.Array):
        return values
    numbers = pa.array(values, pa.int64())
    return numbers.cast(kind)


def _messages(ids: np.ndarray) -> dict[str, Any]:
    count = len(ids)
    offsets = pa.array(np.arange(count + 1), pa.int32())
    regions = pa.DictionaryArray.from_arrays(ids % len(REGIONS), REGIONS).cast(pa.string())
    names = pa.repeat("region", count)
    bodies = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(BODY_BYTES), count, [None, pa.py_buffer(os.urandom(count * BODY_BYTES))]
    )
    return {
        "protocol": pa.repeat("raw", count),
        "durable": pa.repeat(True, count),
        "priority": np.full(count, 4),
        "subject": regions,
        "header_bytes": np.zeros(count, int),
        "body_bytes": np.full(count, BODY_BYTES),
        "properties": pa.MapArray.from_arrays(offsets, names, regions),
        "body": bodies.cast(pa.binary()),
    }
