"""The write-ahead log of one epoch: files written once beforehand, then reused in turn.

One thread appends; another releases files whose positions Delta holds durably. What is held: a
lock around the lists of files, never around a write. Why nothing is lost: `append` returns after
the group was synced. A file is reused only after `release` said that all its positions would
survive without it, and its header, with a new turn, is synced before the first group in it.

A write that failed is not tried again (fsync that failed once may say yes the second time and lie):
the caller must stop.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sparkstore.log.wal_format import (
    BLOCK_BYTES,
    FileHeader,
    encode_file_header,
    encode_group,
    group_bytes,
    seed,
    turns_before,
)
from sparkstore.storage.durable_files import SyncFailed, fsync_path

_PADDING = [bytes(n) for n in range(BLOCK_BYTES)]
_CHUNK = bytes(1 << 20)
_LEAST_FILE_BYTES = 1 << 20


class NoRoom(Exception):
    """No WAL file is free and none can be made: try again when `release` freed one."""


@dataclass(slots=True)
class _File:
    path: Path
    descriptor: int
    size: int
    last_position: int = 0


SyncWrite = Callable[[int, list[bytes], int], int]


def sync_write(descriptor: int, buffers: list[bytes], offset: int) -> int:
    """Write and sync in one system call; it is as durable as pwritev, then fdatasync."""
    return os.pwritev(descriptor, buffers, offset, os.RWF_DSYNC)


def plain_write(descriptor: int, buffers: list[bytes], offset: int) -> int:
    """Write without sync: only to measure what the sync costs."""
    return os.pwritev(descriptor, buffers, offset)


class Wal:
    """Appends groups. See the module for who may call what."""

    def __init__(
        self,
        folder: Path,
        root_id: bytes,
        epoch: int,
        *,
        file_bytes: int,
        max_files: int,
        write: SyncWrite = sync_write,
        has_room_for: Callable[[int], bool] = lambda _byte_count: True,
    ) -> None:
        """Take over a folder whose groups have all been replayed: every file in it is free.

        Where `has_room_for` says no to so many bytes, or the disk does, a new file is a small one
        of `_LEAST_FILE_BYTES`. It counts as the part of a file that it is, so that the log is as
        long as it may be when there is room again.
        """
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder
        self._root_id, self._epoch = root_id, epoch
        self._file_bytes, self._max_files = file_bytes, max_files
        self._write, self._has_room_for = write, has_room_for
        self._seed = seed(root_id, epoch)
        self._guard = threading.Lock()
        self._free = deque(_adopt(path) for path in sorted(folder.glob("*.wal")))
        self._full: deque[_File] = deque()
        self._turn = turns_before(epoch)
        self._current: _File | None = None
        self._offset = 0
        numbers = (int(f.path.stem) for f in self._free if f.path.stem.isdecimal())
        self._next_number = 1 + max(numbers, default=-1)
        fsync_path(folder)
        fsync_path(folder.parent)

    @property
    def file_count(self) -> int:
        """Files that exist, in use or free."""
        with self._guard:
            return len(self._free) + len(self._full) + (self._current is not None)

    def append(self, payload: bytes, count: int, first_position: int) -> None:
        """Make packed records durable as one group.

        Raises:
            NoRoom: Nothing was written; the same call may be made again.
            OSError: The group may be there or not, and no later call may be made.
        """
        needed = group_bytes(len(payload))
        if self._current is None or self._offset + needed > self._current.size:
            self._next_file(needed)
        assert self._current is not None
        header = encode_group(payload, count, first_position, self._turn, self._seed)
        padding = _PADDING[needed - len(header) - len(payload)]
        written = self._write(self._current.descriptor, [header, payload, padding], self._offset)
        if written != needed:
            raise OSError(errno.EIO, f"{self._current.path}: wrote {written} of {needed} bytes")
        self._offset += needed
        self._current.last_position = first_position + count - 1

    def release(self, position: int) -> int:
        """Free every full file all of whose positions are at most this one; how many."""
        freed = 0
        with self._guard:
            while self._full and self._full[0].last_position <= position:
                self._free.append(self._full.popleft())
                freed += 1
        return freed

    def prepare_spare(self) -> None:
        """Write one more file beforehand if none is free and there may be more.

        Raises:
            OSError: No room on the disk, most likely.
        """
        if not self._free and self._may_have_more():
            spare = self._create_some()
            with self._guard:
                self._free.append(spare)

    def close(self, *, released: int = 0) -> None:
        """Close the files; nothing is written.

        With every position up to `released` surviving without them, files that hold no other go:
        a store that ended well leaves no log. Why nothing is lost if that is cut off anywhere: what
        is left of them is replayed, and found to be in Delta already.
        """
        self.release(released)
        if self._current is not None:
            done = self._current.last_position <= released
            (self._free if done else self._full).append(self._current)
        for file in [*self._free, *self._full]:
            os.close(file.descriptor)
        if released:
            for file in self._free:
                file.path.unlink(missing_ok=True)
            fsync_path(self._folder)
        self._free.clear()
        self._full.clear()
        self._current = None

    def _next_file(self, needed: int) -> None:
        file = self._take_free(needed + BLOCK_BYTES)
        self._turn += 1
        header = encode_file_header(FileHeader(self._root_id, self._epoch, self._turn))
        if self._write(file.descriptor, [header], 0) != BLOCK_BYTES:
            raise OSError(errno.EIO, f"{file.path}: could not write its header")
        # The header is synced before the first group: without it nobody would replay the file.
        with self._guard:
            if self._current is not None:
                self._full.append(self._current)
            self._current = file
        self._offset = BLOCK_BYTES

    def _take_free(self, needed: int) -> _File:
        with self._guard:
            file = self._free.popleft() if self._free else None
        if file is None:
            if not self._may_have_more():
                raise NoRoom(f"all {self._max_files} files wait for their Delta commit")
            file = self._create_or_no_room()
        if file.size < needed:
            # A group larger than a file, a huge transaction, makes its file grow.
            try:
                _fill(file.descriptor, file.size, needed)
            except OSError as reason:
                with self._guard:
                    self._free.appendleft(file)
                raise NoRoom(f"{file.path} cannot grow: {reason.strerror}") from reason
            file.size = needed
        return file

    def _create_or_no_room(self) -> _File:
        try:
            return self._create_some()
        except SyncFailed:
            raise
        except OSError as reason:
            raise NoRoom(f"no new file in {self._folder}: {reason.strerror}") from reason

    def _may_have_more(self) -> bool:
        with self._guard:
            files = [*self._free, *self._full, *([self._current] if self._current else [])]
        byte_count = sum(min(file.size, self._file_bytes) for file in files)
        return byte_count < self._max_files * self._file_bytes

    def _create_some(self) -> _File:
        small = min(self._file_bytes, _LEAST_FILE_BYTES)
        if self._file_bytes > small and self._has_room_for(self._file_bytes):
            try:
                return self._create(self._file_bytes)
            except SyncFailed:
                raise
            except OSError as reason:
                if reason.errno != errno.ENOSPC:
                    raise
        return self._create(small)

    def _create(self, size: int) -> _File:
        with self._guard:
            number, self._next_number = self._next_number, self._next_number + 1
        path = self._folder / f"{number:06d}.wal"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        descriptor = os.open(path, flags, 0o600)
        try:
            _fill(descriptor, 0, size)
        except OSError:
            os.close(descriptor)
            path.unlink()
            raise
        # A synced write does not make a new name durable: its folder does, before the first group.
        fsync_path(self._folder)
        return _File(path, descriptor, size)


def _fill(descriptor: int, start: int, end: int) -> None:
    for offset in range(start, end, len(_CHUNK)):
        part = _CHUNK[: end - offset]
        if os.pwrite(descriptor, part, offset) != len(part):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    os.fsync(descriptor)


def _adopt(path: Path) -> _File:
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    return _File(path, descriptor, path.stat().st_size)
