"""What is in a write-ahead log file, and what is not taken for it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkstore.log.wal_format import (
    BLOCK_BYTES,
    FileHeader,
    WalFileReader,
    decode_file_header,
    encode_file_header,
    encode_group,
    group_bytes,
    seed,
)
from tests.support.roots.wals import (
    ROOT_ID,
    flip,
    groups_of,
    open_wal,
    payload_of,
    positions,
    truncate,
    write_groups,
)

HEADER = FileHeader(ROOT_ID, 7, 3)
GROUP_BYTES = 32 + len(payload_of(1))
"""Header and payload; what follows in the block is padding."""


def test_a_file_header_comes_back_as_it_was_written() -> None:
    block = encode_file_header(HEADER)
    assert len(block) == BLOCK_BYTES
    assert decode_file_header(block) == HEADER


def test_a_file_header_with_any_bit_flipped_is_none() -> None:
    for bit in range(44 * 8):
        block = bytearray(encode_file_header(HEADER))
        block[bit // 8] ^= 1 << bit % 8
        assert decode_file_header(bytes(block)) is None, bit


def test_a_file_header_cut_anywhere_is_none() -> None:
    block = encode_file_header(HEADER)
    assert [decode_file_header(block[:size]) for size in range(44)] == [None] * 44
    assert decode_file_header(block[:44]) == HEADER


@given(st.integers(0, 5000))
def test_a_group_takes_whole_blocks_and_at_least_its_header_and_records(payload: int) -> None:
    size = group_bytes(payload)
    assert size % BLOCK_BYTES == 0
    assert 0 <= size - payload - 32 < BLOCK_BYTES


@given(st.lists(st.binary(min_size=1, max_size=1500), min_size=1, max_size=6))
def test_groups_come_back_in_order_with_offset_positions_and_payload(payloads: list[bytes]) -> None:
    content, first = encode_file_header(FileHeader(ROOT_ID, 1, 1)), 10
    expected = []
    for count, payload in enumerate(payloads, 1):
        expected.append((len(content), first, first + count - 1, payload))
        head = encode_group(payload, count, first, 1, seed(ROOT_ID, 1))
        content += (head + payload).ljust(group_bytes(len(payload)), b"\0")
        first += count
    found = groups_in(content)
    assert found == expected


def groups_in(content: bytes) -> list[tuple[int, int, int, bytes]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "000000.wal"
        path.write_bytes(content)
        return [(g.offset, g.first_position, g.last_position, g.payload) for g in groups_of(path)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of epoch 1, turn 1, with positions 1 to 3 in blocks 1 to 3."""
    wal = open_wal(tmp_path)
    write_groups(wal, 3)
    wal.close()
    return tmp_path / "000000.wal"


def test_a_group_of_another_root_or_epoch_is_not_good(path: Path) -> None:
    assert positions(groups_of(path)) == [1, 2, 3]
    assert groups_of(path, epoch=2) == []
    reader = WalFileReader(path, bytes(16), 1)
    assert [*reader.groups()] == []
    reader.close()


def test_a_flipped_bit_makes_one_group_bad_and_leaves_its_neighbours(path: Path) -> None:
    for offset in range(GROUP_BYTES):
        flip(path, 2 * BLOCK_BYTES + offset, offset % 8)
        assert positions(groups_of(path)) == [1, 3], offset
        flip(path, 2 * BLOCK_BYTES + offset, offset % 8)
    assert positions(groups_of(path)) == [1, 2, 3]


def test_a_file_with_a_damaged_header_still_gives_its_groups(path: Path) -> None:
    flip(path, 30)
    assert positions(groups_of(path)) == [1, 2, 3]


def test_a_file_cut_anywhere_gives_the_groups_that_are_whole(path: Path) -> None:
    for size in range(4 * BLOCK_BYTES, -1, -1):
        truncate(path, size)
        whole = [first for first in (1, 2, 3) if size >= first * BLOCK_BYTES + GROUP_BYTES]
        assert positions(groups_of(path)) == whole, size


def test_a_group_of_an_earlier_turn_is_not_given_again(tmp_path: Path) -> None:
    wal = open_wal(tmp_path, max_files=2)
    write_groups(wal, 14)
    wal.release(7)
    write_groups(wal, 1, first=15)
    wal.close()
    assert positions(groups_of(tmp_path / "000000.wal")) == [15]
    assert positions(groups_of(tmp_path / "000001.wal")) == [8, 9, 10, 11, 12, 13, 14]


def test_bytes_of_a_message_that_look_like_a_group_are_not_one(tmp_path: Path) -> None:
    wal = open_wal(tmp_path)
    imitation = encode_group(b"evil", 1, 99, 1, seed(bytes(16), 1)) + b"evil"
    wal.append(b"x" * (BLOCK_BYTES - 32) + imitation, 1, 1)
    wal.close()
    flip(tmp_path / "000000.wal", BLOCK_BYTES + 40)
    assert groups_of(tmp_path / "000000.wal") == []
