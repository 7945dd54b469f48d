"""What a start finds in the write-ahead log, and when it must not go on."""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkstore.errors import CorruptData
from sparkstore.log.wal_format import BLOCK_BYTES
from sparkstore.log.wal_replay import set_aside
from tests.support.roots.wals import (
    FILE_BYTES,
    flip,
    groups_of,
    open_wal,
    payload_of,
    positions,
    replay,
    truncate,
    write_groups,
    written,
)

PER_FILE = FILE_BYTES // BLOCK_BYTES - 1
GROUP_BYTES = 32 + len(payload_of(1))
"""Header and payload; what follows in the block is padding."""


def start_of(position: int) -> int:
    """Byte at which the group of a position begins, in its file."""
    return BLOCK_BYTES * (1 + (position - 1) % PER_FILE)


def test_an_absent_or_empty_log_has_nothing_to_replay(tmp_path: Path) -> None:
    assert replay(tmp_path / "absent").groups == []
    (tmp_path / "000000.wal").touch()
    assert replay(tmp_path).groups == []


def test_only_what_delta_does_not_hold_is_replayed(tmp_path: Path) -> None:
    written(tmp_path, 10)
    assert positions(replay(tmp_path, last_position=0).groups) == [*range(1, 11)]
    assert positions(replay(tmp_path, last_position=6).groups) == [7, 8, 9, 10]
    assert positions(replay(tmp_path, last_position=10).groups) == []
    assert positions(replay(tmp_path, last_position=99).groups) == []


def each_flip(path: Path, first: int, count: int) -> Iterator[int]:
    """Flip one bit of each of so many bytes, one at a time, and repair it afterwards."""
    for offset in range(first, first + count):
        flip(path, offset, offset % 8)
        yield offset
        flip(path, offset, offset % 8)


def test_a_flipped_bit_in_the_last_group_cuts_it_and_says_so(tmp_path: Path) -> None:
    written(tmp_path, 5)
    for offset in each_flip(tmp_path / "000000.wal", start_of(5), GROUP_BYTES):
        found = replay(tmp_path)
        assert positions(found.groups) == [1, 2, 3, 4], offset
        assert found.torn == (tmp_path / "000000.wal", start_of(5)), offset


def test_a_flipped_bit_before_the_last_group_is_corrupt_data_with_file_and_byte(
    tmp_path: Path,
) -> None:
    written(tmp_path, 5)
    said = rf"000000.wal is damaged at byte {start_of(3)}: position 3 "
    for _offset in each_flip(tmp_path / "000000.wal", start_of(3), GROUP_BYTES):
        with pytest.raises(CorruptData, match=said):
            replay(tmp_path)


def test_a_flipped_bit_in_what_delta_holds_changes_nothing(tmp_path: Path) -> None:
    written(tmp_path, 5)
    for offset in each_flip(tmp_path / "000000.wal", start_of(3), GROUP_BYTES):
        assert positions(replay(tmp_path, last_position=3).groups) == [4, 5], offset


def test_a_flipped_bit_in_a_file_header_loses_nothing(tmp_path: Path) -> None:
    written(tmp_path, 5)
    for offset in each_flip(tmp_path / "000000.wal", 0, BLOCK_BYTES):
        assert positions(replay(tmp_path).groups) == [1, 2, 3, 4, 5], offset


def test_a_flipped_bit_in_padding_loses_nothing(tmp_path: Path) -> None:
    written(tmp_path, 3)
    flip(tmp_path / "000000.wal", start_of(2) + GROUP_BYTES)
    flip(tmp_path / "000000.wal", start_of(3) + BLOCK_BYTES - 1)
    assert positions(replay(tmp_path).groups) == [1, 2, 3]


def test_the_last_file_cut_at_any_byte_gives_every_group_that_is_whole_and_says_so(
    tmp_path: Path,
) -> None:
    written(tmp_path, 3)
    for size in range(start_of(4), -1, -1):
        truncate(tmp_path / "000000.wal", size)
        found = replay(tmp_path)
        whole = [p for p in (1, 2, 3) if size >= start_of(p) + GROUP_BYTES]
        assert positions(found.groups) == whole, size
        is_cut = any(start_of(p) < size < start_of(p) + GROUP_BYTES for p in (1, 2, 3))
        assert (found.torn is not None) == is_cut, size


@pytest.mark.parametrize("size", [0, 100, 512, 600, start_of(4), start_of(7) + 10])
def test_a_file_cut_before_a_later_file_is_corrupt_data(tmp_path: Path, size: int) -> None:
    written(tmp_path, PER_FILE + 2)
    truncate(tmp_path / "000000.wal", size)
    with pytest.raises(CorruptData, match="is damaged at byte"):
        replay(tmp_path)
    assert positions(replay(tmp_path, last_position=PER_FILE).groups) == [
        PER_FILE + 1,
        PER_FILE + 2,
    ]


def test_a_whole_log_that_ends_anywhere_is_not_called_torn(tmp_path: Path) -> None:
    wal = open_wal(tmp_path, max_files=2)
    for position in range(1, 40):
        wal.append(payload_of(position) * (position % 5), 1, position)
        wal.release(position - 1)
        assert replay(tmp_path, last_position=position).torn is None
    wal.close()


def test_a_whole_log_over_groups_of_earlier_epochs_is_not_called_torn(tmp_path: Path) -> None:
    for epoch in range(1, 8):
        wal = open_wal(tmp_path, epoch=epoch)
        write_groups(wal, 8 - epoch, first=10 * epoch)
        wal.close()
        before = 10 * epoch - 1
        found = replay(tmp_path, epoch=epoch, opened_at=before, last_position=before)
        assert len(found.groups) == 8 - epoch
        assert found.torn is None


