"""Names of members for tasks: few, each with one user at a time.

A store service remembers every member that ever asked, with the number of its last request. So a
task must not draw a new name: a year of micro-batches would leave a million. Nor may two tasks have
one name at once, since the later takes the place of the other.

Therefore a name is the content of a file in a folder of this user, and whoever has the lock of the
file (flock) has the name. The kernel gives the lock back when its process ends, however it ends.
The content is random, so that machines that share a service share no name. Where there is no such
folder, a task draws a new name all the same.
"""

from __future__ import annotations

import fcntl
import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

_log = logging.getLogger(__name__)

_PREFIX = "spark-sink-"
_MOST = 1_000
_NAME_BYTES = 8


def names_folder() -> Path:
    """The folder of this user's names, on this machine."""
    return Path(tempfile.gettempdir()) / f"sparkstore-sink-{os.getuid()}"


@contextmanager
def member_name(folder: Path | None = None) -> Iterator[str]:
    """Hold the name of a member that nobody else on this machine has meanwhile."""
    folder = folder or names_folder()
    try:
        _make(folder)
    except OSError as reason:
        _log.warning("%s cannot hold the names of members, so a new one is drawn", reason)
        yield _PREFIX + uuid4().hex
        return
    held = _lock_one(folder)
    if held is None:
        yield _PREFIX + uuid4().hex
        return
    try:
        yield _PREFIX + _read(held)
    finally:
        os.close(held)


def _lock_one(folder: Path) -> int | None:
    """Lock the first file that nobody has locked; None: all are."""
    for number in range(_MOST):
        descriptor = os.open(folder / f"{number}.name", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
        else:
            return descriptor
    return None


def _make(folder: Path) -> None:
    """Make the folder. Raises OSError if others may write in it."""
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077 or folder.is_symlink():
        message = f"{folder} is not this user's alone"
        raise PermissionError(message)


def _read(descriptor: int) -> str:
    """Read the name in a locked file; one that a killed process wrote by half is drawn anew."""
    text = os.pread(descriptor, 2 * _NAME_BYTES, 0)
    if len(text) != _NAME_BYTES or not text.isalnum():
        text = uuid4().hex[:_NAME_BYTES].encode()
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text, 0)
    return text.decode()
