"""The jobs' lease: one job at a time on a root, by flock on `<root>/jobs.lock`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sparkstore.errors import Locked
from sparkstore.tables.lock import FileLock, is_held

LOCK_FILE = "jobs.lock"


@contextmanager
def jobs_lease(root: Path) -> Iterator[None]:
    """Hold the lease of the root at a folder; the kernel lets go of it when the process ends.

    The file stays behind: to remove it would let two jobs lock two files of one name.

    Raises:
        Locked: Another job, or a store that heals at its start, has it.
        OSError: The folder is not there, or cannot be written.
    """
    path = root / LOCK_FILE
    try:
        lock = FileLock(path, str(root))
    except Locked as reason:
        raise Locked(_at_work(root)) from reason
    try:
        yield
    finally:
        lock.release()


def check_free(root: Path) -> None:
    """Refuse at once what `jobs_lease` would refuse after seconds of starting a JVM.

    It takes no lock (`is_held`): a store that starts in this moment must be able to take the lease,
    or it would leave its healing to a job that is not there. Where nobody can tell nothing is
    refused, and `jobs_lease` decides, as it does in any case.

    Raises:
        Locked: Another job, or a store that heals at its start, has it.
    """
    if is_held(root / LOCK_FILE):
        raise Locked(_at_work(root))


def _at_work(root: Path) -> str:
    return f"{root}: another job is at work (it holds {LOCK_FILE}): try again later"