def test_the_damaged_file_is_named_when_its_first_group_is_hit(tmp_path: Path) -> None:
    written(tmp_path, PER_FILE + 3)
    flip(tmp_path / "000001.wal", start_of(1) + 33)
    with pytest.raises(CorruptData, match=rf"000001.wal is damaged at byte {start_of(1)}"):
        replay(tmp_path)


def test_a_log_that_begins_after_what_delta_holds_is_corrupt_data(tmp_path: Path) -> None:
    wal = open_wal(tmp_path)
    write_groups(wal, 3, first=8)
    wal.close()
    with pytest.raises(CorruptData, match="position 7 is unreadable"):
        replay(tmp_path, last_position=6)


def test_a_group_that_delta_holds_by_half_is_corrupt_data(tmp_path: Path) -> None:
    wal = open_wal(tmp_path)
    wal.append(b"four records", 4, 1)
    wal.close()
    with pytest.raises(CorruptData, match="positions 1 to 4"):
        replay(tmp_path, last_position=2)


def test_any_one_damaged_byte_is_cut_or_refused_or_harmless_never_believed(tmp_path: Path) -> None:
    written(tmp_path, PER_FILE + 3)
    files = sorted(tmp_path.glob("*.wal"))
    original = {path: path.read_bytes() for path in files}
    dice = random.Random(3)
    refused = 0
    for _ in range(300):
        path, bit = dice.choice(files), dice.randrange(8)
        flip(path, dice.randrange(FILE_BYTES), bit)
        try:
            found = positions(replay(tmp_path).groups)
        except CorruptData:
            refused += 1
        else:
            assert found in ([*range(1, PER_FILE + 4)], [*range(1, PER_FILE + 3)])
        path.write_bytes(original[path])
    assert refused > 0


def test_a_log_of_another_root_is_refused(tmp_path: Path) -> None:
    wal = open_wal(tmp_path, root_id=bytes(16))
    write_groups(wal, 2)
    wal.close()
    with pytest.raises(CorruptData, match=f"000000.wal belongs to root {bytes(16).hex()}"):
        replay(tmp_path)


def test_a_log_of_a_later_epoch_is_refused(tmp_path: Path) -> None:
    wal = open_wal(tmp_path, epoch=3)
    write_groups(wal, 2)
    wal.close()
    with pytest.raises(CorruptData, match="is of epoch 3, the journal knows none after 2"):
        replay(tmp_path, epoch=2)


def test_an_older_epoch_that_was_replayed_is_left_for_reuse(tmp_path: Path) -> None:
    written(tmp_path, 5)
    found = replay(tmp_path, epoch=2, opened_at=6, last_position=6)
    assert (found.groups, found.stale) == ([], [])


def test_an_older_epoch_that_nobody_replayed_is_set_aside_listed_and_never_replayed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    written(tmp_path, 5)
    content = (tmp_path / "000000.wal").read_bytes()
    found = replay(tmp_path, epoch=2, opened_at=4, last_position=6)
    assert found.groups == []
    with caplog.at_level(logging.WARNING):
        set_aside(found.stale)
    (kept,) = (tmp_path / "set-aside").iterdir()
    assert kept.read_bytes() == content
    assert str(kept.parent) in caplog.text
    assert not (tmp_path / "000000.wal").exists()
    again = replay(tmp_path, epoch=2, opened_at=4, last_position=6)
    assert (again.groups, again.stale) == ([], [])


def test_what_is_set_aside_is_on_disk_under_its_new_name_before_the_start_goes_on(
    tmp_path: Path, calls: list[str]
) -> None:
    written(tmp_path, 5)
    calls.clear()
    set_aside(replay(tmp_path, epoch=2, opened_at=4, last_position=6).stale)
    assert calls == [
        "rename 000000.wal 0000-000000.wal",
        "fsync set-aside",
        f"fsync {tmp_path.name}",
    ]


def test_files_of_the_same_name_set_aside_twice_are_both_kept(tmp_path: Path) -> None:
    for epoch in (1, 2):
        wal = open_wal(tmp_path, epoch=epoch)
        write_groups(wal, 2, first=10)
        wal.close()
        set_aside(replay(tmp_path, epoch=epoch + 1, opened_at=5, last_position=20).stale)
    assert len([*(tmp_path / "set-aside").iterdir()]) == 2


def test_reused_files_with_groups_of_old_turns_replay_the_new_ones_only(tmp_path: Path) -> None:
    wal = open_wal(tmp_path, max_files=2)
    for position in range(1, 100):
        write_groups(wal, 1, first=position)
        wal.release(position - 3)
    wal.close()
    found = positions(replay(tmp_path, last_position=96).groups)
    assert found == [97, 98, 99]
    assert len([*tmp_path.glob("*.wal")]) == 2
    in_files = [p for path in tmp_path.glob("*.wal") for p in positions(groups_of(path))]
    assert sorted(in_files) == [*range(min(in_files), 100)]


def test_a_file_taken_for_its_next_turn_but_without_a_group_yet_is_no_damage(
    tmp_path: Path,
) -> None:
    wal = open_wal(tmp_path, max_files=2)
    write_groups(wal, 2 * PER_FILE)
    wal.release(PER_FILE)
    wal._write = _only_headers
    with pytest.raises(OSError, match="cut off"):
        write_groups(wal, 1, first=2 * PER_FILE + 1)
    wal.close()
    found = replay(tmp_path, last_position=PER_FILE)
    assert positions(found.groups) == [*range(PER_FILE + 1, 2 * PER_FILE + 1)]


def _only_headers(descriptor: int, buffers: list[bytes], offset: int) -> int:
    if offset:
        raise OSError("cut off")
    return os.pwritev(descriptor, buffers, offset)
