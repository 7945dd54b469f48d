from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given

from sparkstore.core.records import (
    Kind,
    MessageHeader,
    Record,
    content_staged,
    message_enqueued,
    opened,
)
from sparkstore.tables import rows
from sparkstore.tables.rows import to_records, to_table
from sparkstore.tables.schema import FOLD_COLUMNS, NARROW_COLUMNS, ROW
from tests.support.histories.strategies import History, histories

HEADER = MessageHeader(
    "amqp-1.0", b"\x00\xff", durable=False, priority=9, created_at=-1, expires_at=2**52,
    subject="späť 🦊\x00", header_bytes=2, body_bytes=4, properties=(("b", "1"), ("a", "")),
)  # fmt: skip
RECORDS = [
    opened(0, "writer"),
    content_staged(1_750_000_000_123_456, 2**40, 2**33, b""),
    message_enqueued(2, "q\x00/🦊", 5, HEADER, b"\x00\xff", transaction=9),
    message_enqueued(3, "", 5, HEADER.known(), None),
    Record(Kind.DEQUEUED, 4, "q", 5, "c", 2, 3, None, None, None, "e", "k", "{}", "m", 8, b"xid"),
]


def test_records_become_rows_and_rows_the_same_records() -> None:
    table = to_table(RECORDS, first_position=41, epoch=7, segment=3)
    assert [*to_records(table)] == [(41 + at, 7, record) for at, record in enumerate(RECORDS)]


def test_contents_of_more_bytes_than_offsets_count_become_the_same_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small = to_table(RECORDS, first_position=1, epoch=1, segment=1)
    monkeypatch.setattr(rows, "_OFFSETS_END", 1)
    assert to_table(RECORDS, first_position=1, epoch=1, segment=1).equals(small)


@given(histories(max_steps=30))
def test_any_history_comes_back_from_rows(history: History) -> None:
    records = [row.record for row in history.rows]
    table = to_table(records, first_position=1, epoch=1, segment=1)
    assert [record for _, _, record in to_records(table)] == records


def test_rows_have_the_journals_schema_and_their_place() -> None:
    table = to_table(RECORDS, first_position=41, epoch=7, segment=3)
    assert table.schema.equals(ROW)
    assert table.column("position").to_pylist() == [41, 42, 43, 44, 45]
    assert set(table.column("segment").to_pylist()) == {3}
    assert table.column("kind").to_pylist()[:3] == ["opened", "content", "enqueued"]
    assert str(table.column("at").type) == "timestamp[us, tz=UTC]"


def test_columns_that_were_not_read_are_none() -> None:
    table = to_table(RECORDS, first_position=1, epoch=1, segment=1).select(NARROW_COLUMNS)
    found = [record for _, _, record in to_records(table)]
    assert found[2].body is None
    assert found[2].message == HEADER._replace(header=None, properties=())
    assert found[2].queue == RECORDS[2].queue


def test_rows_come_back_in_the_order_of_the_table_each_with_its_own_kind() -> None:
    table = to_table(RECORDS, first_position=1, epoch=1, segment=1)
    backwards = table.take(pa.array([4, 3, 2, 1, 0]))
    assert [position for position, _, _ in to_records(backwards)] == [5, 4, 3, 2, 1]
    assert [record for _, _, record in to_records(backwards)] == RECORDS[::-1]


def test_every_field_of_a_record_has_a_column_of_its_own() -> None:
    of_records = {*Record._fields, *MessageHeader._fields} - {"message"}
    assert {*ROW.names} == of_records | {"position", "epoch", "segment"}
    assert {*FOLD_COLUMNS} <= {*NARROW_COLUMNS}


def test_an_unknown_kind_is_no_record() -> None:
    table = to_table(RECORDS[:1], first_position=1, epoch=1, segment=1)
    spoiled = table.set_column(table.column_names.index("kind"), "kind", pa.array(["forgotten"]))
    with pytest.raises(KeyError):
        [*to_records(spoiled)]
