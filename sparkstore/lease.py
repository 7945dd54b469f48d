"""The jobs' lease: one job at a time on a root, by flock on `<root>/jobs.lock`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sparkstore.errors import Locked
from sparkstore.log.lock import FileLock


@contextmanager
def jobs_lease(root: Path) -> Iterator[None]:
    """Hold the lease of the root at a folder; the kernel lets go of it when the process ends.

    The file stays behind: to remove it would let two jobs lock two files of one name.

    Raises:
        Locked: Another job, or a store that heals at its start, has it.
        OSError: The folder is not there, or cannot be written.
    """
    path = root / "jobs.lock"
    try:
        lock = FileLock(path, str(root))
    except Locked as reason:
        message = f"{root}: another job is at work (it holds {path.name}): try again later"
        raise Locked(message) from reason
    try:
        yield
    finally:
        lock.release()
