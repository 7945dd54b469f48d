"""Write and read the format of write-ahead log files. All integers are little-endian.

    file     header, then groups at multiples of 512 bytes; what lies behind the last group is
             zeroes, or groups of an earlier turn
    header   8   magic "SPKSWAL1"
             16  root id
             u64 epoch of the writer
             u64 turn: number of this use of a file, rising, never given twice
             u32 CRC-32 of the 40 bytes before
    group    4   magic "GRP1"
             u32 bytes of packed records
             u32 number of records
             u64 position of the first record
             u64 turn of the file
             u32 CRC-32 of root id, epoch, the 28 bytes before, and the packed records
             then the packed records (`codec`), then zeroes to a multiple of 512

A group is the unit: all of it counts or none. It is written only after the group before it was
synced, so behind a torn group there is never a good one with higher positions. Where there is one,
the disk lost something that was acknowledged, and that is `CorruptData`. A reused file is told
from its last use by the turn, another root's or another epoch's by the CRC.
"""

from __future__ import annotations

import mmap
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from sparkstore.errors import CorruptData

BLOCK_BYTES = 512
_FILE_MAGIC = b"SPKSWAL1"
_GROUP_MAGIC = b"GRP1"
_FILE = Struct("<8s16sQQI")
_GROUP = Struct("<4sIIQQI")
_GROUP_SIGNED_BYTES = _GROUP.size - 4
_TURNS_OF_AN_EPOCH = 1 << 24


class FileHeader(NamedTuple):
    """Identity of a file's writer and of its use."""

    root_id: bytes
    epoch: int
    turn: int


class WalGroup(NamedTuple):
    """Records made durable by one sync.

    Attributes:
        path: File it is in.
        offset: Byte at which its header starts.
        first_position: Position of its first record.
        record_count: Records in it.
        payload: The packed records.
    """

    path: Path
    offset: int
    first_position: int
    record_count: int
    payload: bytes

    @property
    def last_position(self) -> int:
        """Position of its last record."""
        return self.first_position + self.record_count - 1


def encode_file_header(header: FileHeader) -> bytes:
    """Encode the header of a file, as one block."""
    signed = _FILE.pack(_FILE_MAGIC, *header, 0)[:-4]
    return (signed + zlib.crc32(signed).to_bytes(4, "little")).ljust(BLOCK_BYTES, b"\0")


def decode_file_header(block: bytes) -> FileHeader | None:
    """Decode a file's header; None if it is none, or damaged."""
    if len(block) < _FILE.size:
        return None
    magic, root_id, epoch, turn, crc = _FILE.unpack_from(block)
    if magic != _FILE_MAGIC or crc != zlib.crc32(block[: _FILE.size - 4]):
        return None
    return FileHeader(root_id, epoch, turn)


def seed(root_id: bytes, epoch: int) -> int:
    """Return the value that the CRC of a group starts from."""
    return zlib.crc32(root_id + epoch.to_bytes(8, "little"))


def turns_before(epoch: int) -> int:
    """The last turn that an earlier epoch can give: turns of epochs do not overlap."""
    return (epoch - 1) * _TURNS_OF_AN_EPOCH


def _epoch_of(turn: int) -> int:
    return (turn - 1) // _TURNS_OF_AN_EPOCH + 1


def encode_group(payload: bytes, count: int, first_position: int, turn: int, start: int) -> bytes:
    """Header of a group; `start` is the `seed`. The caller appends payload and padding."""
    signed = _GROUP.pack(_GROUP_MAGIC, len(payload), count, first_position, turn, 0)[:-4]
    crc = zlib.crc32(payload, zlib.crc32(signed, start))
    return signed + crc.to_bytes(4, "little")


def group_encoder(root_id: bytes, epoch: int) -> Callable[[bytes, int, int, int], bytes]:
    """Make `encode_group` for the groups of one writer."""
    return partial(encode_group, start=seed(root_id, epoch))


class LooseGroup(NamedTuple):
    """A group that is in no file: as `WalGroup`, and the turn that it names."""

    first_position: int
    record_count: int
    turn: int
    payload: bytes

    @property
    def last_position(self) -> int:
        """Position of its last record."""
        return self.first_position + self.record_count - 1


