"""A question by DuckDB opens the files that can hold its answer: all others are gone here."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
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
from sparkstore.embedded.answers import view_batches
from sparkstore.embedded.plain_entries import Condition
from sparkstore.errors import Unavailable
from sparkstore.sql.queries import CONTENT
from sparkstore.tables.root import Root
from sparkstore.tables.rows import to_table
from sparkstore.tables.snapshot import snapshot
from tests.support.histories.histories import History, Layers, Row, fold_rows
from tests.support.histories.viewed import rows
from tests.support.roots.roots import build_root, state_table

HOUR_US = 3_600_000_000
HEADER = MessageHeader("amqp-1.0", b"h", header_bytes=1, body_bytes=3)
HOURS = 6
LONG = "queue " * 10


def _hour(number: int) -> list[Record]:
    """An hour: its own queue gets two messages."""
    at, queue = (number + 1) * HOUR_US, f"queue-{number}"
    first = 10 * number
    return [
        message_enqueued(at, queue, first + 1, HEADER, b"abc"),
        message_enqueued(at + 1, queue, first + 2, HEADER, b"abc"),
    ]


def _long_names() -> list[Record]:
    names = [(10 * number + 3, f"{LONG}{number}") for number in range(HOURS)]
    return [message_enqueued(8 * HOUR_US, name, n, HEADER, b"abc") for n, name in names]


@pytest.fixture
def root(tmp_path: Path) -> Root:
    """A file of history for each hour, and one of the records that bring no content."""
    queues = [f"queue-{n}" for n in range(HOURS)] + [f"{LONG}{n}" for n in range(HOURS)]
    start = [opened(1, "w"), ids_reserved(1, 100), *(queue_created(1, q, "{}") for q in queues)]
    taken = [message_dequeued(9 * HOUR_US, f"queue-{n}", 10 * n + 2, "c") for n in range(HOURS)]
    parts = [start, *(_hour(number) for number in range(HOURS)), taken, _long_names()]
    records = [record for part in parts for record in part]
    numbered = [Row(position, 1, record) for position, record in enumerate(records, 1)]
    root = build_root(tmp_path / "root", Layers(History([]), 0, 0, 1, 1000))
    write_deltalake(str(root.state), state_table(fold_rows(numbered)), mode="append")
    first = 1
    for segment, part in enumerate(parts):
        table = to_table(part, first_position=first, epoch=1, segment=segment)
        write_deltalake(str(root.history), table, mode="append")
        first += len(part)
    return root


def keep(root: Root, segments: Iterable[int]) -> None:
    """Delete the files of all other segments."""
    for file in snapshot(root.history):
        if file.partition not in segments:
            file.path.unlink()


def moment(hour: float) -> str:
    return f"{datetime.fromtimestamp(hour * 3600, UTC):%Y-%m-%d %H:%M:%S}"


def test_an_hour_opens_its_own_file(root: Root) -> None:
    keep(root, [3])
    hour = f"\"at\" BETWEEN '{moment(2.9)}' AND '{moment(3.9)}'"
    found = rows(root, f"SELECT message_id FROM message_history WHERE {hour} ORDER BY 1")
    assert [row["message_id"] for row in found] == [21, 22]
    with pytest.raises(Unavailable):
        rows(root, f"SELECT message_id FROM message_history WHERE \"at\" > '{moment(3.9)}'")


def test_a_queue_opens_its_own_files(root: Root) -> None:
    keep(root, [0, 3, HOURS + 1, HOURS + 2])  # all names; long ones
    found = rows(root, "SELECT kind FROM message_history WHERE queue = 'queue-2' ORDER BY position")
    assert [row["kind"] for row in found] == ["enqueued", "enqueued", "dequeued"]


def test_columns_of_an_entry_open_no_file_of_its_content(root: Root) -> None:
    keep(root, [])

    def read(*columns: str) -> pa.Table:
        priority = [Condition("priority", "=", 4)]
        return pa.Table.from_batches(view_batches(root, "queue_messages", columns, priority))

    assert read("queue", "position", "enqueued_at", "annotations").num_rows == 2 * HOURS
    for column in sorted(CONTENT):
        with pytest.raises(Unavailable):
            read("queue", column)


def test_a_query_of_an_entry_alone_opens_no_file_of_its_content(root: Root) -> None:
    """Each file of history is gone: there is no answer with a column of content."""
    keep(root, [])
    of_queue = "FROM queue_messages AS m WHERE m.queue = 'queue-2'"
    assert [row["message_id"] for row in rows(root, f"SELECT message_id {of_queue}")] == [21]
    assert rows(root, f"SELECT count(*) AS n {of_queue} AND acquired_by IS NULL") == [{"n": 1}]
    for column in ("*", "m", "octet_length(body)", "Subject"):
        with pytest.raises(Unavailable):
            rows(root, f"SELECT {column} {of_queue}")


def test_a_message_opens_the_files_that_its_id_may_be_in(root: Root) -> None:
    keep(root, [0, 3, HOURS + 1, HOURS + 2])
    found = rows(root, "SELECT kind FROM message_history WHERE message_id = 22 ORDER BY position")
    assert [row["kind"] for row in found] == ["enqueued", "dequeued"]


def test_a_name_that_is_longer_than_what_is_kept_of_it_is_found(root: Root) -> None:
    for number in range(HOURS):
        query = f"SELECT message_id FROM queue_messages WHERE queue = '{LONG}{number}'"
        assert rows(root, query) == [{"message_id": 10 * number + 3}]


def test_times_that_differ_by_a_microsecond_are_told_apart(root: Root) -> None:
    at = f"{moment(3)}.000001"
    found = rows(root, f"SELECT message_id FROM message_history WHERE \"at\" = '{at}'")
    assert found == [{"message_id": 22}]


@pytest.mark.parametrize("view", ["queue_messages", "messages"])
def test_a_column_of_content_is_read_without_the_others(root: Root, view: str) -> None:
    """The plan names each column that a scan reads."""

    def plan(column: str) -> str:
        (row,) = rows(root, f"EXPLAIN SELECT {column} FROM {view}")
        return str(row["explain_value"])

    assert "app_id" not in plan("properties['region']")
    assert "app_id" in plan("app_id")
