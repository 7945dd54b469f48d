"""The write-ahead log while it is written: what is synced, which file is reused when."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from sparkstore.log import wal as wal_module
from sparkstore.log.wal import NoRoom, Wal, sync_write
from sparkstore.log.wal_format import BLOCK_BYTES, WalFileReader, decode_file_header, group_bytes
from tests.support.roots.wals import (
    FILE_BYTES,
    ROOT_ID,
    groups_of,
    open_wal,
    positions,
    replay,
    write_groups,
)

PER_FILE = FILE_BYTES // BLOCK_BYTES - 1


class Disk:
    """A write function that counts, and fails when it is told to."""

    def __init__(self) -> None:
        self.writes: list[tuple[int, int]] = []
        self.error: OSError | None = None
        self.lost_bytes = 0

    def __call__(self, descriptor: int, buffers: list[bytes], offset: int) -> int:
        if self.error is not None:
            raise self.error
        self.writes.append((offset, sum(map(len, buffers))))
        return sync_write(descriptor, buffers, offset) - self.lost_bytes


def turns(folder: Path) -> list[int]:
    """Turn of each file, by name; 0 if it has no header yet."""
    found = []
    for path in sorted(folder.glob("*.wal")):
        header = decode_file_header(path.read_bytes()[:BLOCK_BYTES])
        found.append(header.turn if header else 0)
    return found


def test_append_returns_after_one_synced_write_of_the_whole_group(tmp_path: Path) -> None:
    disk = Disk()
    wal = open_wal(tmp_path, write=disk)
    wal.append(b"x" * 700, 3, 1)
    wal.append(b"y", 1, 4)
    wal.close()
    assert disk.writes == [(0, 512), (512, 1024), (1536, 512)]


def test_the_default_write_asks_the_kernel_to_sync_before_it_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags: list[int] = []
    pwritev = os.pwritev

    def spy(descriptor: int, buffers: list[bytes], offset: int, how: int = 0) -> int:
        flags.append(how)
        return pwritev(descriptor, buffers, offset, how)

    monkeypatch.setattr(os, "pwritev", spy)
    wal = Wal(tmp_path, ROOT_ID, 1, file_bytes=FILE_BYTES, max_files=2)
    write_groups(wal, 2)
    wal.close()
    assert len(flags) == 3
    assert all(how & os.RWF_DSYNC for how in flags)


def test_a_new_folder_is_synced_under_its_name_before_any_file_is_in_it(
    tmp_path: Path, calls: list[str]
) -> None:
    open_wal(tmp_path / "wal").close()
    assert calls == ["fsync wal", f"fsync {tmp_path.name}"]


def test_a_new_file_is_written_and_synced_with_its_folder_before_it_is_used(
    tmp_path: Path, calls: list[str]
) -> None:
    wal = open_wal(tmp_path / "wal")
    calls.clear()
    write_groups(wal, 1)
    wal.close()
    assert calls == ["fsync 000000.wal", "fsync wal"]
    assert (tmp_path / "wal" / "000000.wal").stat().st_size == FILE_BYTES


def test_files_fill_in_turn_and_none_is_reused_before_release(tmp_path: Path) -> None:
    wal = open_wal(tmp_path, max_files=3)
    write_groups(wal, 3 * PER_FILE)
    with pytest.raises(NoRoom, match="all 3 files"):
        write_groups(wal, 1, first=3 * PER_FILE + 1)
    wal.close()
    assert positions(replay(tmp_path).groups) == [*range(1, 3 * PER_FILE + 1)]


def test_a_file_is_free_only_when_its_last_position_is_released(tmp_path: Path) -> None:
    wal = open_wal(tmp_path, max_files=2)
    write_groups(wal, 2 * PER_FILE)
    assert wal.release(PER_FILE - 1) == 0
    with pytest.raises(NoRoom):
        write_groups(wal, 1, first=2 * PER_FILE + 1)
    assert wal.release(PER_FILE) == 1
    write_groups(wal, 1, first=2 * PER_FILE + 1)
    wal.close()
    assert positions(replay(tmp_path, last_position=PER_FILE).groups) == [
        *range(PER_FILE + 1, 2 * PER_FILE + 2)
    ]


def test_the_file_in_use_is_never_released(tmp_path: Path) -> None:
    wal = open_wal(tmp_path, max_files=2)
    write_groups(wal, 2)
    assert wal.release(2) == 0
    write_groups(wal, 1, first=3)
    wal.close()
    assert positions(groups_of(tmp_path / "000000.wal")) == [1, 2, 3]


def test_after_no_room_the_same_append_may_be_made_again(tmp_path: Path) -> None:
    wal = open_wal(tmp_path, max_files=2)
    write_groups(wal, 2 * PER_FILE)
    for _ in range(3):
        with pytest.raises(NoRoom):
            write_groups(wal, 1, first=2 * PER_FILE + 1)
    wal.release(2 * PER_FILE)
    write_groups(wal, PER_FILE, first=2 * PER_FILE + 1)
    wal.close()
    assert positions(replay(tmp_path, last_position=PER_FILE).groups) == [
        *range(PER_FILE + 1, 3 * PER_FILE + 1)
    ]


def test_each_use_of_a_file_has_a_turn_of_its_own(tmp_path: Path) -> None:
    wal = open_wal(tmp_path, max_files=2)
    seen: list[int] = []
    for use in range(6):
        write_groups(wal, PER_FILE, first=1 + use * PER_FILE)
        seen.append(max(turns(tmp_path)))
        wal.release(use * PER_FILE)
    wal.close()
    assert seen == [1, 2, 3, 4, 5, 6]
    assert sorted(turns(tmp_path)) == [5, 6]


def test_a_new_epoch_never_gives_a_turn_of_an_old_one(tmp_path: Path) -> None:
    seen: list[int] = []
    for epoch in (1, 2):
        wal = Wal(tmp_path, ROOT_ID, epoch, file_bytes=FILE_BYTES, max_files=2)
        write_groups(wal, 2 * PER_FILE)
        wal.close()
        seen += turns(tmp_path)
    assert len({*seen}) == 4


def test_a_group_larger_than_a_file_makes_one_grow(tmp_path: Path) -> None:
    wal = open_wal(tmp_path, max_files=3)
    big = b"z" * (3 * FILE_BYTES)
    wal.append(b"small", 1, 1)
    wal.append(big, 5, 2)
    wal.append(b"after", 1, 7)
    wal.close()
    found = replay(tmp_path).groups
    assert [(g.first_position, g.last_position, g.payload) for g in found] == [
        (1, 1, b"small"),
        (2, 6, big),
        (7, 7, b"after"),
    ]
    assert (tmp_path / "000001.wal").stat().st_size >= BLOCK_BYTES + group_bytes(len(big))


def test_a_start_takes_over_every_file_of_the_epoch_before(tmp_path: Path) -> None:
    wal = open_wal(tmp_path, max_files=2)
    write_groups(wal, PER_FILE + 1)
    wal.close()
    wal = open_wal(tmp_path, epoch=2, max_files=2)
    assert wal.file_count == 2
    write_groups(wal, 2 * PER_FILE, first=20)
    wal.close()
    assert len([*tmp_path.glob("*.wal")]) == 2
    found = replay(tmp_path, epoch=2, opened_at=19, last_position=19)
    assert positions(found.groups) == [*range(20, 20 + 2 * PER_FILE)]
    assert found.stale == []


def test_a_spare_is_made_only_when_none_is_free_and_there_may_be_more(tmp_path: Path) -> None:
    wal = open_wal(tmp_path, max_files=2)
    wal.prepare_spare()
    wal.prepare_spare()
    assert wal.file_count == 1
    write_groups(wal, 1)
    wal.prepare_spare()
    assert wal.file_count == 2
    write_groups(wal, PER_FILE, first=2)
    wal.prepare_spare()
    assert wal.file_count == 2
    wal.close()


def test_files_all_of_whose_positions_are_released_go_at_the_close(tmp_path: Path) -> None:
    wal = open_wal(tmp_path, max_files=4)
    write_groups(wal, 2 * PER_FILE + 1)
    wal.close(released=2 * PER_FILE + 1)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("released", [1, PER_FILE, PER_FILE + 1, 2 * PER_FILE])
def test_a_file_with_one_position_that_is_not_released_stays_at_the_close(
    tmp_path: Path, released: int
) -> None:
    wal = open_wal(tmp_path, max_files=4)
    write_groups(wal, 2 * PER_FILE + 1)
    wal.close(released=released)
    found = replay(tmp_path, last_position=released)
    assert set(range(released + 1, 2 * PER_FILE + 2)) <= set(positions(found.groups))


def test_a_close_that_knows_of_nothing_released_leaves_every_file(tmp_path: Path) -> None:
    wal = open_wal(tmp_path, max_files=4)
    wal.prepare_spare()
    write_groups(wal, PER_FILE + 1)
    wal.close()
    assert len([*tmp_path.glob("*.wal")]) == 2


def test_a_write_that_fails_is_not_taken_for_done(tmp_path: Path) -> None:
    disk = Disk()
    wal = open_wal(tmp_path, write=disk)
    write_groups(wal, 1)
    disk.error = OSError(errno.EIO, "Input/output error")
    with pytest.raises(OSError, match="Input/output"):
        write_groups(wal, 1, first=2)
    wal.close()


def test_a_write_that_is_cut_short_is_an_error(tmp_path: Path) -> None:
    disk = Disk()
    wal = open_wal(tmp_path, write=disk)
    write_groups(wal, 1)
    disk.lost_bytes = 1
    with pytest.raises(OSError, match="wrote 511 of 512"):
        write_groups(wal, 1, first=2)
    wal.close()


class FullDisk:
    """`os.pwrite` on a disk that has room for so many bytes more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room = 0
        self._pwrite = os.pwrite
        monkeypatch.setattr(wal_module.os, "pwrite", self)

    def __call__(self, descriptor: int, content: bytes, offset: int) -> int:
        if self.room < len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.room -= len(content)
        return self._pwrite(descriptor, content, offset)


