"""Let one writer open a root, by an flock.

Between machines the epoch decides (ARCHITECTURE: Rule 3).
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from sparkstore.errors import Locked


class FileLock:
    """Holds an exclusive flock until `release`, or until the process ends, however it ends."""

    def __init__(self, path: Path, holder: str) -> None:
        """Take the lock at once.

        Args:
            path: The lock file; created if absent, never deleted.
            holder: What it protects, for the error of whoever comes second.

        Raises:
            Locked: Another process, or another opener in this one, has it.
        """
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(self._descriptor, 100, 0).decode(errors="replace").strip()
            os.close(self._descriptor)
            message = f"{holder} is in use by another process ({owner or 'unknown'}): stop it first"
            raise Locked(message) from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"pid {os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let go; may be called twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def is_held(path: Path) -> bool | None:
    """True if a process that this one can see has an flock on a file; None if nobody can tell.

    Decision: the kernel's list of locks is read, and none is taken: who tries to lock the file in
    this moment must get it. A holder in another container is not in the list.
    """
    try:
        file = path.stat()
        held = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except FileNotFoundError:
        return None if path.exists() else False
    except OSError:
        return None
    name = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}:{file.st_ino}"
    return any("->" not in line.split() and name in line.split() for line in held)
