"""Records of one queue by the second at which they came, for tests of what a root was at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from deltalake import write_deltalake

from sparkstore.core.records import (
    MessageHeader,
    Record,
    ids_reserved,
    message_dequeued,
    message_enqueued,
    opened,
    queue_created,
)
from sparkstore.tables.root import Root
from tests.support.histories.histories import History, Layers, Row, fold_rows
from tests.support.roots.roots import build_root, state_table

SECOND_US = 1_000_000
HEADER = MessageHeader("amqp-1.0", b"h", header_bytes=1, body_bytes=3)


def beginning(detail: str = "{}") -> list[Record]:
    """The first three records of a root: its epoch, ids, and the queue `q`."""
    return [opened(1, "w"), ids_reserved(1, 100), queue_created(1, "q", detail)]


def put(message_id: int, second: int) -> Record:
    """A message that comes to the queue."""
    return message_enqueued(second * SECOND_US, "q", message_id, HEADER, b"abc")


def took(message_id: int, second: int) -> Record:
    """A message that a consumer takes off the queue."""
    return message_dequeued(second * SECOND_US, "q", message_id, "c")


def rows_of(records: Iterable[Record]) -> list[Row]:
    """The records with their positions, of one epoch."""
    return [Row(position, 1, record) for position, record in enumerate(records, 1)]


def told(path: Path, records: Iterable[Record], *, state: int = 0, history: int = 0) -> Root:
    """A root of these records, folded up to a position, of which history has some."""
    return build_root(path, Layers(History(rows_of(records)), state, history, 1, 1000))


def fold_again(root: Root, rows: Sequence[Row], positions: Iterable[int]) -> None:
    """Write a version of `state` for each position, as compactions that followed each other."""
    for position in positions:
        state = state_table(fold_rows(rows[:position]))
        write_deltalake(str(root.state), state, mode="overwrite")