def test_a_full_disk_is_no_room_and_leaves_no_half_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wal = open_wal(tmp_path)
    write_groups(wal, PER_FILE)
    disk = FullDisk(monkeypatch)
    with pytest.raises(NoRoom, match="No space left"):
        write_groups(wal, 1, first=PER_FILE + 1)
    assert [path.name for path in tmp_path.iterdir()] == ["000000.wal"]
    disk.room = 10 * FILE_BYTES
    write_groups(wal, 1, first=PER_FILE + 1)
    wal.close()
    assert positions(replay(tmp_path).groups) == [*range(1, PER_FILE + 2)]


def test_a_file_that_cannot_grow_stays_free_for_smaller_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wal = open_wal(tmp_path)
    wal.prepare_spare()
    FullDisk(monkeypatch)
    with pytest.raises(NoRoom, match="cannot grow"):
        wal.append(b"z" * 2 * FILE_BYTES, 1, 1)
    write_groups(wal, 1)
    wal.close()
    assert positions(replay(tmp_path).groups) == [1]


def test_a_copy_that_an_operator_left_beside_the_files_stops_nothing(tmp_path: Path) -> None:
    wal = open_wal(tmp_path)
    write_groups(wal, 2)
    wal.close()
    (tmp_path / "before upgrade.wal").write_bytes((tmp_path / "000000.wal").read_bytes())
    assert positions(replay(tmp_path).groups) == [1, 2]
    wal = open_wal(tmp_path, epoch=2)
    write_groups(wal, 3 * PER_FILE, first=4)
    wal.close()
    found = replay(tmp_path, epoch=2, opened_at=3, last_position=3)
    assert positions(found.groups) == [*range(4, 4 + 3 * PER_FILE)]


