"""Write-ahead logs for tests: written by the real `Wal`, into small files."""

from __future__ import annotations

from pathlib import Path

from sparkstore.log.wal import SyncWrite, Wal, sync_write
from sparkstore.log.wal_format import WalFileReader, WalGroup
from sparkstore.log.wal_replay import Replay, read_wal

ROOT_ID = bytes(range(16))
FILE_BYTES = 4096
"""Room for the header and seven groups of one block."""


def open_wal(
    folder: Path,
    *,
    epoch: int = 1,
    max_files: int = 4,
    file_bytes: int = FILE_BYTES,
    root_id: bytes = ROOT_ID,
    write: SyncWrite = sync_write,
) -> Wal:
    """A log over whatever is in a folder."""
    return Wal(folder, root_id, epoch, file_bytes=file_bytes, max_files=max_files, write=write)


def payload_of(first: int) -> bytes:
    """What `write_groups` writes at a position."""
    return b"record %d;" % first


def write_groups(wal: Wal, count: int, *, first: int = 1) -> None:
    """Append groups of one record each, from a position on."""
    for position in range(first, first + count):
        wal.append(payload_of(position), 1, position)


def written(folder: Path, count: int) -> None:
    """A closed log of epoch 1 with positions 1 to `count`."""
    wal = open_wal(folder)
    write_groups(wal, count)
    wal.close()


def replay(folder: Path, *, epoch: int = 1, opened_at: int = 0, last_position: int = 0) -> Replay:
    """What a start would find."""
    return read_wal(folder, ROOT_ID, epoch=epoch, opened_at=opened_at, last_position=last_position)


def positions(groups: list[WalGroup]) -> list[int]:
    """First positions, in order; every payload is checked to be the one written there."""
    assert [group.payload for group in groups] == [payload_of(g.first_position) for g in groups]
    return [group.first_position for group in groups]


def groups_of(path: Path, epoch: int = 1) -> list[WalGroup]:
    """The good groups of one file."""
    reader = WalFileReader(path, ROOT_ID, epoch)
    try:
        return [*reader.groups()]
    finally:
        reader.close()


def flip(path: Path, offset: int, bit: int = 0) -> None:
    """Flip one bit of a file."""
    content = bytearray(path.read_bytes())
    content[offset] ^= 1 << bit
    path.write_bytes(content)


def truncate(path: Path, size: int) -> None:
    """Cut a file."""
    path.write_bytes(path.read_bytes()[:size])
