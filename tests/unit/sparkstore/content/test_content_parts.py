"""Reading parts and headers back: only what is needed is decoded."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from sparkstore.content import files
from sparkstore.content.reader import ContentReader
from sparkstore.content.rows import Rows
from sparkstore.core.records import (
    MessageHeader,
    Record,
    content_staged,
    message_dequeued,
    message_enqueued,
    opened,
)
from sparkstore.errors import CorruptData, InvalidRequest
from sparkstore.recovery.message_headers import message_headers
from sparkstore.tables.root import Root, open_or_create_root
from tests.support.histories.strategies import Row
from tests.support.roots.roots import append_journal, rows_table

PIECE = 1_000
PIECES = [bytes([number]) * PIECE for number in range(20)]
CONTENT = b"".join(PIECES)
HEADER = MessageHeader(
    "raw",
    b"h\x00",
    priority=9,
    created_at=1_700_000_000_000_000,
    subject="späť",
    header_bytes=2,
    properties=(("a", "1"), ("b", "🦊")),
)


def bring(position: int, message_id: int, epoch: int = 1, body: bytes = b"body") -> Row:
    header = HEADER._replace(body_bytes=len(body), correlation_id=str(message_id))
    return Row(position, epoch, message_enqueued(0, "q", message_id, header, body))


def staged(message_id: int = 7, first: int = 1) -> list[Row]:
    """The pieces of a message, then the row that enqueues it."""
    found: list[Record] = []
    for number, piece in enumerate(PIECES):
        found.append(content_staged(0, message_id, number * PIECE, piece))
    header = HEADER._replace(body_bytes=len(CONTENT))
    found.append(message_enqueued(0, "q", message_id, header, None))
    return [Row(first + number, 1, record) for number, record in enumerate(found)]


def root_with(path: Path, *commits: list[Row]) -> Root:
    root = open_or_create_root(path)
    for number, rows in enumerate(commits):
        append_journal(root, rows, 0, number)
    return root


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[pa.RecordBatch]:
    """Each batch that is decoded from now on."""
    batches: list[pa.RecordBatch] = []

    class Counting(Rows):
        def __init__(self, batch: pa.RecordBatch, *, is_part: bool = False) -> None:
            batches.append(batch)
            super().__init__(batch, is_part=is_part)

    monkeypatch.setattr(files, "Rows", Counting)
    return batches


def bodies(batches: list[pa.RecordBatch]) -> int:
    """Bytes of content that were decoded."""
    there = (batch.column("body") for batch in batches if "body" in batch.schema.names)
    return sum(len(body) for column in there for body in column.to_pylist() if body)


def test_any_part_of_content_in_pieces_is_that_slice(tmp_path: Path) -> None:
    rows = staged()
    reader = ContentReader(root_with(tmp_path / "root", rows[:5], rows[5:12], rows[12:]))
    for offset in (0, 1, PIECE - 1, PIECE, 7 * PIECE + 5, len(CONTENT) - 1, len(CONTENT), 10**9):
        for length in (0, 1, PIECE, 3 * PIECE + 1, len(CONTENT), 10**9):
            assert reader.read_part(7, offset, length) == CONTENT[offset : offset + length]


def test_a_part_decodes_the_pieces_that_it_is_in_and_no_other_file(
    tmp_path: Path, decoded: list[pa.RecordBatch]
) -> None:
    rows = staged()
    root = root_with(tmp_path / "root", *([row] for row in rows))
    reader = ContentReader(root, cache_bytes=4)
    assert reader.read_part(7, 3 * PIECE + 10, PIECE) == CONTENT[3 * PIECE + 10 :][:PIECE]
    assert bodies(decoded) == 2 * PIECE


def test_parts_in_order_decode_each_piece_once(
    tmp_path: Path, decoded: list[pa.RecordBatch]
) -> None:
    reader = ContentReader(root_with(tmp_path / "root", staged()), cache_bytes=4 * PIECE)
    parts = [reader.read_part(7, start, 300) for start in range(0, len(CONTENT) + 300, 300)]
    assert b"".join(parts) == CONTENT
    assert bodies(decoded) == len(CONTENT)


@pytest.mark.parametrize("lost", [0, 5, 19])
def test_a_part_that_needs_a_lost_piece_is_corrupt_and_another_is_not(
    tmp_path: Path, lost: int
) -> None:
    rows = staged()
    del rows[lost]
    reader = ContentReader(root_with(tmp_path / "root", rows))
    with pytest.raises(CorruptData, match=f"follows byte {lost * PIECE} is missing"):
        reader.read_part(7, lost * PIECE, 10)
    with pytest.raises(CorruptData, match="is missing"):
        reader.read(7)
    if lost:
        assert reader.read_part(7, 0, 10) == CONTENT[:10]


def test_a_part_of_a_message_nobody_has_is_refused(tmp_path: Path) -> None:
    reader = ContentReader(root_with(tmp_path / "root", [bring(1, 5)]))
    with pytest.raises(InvalidRequest, match="message 6 is not in the store"):
        reader.read_part(6, 0, 1)


def test_a_part_is_found_again_after_a_merge_took_the_file_away(tmp_path: Path) -> None:
    rows = staged()
    root = root_with(tmp_path / "root", *([row] for row in rows))
    reader = ContentReader(root, cache_bytes=4)
    assert reader.read_part(7, 0, 10) == CONTENT[:10]
    journal = DeltaTable(str(root.journal))
    journal.optimize.compact()
    journal.vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert reader.read_part(7, 5 * PIECE - 5, 10) == CONTENT[5 * PIECE - 5 :][:10]


# ------------------------------------------------------------------------------------- headers


def test_headers_are_those_of_whole_reads_and_no_content_is_decoded(
    tmp_path: Path, decoded: list[pa.RecordBatch]
) -> None:
    first = [bring(number, number) for number in range(1, 50)]
    rows = [*first, *staged(77, 50)]
    root = root_with(tmp_path / "root", rows[:20], rows[20:40], rows[40:])
    wanted = [*range(49, 0, -1), 77, 1000]
    found = ContentReader(root).headers(wanted)
    assert bodies(decoded) == 0
    assert sum(batch.num_rows for batch in decoded) <= 2 * len(rows)
    reader = ContentReader(root)
    assert found == {number: reader.read(number)[0] for number in wanted[:-1]}
    assert found[3].properties == HEADER.properties
    assert found[3].created_at == HEADER.created_at


def test_a_header_is_never_that_of_a_fenced_writer(tmp_path: Path) -> None:
    root = root_with(
        tmp_path / "root",
        [Row(1, 1, opened(0, "a"))],
        [bring(2, 7, 1, b"ghost"), bring(3, 8, 1, b"ghost")],
        [Row(2, 2, opened(0, "b")), bring(3, 7, 2, b"right")],
    )
    for reader in (ContentReader(root), ContentReader(root, cache_bytes=0)):
        assert reader.headers([7, 8])[7].body_bytes == 5
        assert reader.read(7)[1] == b"right"
        with pytest.raises(InvalidRequest):
            reader.read(8)


def test_rows_without_a_column_of_today_are_read(tmp_path: Path) -> None:
    """A table that was made before a column was added has files without it."""
    root = root_with(tmp_path / "root", [bring(1, 1)])
    (path,) = root.journal.glob("segment=*/*.parquet")
    rows = pq.read_table(path, partitioning=None)
    pq.write_table(rows.drop_columns(["group_id", "properties"]), path)
    header, body = ContentReader(root).read(1)
    assert body == b"body"
    assert (header.group_id, header.properties) == (None, ())


# ----------------------------------------------------------------------------- message_headers


def test_headers_by_columns_come_from_journal_and_history_each_once(tmp_path: Path) -> None:
    rows = [bring(number, number, 1, b"x" * number) for number in range(1, 31)]
    rows.append(Row(31, 1, message_dequeued(0, "q", 3, None)))
    root = open_or_create_root(tmp_path / "root")
    write_deltalake(str(root.history), rows_table(rows[:20], 0), mode="append")
    append_journal(root, rows[10:], 0, 1)  # 11 to 20 are in both
    wanted = [1, 5, 11, 12, 20, 21, 30]
    parts = [*message_headers(root, wanted, {}, 4)]
    assert [number for part in parts for number in part.message_ids] == wanted
    assert [size for part in parts for size in part.body_bytes] == wanted
    assert b"".join(part.headers for part in parts) == b"h\x00" * len(wanted)


def test_headers_by_columns_after_a_trim_come_from_history_alone(tmp_path: Path) -> None:
    rows = [bring(number, number) for number in range(1, 11)]
    root = root_with(tmp_path / "root", rows)
    write_deltalake(str(root.history), rows_table(rows, 0), mode="append")
    DeltaTable(str(root.journal)).delete("segment = 0")
    (part,) = message_headers(root, [2, 9], {}, 100)
    assert [*part.message_ids] == [2, 9]
    with pytest.raises(CorruptData, match="the header of message 11 is in neither table"):
        [*message_headers(root, [2, 11], {}, 100)]