def test_files_are_for_their_owner_only(tmp_path: Path) -> None:
    wal = open_wal(tmp_path / "wal")
    write_groups(wal, 1)
    wal.close()
    assert (tmp_path / "wal").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "wal" / "000000.wal").stat().st_mode & 0o777 == 0o600


def test_a_symbolic_link_in_place_of_a_file_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(b"p" * 9000)
    (tmp_path / "wal").mkdir()
    (tmp_path / "wal" / "000000.wal").symlink_to(precious)
    with pytest.raises(OSError, match="symbolic"):
        open_wal(tmp_path / "wal")
    assert precious.read_bytes() == b"p" * 9000


def test_the_header_of_a_reused_file_is_synced_before_its_first_group(tmp_path: Path) -> None:
    disk = Disk()
    wal = open_wal(tmp_path, max_files=2, write=disk)
    write_groups(wal, 2 * PER_FILE)
    wal.release(PER_FILE)
    disk.writes.clear()
    write_groups(wal, 1, first=2 * PER_FILE + 1)
    wal.close()
    assert [offset for offset, _ in disk.writes] == [0, BLOCK_BYTES]
    reader = WalFileReader(tmp_path / "000000.wal", ROOT_ID, 1)
    assert reader.header is not None
    assert reader.header.turn == 3
    reader.close()
