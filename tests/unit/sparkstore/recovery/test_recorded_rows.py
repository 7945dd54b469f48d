"""Reading some columns of the records: no more than is wanted, and not more often."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from sparkstore.core.records import Kind, MessageHeader, Record, message_enqueued, opened
from sparkstore.errors import CorruptData, Unavailable
from sparkstore.recovery.message_headers import message_headers
from sparkstore.recovery.recorded_rows import read_again
from sparkstore.tables.root import open_or_create_root
from tests.support.histories.strategies import Row
from tests.support.roots.roots import append_journal

FILES = 12
HEADER_BYTES = 1 << 20


def read_bytes() -> int:
    """How much this process has read from files until now."""
    first = Path("/proc/self/io").read_text().splitlines()[0]
    return int(first.removeprefix("rchar:"))


def test_headers_of_a_few_messages_are_all_that_is_decoded_of_a_journal(tmp_path: Path) -> None:
    """Also of files whose kinds are before and after that of an opening, by their statistics."""
    root, dice = open_or_create_root(tmp_path / "root"), random.Random(1)
    for number in range(FILES):
        header = MessageHeader("amqp", dice.randbytes(HEADER_BYTES), header_bytes=HEADER_BYTES)
        records = [message_enqueued(0, "q", number + 1, header, b"x")]
        records.append(Record(Kind.RELEASED, 0, "q", number + 1, "holder"))
        rows = [Row(2 * number + at, 1, record) for at, record in enumerate(records, 1)]
        append_journal(root, rows, 0, number)
    before = read_bytes()
    (columns,) = message_headers(root, [5], {}, 100)
    assert [len(columns.headers), *columns.message_ids] == [HEADER_BYTES, 5]
    assert read_bytes() - before < FILES // 2 * HEADER_BYTES


def test_a_fenced_writers_headers_do_not_count(tmp_path: Path) -> None:
    """Though the opening that fenced it is in a file without any message that is wanted."""
    root, header = open_or_create_root(tmp_path / "root"), MessageHeader("amqp", b"h")
    append_journal(root, [Row(1, 1, message_enqueued(0, "q", 1, header, b"x"))], 0, 0)
    append_journal(root, [Row(2, 2, opened(0, "another"))], 0, 1)
    append_journal(root, [Row(3, 1, message_enqueued(0, "q", 2, header, b"x"))], 0, 2)
    (columns,) = message_headers(root, [1], {}, 100)
    assert [*columns.message_ids] == [1]
    with pytest.raises(CorruptData, match="the header of message 2"):
        [*message_headers(root, [1, 2], {}, 100)]


@pytest.mark.parametrize(
    ("failure", "raised"), [(OSError("gone"), Unavailable), (CorruptData("lost"), CorruptData)]
)
def test_what_fails_is_read_four_times(failure: Exception, raised: type[Exception]) -> None:
    """A table is in memory here, as no disk can be had to fail so often and no more."""
    failures = [failure] * 3

    def read() -> pa.Table:
        if failures:
            raise failures.pop()
        return pa.table({"position": [1]})

    assert read_again(read).num_rows == 1
    failures[:] = [failure] * 4
    with pytest.raises(raised, match=str(failure)):
        read_again(read)
    assert not failures
