"""A row by itself is the same as among all of its batch."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sparkstore.content.rows import Rows
from sparkstore.core.records import MessageHeader, message_enqueued
from tests.support.histories.strategies import Row, build_history
from tests.support.roots.roots import rows_table

FULL = MessageHeader(
    *("amqp-1.0", b"h\x00", False, 9, 1_700_000_000_000_001, 1_800_000_000_000_002),
    *(text * 2 for text in ("a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k")),
    header_bytes=2,
    body_bytes=4,
    properties=(("a", "1"), ("b", ""), ("a", "2")),
)
ROWS = [
    *build_history([(step % 20, step, 3 * step) for step in range(60)]).rows,
    Row(10_000, 1, message_enqueued(0, "q", 10_000, FULL, b"body")),
    Row(10_001, 1, message_enqueued(0, "q", 10_001, MessageHeader(), b"")),
]


@pytest.mark.parametrize("is_part", [False, True])
@pytest.mark.parametrize("start", [0, 7])
def test_header_and_content_of_one_row_are_those_of_all(start: int, is_part: bool) -> None:
    (batch,) = rows_table(ROWS, 0).combine_chunks().to_batches()
    batch = batch.slice(start)
    singly, together = Rows(batch, is_part=is_part), Rows(batch)
    headers = [singly.header(row) for row in range(len(batch))]
    assert headers == together.headers
    assert FULL in headers
    whole = {message_id: content for _, _, message_id, content in Rows(batch).whole()}
    found = [(singly.message_id(row), singly.content(row)) for row in range(len(batch))]
    assert {number: content for number, content in found if content is not None} == whole
    assert len(whole) > 2


def test_parts_of_a_batch_have_its_rows() -> None:
    (batch,) = rows_table(ROWS, 0).combine_chunks().to_batches()
    parts = [
        Rows(pa.ipc.read_record_batch(pa.py_buffer(part), batch.schema))
        for part in Rows(batch).serialized(7)
    ]
    assert [header for part in parts for header in part.headers] == Rows(batch).headers
    assert {len(part) for part in parts[:-1]} == {7}