def decode_group(content: memoryview, start: int) -> LooseGroup | None:
    """Decode a group that came by itself; None unless all of it is one, of this `seed`."""
    if len(content) < _GROUP.size:
        return None
    magic, size, count, first, turn, crc = _GROUP.unpack_from(content)
    payload = content[_GROUP.size :]
    if magic != _GROUP_MAGIC or size != len(payload) or not count:
        return None
    if crc != zlib.crc32(payload, zlib.crc32(content[:_GROUP_SIGNED_BYTES], start)):
        return None
    return LooseGroup(first, count, turn, bytes(payload))


def group_bytes(payload_bytes: int) -> int:
    """Bytes that a group takes in its file, padding included."""
    return -(-(_GROUP.size + payload_bytes) // BLOCK_BYTES) * BLOCK_BYTES


class WalFileReader:
    """Reads one file, mapped: an empty or vanishing file has no groups."""

    def __init__(self, path: Path, root_id: bytes, epoch: int) -> None:
        self.path = path
        self._root_id = root_id
        self._start = seed(root_id, epoch)
        with path.open("rb") as file:
            size = path.stat().st_size
            self._view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
        self.header = decode_file_header(bytes(self._view[:BLOCK_BYTES]))

    def groups(self) -> Iterator[WalGroup]:
        """The good groups of this turn, in order; behind a bad one the search tries every block.

        A file whose header is damaged is searched for groups of any turn.
        """
        turn = self.header.turn if self.header else None
        offset = BLOCK_BYTES
        while offset < len(self._view):
            group = self.group_at(offset, turn)
            if group:
                yield group
                offset += group_bytes(len(group.payload))
            else:
                offset = self._next_magic(offset + BLOCK_BYTES)

    def _next_magic(self, offset: int) -> int:
        while offset % BLOCK_BYTES or self._view[offset : offset + 4] != _GROUP_MAGIC:
            offset = self._view.find(_GROUP_MAGIC, offset + 1)
            if offset < 0:
                return len(self._view)
        return offset

    def group_at(
        self, offset: int, turn: int | None = None, *, start: int | None = None
    ) -> WalGroup | None:
        """The good group that starts at a byte, of any turn or of one."""
        view = self._view
        if view[offset : offset + 4] != _GROUP_MAGIC or offset + _GROUP.size > len(view):
            return None
        _, size, count, first, its_turn, crc = _GROUP.unpack_from(view, offset)
        body = offset + _GROUP.size
        if (turn is not None and its_turn != turn) or body + size > len(view) or not count:
            return None
        payload = bytes(view[body : body + size])
        signed = bytes(view[offset : offset + _GROUP_SIGNED_BYTES])
        if crc != zlib.crc32(payload, zlib.crc32(signed, self._start if start is None else start)):
            return None
        return WalGroup(self.path, offset, first, count, payload)

    def looks_torn(self, offset: int) -> bool:
        """True if something of this turn begins at a byte, though it is not a good group.

        One damaged field is enough to spoil a group, so either of two gives it away: the turn, or
        the magic, where no good group of an earlier turn, in whatever epoch, starts.
        """
        rest = bytes(self._view[offset : offset + _GROUP.size])
        if self.header is None or not any(rest):
            return False
        if len(rest) < _GROUP.size:
            return True
        magic, _, _, _, turn, _ = _GROUP.unpack(rest)
        if turn == self.header.turn:
            return True
        return magic == _GROUP_MAGIC and not self._is_good(offset, _epoch_of(turn))

    def _is_good(self, offset: int, epoch: int) -> bool:
        is_epoch = 0 < epoch < 1 << 40
        return is_epoch and self.group_at(offset, start=seed(self._root_id, epoch)) is not None

    def close(self) -> None:
        """Unmap the file, if it was mapped."""
        if isinstance(self._view, mmap.mmap):
            self._view.close()


def check_is_ours(reader: WalFileReader, root_id: bytes, epoch: int) -> None:
    """Refuse a file of another root, or of an epoch that has not been opened.

    Raises:
        CorruptData: It is one.
    """
    header = reader.header
    if header is None:
        return
    if header.root_id != root_id:
        message = f"{reader.path} belongs to root {header.root_id.hex()}, not to {root_id.hex()}"
        raise CorruptData(message)
    if header.epoch > epoch:
        message = (
            f"{reader.path} is of epoch {header.epoch}, the journal knows none after {epoch}:"
            " the journal is older than the log; restore both from one time"
        )
        raise CorruptData(message)
