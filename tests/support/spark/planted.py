"""A root in which many kinds of damage were planted that do not hide each other."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from sparkstore.config import StoreConfig
from sparkstore.core.link_records import LinkKey, attached, link_text
from sparkstore.core.records import (
    MessageHeader,
    Record,
    content_staged,
    ids_reserved,
    message_acquired,
    message_dequeued,
    message_enqueued,
    queue_created,
    refused,
)
from sparkstore.tables.delta_files import newest_version
from sparkstore.tables.marks import mark_durable
from sparkstore.tables.root import Root
from sparkstore.tables.schema import ROW, STATE
from tests.support.histories.histories import Layers, Row, fold_rows
from tests.support.histories.history_builder import STEPS, build_history
from tests.support.roots.roots import append_journal, build_root

HISTORY = build_history([(step % len(STEPS), step, 3 * step) for step in range(40)])


END = HISTORY.last_position


EPOCH = HISTORY.rows[-1].epoch


NEXT_ID = fold_rows(HISTORY.rows).next_message_id


P, H = END - 6, END - 2


SEGMENT = 7


QUEUE = "planted"


RESUMABLE = link_text(LinkKey("c", "it comes back", "sender"))


UNKNOWN = link_text(LinkKey("c", "no such link", "receiver"))


CONFIG = StoreConfig(wal_file_bytes=1 << 20)


def numbered(*records: Record, epoch: int = EPOCH) -> list[Row]:
    return [Row(END + 1 + index, epoch, record) for index, record in enumerate(records)]


def enqueued(message_id: int, body: bytes | None, transaction: int | None = None) -> Record:
    header = MessageHeader("raw", body_bytes=3)
    return message_enqueued(0, QUEUE, message_id, header, body, transaction)


def data_file(root: Root, segment: int) -> Path:
    (file,) = (root.history / f"segment={segment}").glob("*.parquet")
    return file


def twice(root: Root, position: int, **changes: str) -> None:
    """Append the row at a position again, perhaps with other content."""
    rows = [row for row in rows_of(root) if row["position"] == position]
    row = pa.Table.from_pylist([rows[0] | changes], ROW)
    write_deltalake(str(root.history), row, mode="append")


def rows_of(root: Root) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = DeltaTable(str(root.history)).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: str(row["position"]).zfill(9))


REPAIRED_TAIL = numbered(
    queue_created(0, QUEUE, "{}"),
    ids_reserved(0, NEXT_ID + 100),
    enqueued(NEXT_ID, b"abc"),
    message_acquired(0, QUEUE, NEXT_ID, "gone"),
    content_staged(0, NEXT_ID + 1, 0, b"orphan"),
    enqueued(NEXT_ID + 2, None),
    enqueued(NEXT_ID + 3, b"abc", transaction=77),
    message_dequeued(0, QUEUE, NEXT_ID + 3, None),
    enqueued(NEXT_ID + 4, b"abc", transaction=77),
    refused(0, "doubled", 5, "{}"),
    refused(0, "doubled", 5, "{}"),
    attached(0, RESUMABLE, '{"durability": 2}'),
    enqueued(NEXT_ID + 5, b"abc"),
    message_acquired(0, QUEUE, NEXT_ID + 5, RESUMABLE),
)


def planted(where: Path) -> tuple[Root, list[dict[str, object]]]:
    """A root whose history has a gap, a position twice and a lost file; and more; and its rows."""
    root = build_root(where, Layers(HISTORY, P, H, 1, SEGMENT))
    append_journal(root, REPAIRED_TAIL, 99, 99)
    before = rows_of(root)
    DeltaTable(str(root.history)).delete("position = 4")
    twice(root, 10)
    twice(root, 12, subject="another")
    write_deltalake(
        str(root.state),
        DeltaTable(str(root.state)).to_pyarrow_table(filters=[("part", "=", "entry")]).slice(0, 1),
        mode="append",
    )
    DeltaTable(str(root.state)).delete("part = 'member'")
    lost = [{"part": "delivery", "exchange": UNKNOWN, "binding_key": "00"}]
    write_deltalake(str(root.state), pa.Table.from_pylist(lost, STATE), mode="append")
    mark_durable(root, {name: newest_version(root.table(name)) for name in ("history", "state")})
    write_deltalake(
        str(root.history),
        DeltaTable(str(root.history)).to_pyarrow_table().slice(0, 0),
        mode="append",
    )
    mark_durable(root, {"history": newest_version(root.history)})
    data_file(root, 3).unlink()
    return root, before
