"""A file without a name for what is quicker to read again than to decode again.

It lies on the disk of the root, and the system frees it when the process ends, however it ends. It
is two halves: when the newer one is full, the older one is let go. So it keeps what is newest, and
never more than it may. A disk that is short of room, or fails, gets all of it back. Nothing in it
is synced, and nothing depends on it: what is not there any more is decoded again.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import IO, NamedTuple

_log = logging.getLogger(__name__)


class ScratchPlace(NamedTuple):
    """Place of some bytes in a half, and what Python's hash of them is.

    It is compared when they are read: a disk may lose what nobody synced, and tell nobody.
    """

    file: IO[bytes]
    offset: int
    length: int
    hashed: int


class Scratch:
    """Keeps bytes on disk for a while. Not thread-safe: its owner locks.

    Args:
        folder: Where the file lies.
        most_bytes: It is never larger; 0 keeps nothing.
        has_room_for: Tells whether so many bytes may be written to that disk now.
    """

    def __init__(self, folder: Path, most_bytes: int, has_room_for: Callable[[int], bool]) -> None:
        self._folder, self._half_bytes, self._has_room_for = folder, most_bytes // 2, has_room_for
        self._halves: list[IO[bytes]] = []  # the older one first
        self._end = 0

    def write(self, parts: Sequence[bytes]) -> list[ScratchPlace]:
        """Keep bytes; where each part of them is, or nothing if they are not kept."""
        length = sum(map(len, parts))
        if not 0 < length <= self._half_bytes:
            return []
        try:
            if not self._has_room_for(length):
                self._drop(0)
                return []
            if not self._halves or self._end + length > self._half_bytes:
                self._halves.append(tempfile.TemporaryFile(buffering=0, dir=self._folder))  # noqa: SIM115
                self._drop(2)
                self._end = 0
            file, offset = self._halves[-1], self._end
            os.pwritev(file.fileno(), parts, offset)  # a part that was not taken is never read
        except OSError as reason:
            _log.warning("decoded content is not kept in %s: %s", self._folder, reason)
            self._drop(0)
            return []
        self._end += length
        starts = accumulate(map(len, parts), initial=offset)
        return [
            ScratchPlace(file, start, len(part), hash(part))
            for start, part in zip(starts, parts, strict=False)
        ]

    def read(self, place: ScratchPlace) -> bytes | None:
        """Return what was written there; None if it is not kept any more, or is not the same."""
        file, offset, length, hashed = place
        try:
            content = b"" if file.closed else os.pread(file.fileno(), length, offset)
        except OSError as reason:
            _log.warning("decoded content is not read back: %s", reason)
            return None
        return content if len(content) == length and hash(content) == hashed else None

    def close(self) -> None:
        """Forget all bytes, and keep nothing from now on."""
        self._half_bytes = 0
        self._drop(0)

    def _drop(self, but: int) -> None:
        """Remove the older halves until so many are left."""
        while len(self._halves) > but:
            self._halves.pop(0).close()
