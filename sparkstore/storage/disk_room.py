"""Room on the disks of a store: when senders are held back, and a reserve for when none is left.

    free bytes of a disk
    ├── at least `least_free`: all goes on
    ├── below it: `held_back` says so, and the store refuses new messages. What takes messages away
    │   goes on: settling, purges, orders, jobs
    └── none, since others fill the disk, too: the reserve is given up, and that goes on with it

The reserve is a file, `<folder>/reserve`, whose blocks are allocated. Why giving it up loses
nothing: nobody ever reads it. It is made again when there is room for it beside `least_free`. While
no store runs it stays, so a start and a job on a full disk have it, too.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from sparkstore.errors import Full

_log = logging.getLogger(__name__)

RESERVE = "reserve"
_NOTHING = 4 << 20
"""With so few bytes left a disk counts as full: a Delta commit may want as many."""
_GO_ON = 5, 4
"""Senders go on at so many times of what holds them back, so that they do not flutter."""


class Disk(NamedTuple):
    """A disk as it is now.

    Attributes:
        folder: A folder of the store that is on it.
        free_bytes: Those that this process may take.
        total_bytes: Size of its file system.
    """

    folder: Path
    free_bytes: int
    total_bytes: int


class RoomLimits(NamedTuple):
    """The room that is to stay free, by `StoreConfig`, which describes each limit."""

    min_free_bytes: int
    min_free_percent: float
    reserve_bytes: int

    def least_free(self, total_bytes: int) -> int:
        """Return the free bytes of a disk of this size below which senders are held back."""
        least = min(self.min_free_bytes, total_bytes // 10)
        return max(least, int(total_bytes * self.min_free_percent / 100))

    def reserve(self, total_bytes: int) -> int:
        """Bytes of the reserve on a disk of this size."""
        return min(self.reserve_bytes, total_bytes // 20)

    def pressure(self, disks: Sequence[Disk], *, was_held_back: bool) -> str:
        """Return the reason why senders are held back now; empty: they are not."""
        times, of = _GO_ON if was_held_back else (1, 1)
        for folder, free, total in disks:
            least = self.least_free(total)
            if free * of < least * times:
                return (
                    f"the disk of {folder} has {free} bytes free, less than {least}: new messages"
                    " wait until there is room; consume, purge, or compact with a shorter history"
                )
        return ""


class DiskRoom:
    """Watches the disks of a store. Any thread may call it.

    Attributes:
        held_back: Why senders are held back; empty: they are not.
        on_change: Told of each change of `held_back`.
    """

    def __init__(self, folders: Sequence[Path], limits: RoomLimits) -> None:
        """Look at the disks for the first time.

        Args:
            folders: Folders of the store; those on one disk count once.
            limits: How much is to stay free.
        """
        devices: dict[int, Path] = {}
        for folder in folders:
            devices.setdefault(folder.stat().st_dev, folder)
        self._folders, self._limits = [*devices.values()], limits
        self._guard = threading.Lock()
        self.held_back = ""
        self.on_change: Callable[[str], None] = _nobody
        self.look()

    @property
    def disks(self) -> list[Disk]:
        """The disks as they are now; one that does not answer is left out."""
        disks = []
        for folder in self._folders:
            with suppress(OSError):
                disks.append(disk_of(folder))
        return disks

    def look(self) -> None:
        """Hold senders back, or let them go on; keep the reserves where there is room."""
        with self._guard:
            disks = self.disks
            for disk in disks:
                self._keep_reserve(disk)
            self._hold_back(self._limits.pressure(disks, was_held_back=bool(self.held_back)))

    def least_free(self, disk: Disk) -> int:
        """Return the free bytes of a disk below which senders are held back."""
        return self._limits.least_free(disk.total_bytes)

    def has_room_for(self, byte_count: int) -> bool:
        """True if senders would not be held back after so many bytes were written beforehand."""
        least = self._limits.least_free
        return all(disk.free_bytes - byte_count >= least(disk.total_bytes) for disk in self.disks)

    def failed(self) -> None:
        """Give up the reserve of each full disk after a write failed."""
        with self._guard:
            for disk in self.disks:
                give_up_if_full(disk)
        self.look()

    def _hold_back(self, why: str) -> None:
        if bool(why) is not bool(self.held_back):
            _log.log(logging.ERROR if why else logging.WARNING, why or "there is room again")
            self.on_change(why)
        self.held_back = why

    def _keep_reserve(self, disk: Disk) -> None:
        path, size = disk.folder / RESERVE, self._limits.reserve(disk.total_bytes)
        if not size or path.exists():
            return
        if disk.free_bytes - size > self._limits.least_free(disk.total_bytes) + _NOTHING:
            make_reserve(path, size)


def disk_of(folder: Path) -> Disk:
    """The disk that a folder is on.

    Raises:
        OSError: It is not there, or does not answer.
    """
    status = os.statvfs(folder)
    return Disk(folder, status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize)


def make_reserve(path: Path, size: int) -> None:
    """Allocate a file of this size; what cannot be allocated is no reserve."""
    unfinished = path.with_name(f".{path.name}")
    try:
        descriptor = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, size)
        finally:
            os.close(descriptor)
        unfinished.rename(path)
    except OSError as reason:
        _log.warning("no reserve of %d bytes in %s: %s", size, path.parent, reason)
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)


def check_has_room(folder: Path, byte_count: int) -> None:
    """Refuse what would fill a disk, and would be given up then with its files left on it.

    Raises:
        Full: The disk has less free than so many bytes.
    """
    free = disk_of(folder).free_bytes
    if byte_count and free < byte_count + _NOTHING:
        message = f"the disk of {folder} has {free} bytes free, and moving records to history"
        message += f" takes some {byte_count}: nothing was done; give it room, then run it again"
        raise Full(message)


def make_room(*folders: Path) -> None:
    """Give up the reserve of each full disk before a start or a job, so that it has room."""
    for folder in folders:
        with suppress(OSError):
            give_up_if_full(disk_of(folder))


def give_up_if_full(disk: Disk) -> None:
    """Give the reserve up if nothing else is left."""
    path = disk.folder / RESERVE
    if disk.free_bytes < _NOTHING and path.exists():
        with suppress(OSError):
            path.unlink()
            _log.error("the disk of %s is full: its reserve is given up", disk.folder)


def _nobody(_why: str) -> None:
    """Report the state of the disk to nobody."""
