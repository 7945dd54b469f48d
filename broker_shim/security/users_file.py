"""The users file on disk: only its owner may read it, it is replaced as a whole and durably.

A broker takes a file of its own user or of root. Root's command takes anybody's, and leaves it his.
"""

from __future__ import annotations

import fcntl
import logging
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_bytes

from broker_shim.errors import InvalidRequest
from broker_shim.security.rules.users import User, Users, UsersFileContent, decoded, encoded
from sparkstore.storage.durable_files import fsync_path

_log = logging.getLogger(__name__)

MOST_BYTES = 64 << 20
_Stamp = tuple[int, int, int, int]


def read_users(path: Path) -> dict[str, User]:
    """The users in a file.

    Raises:
        InvalidRequest: It is not there, is open to others, or is damaged: one line that names it.
    """
    return _read(path, is_command=True)[0].users


@contextmanager
def changing_users(path: Path) -> Iterator[dict[str, User]]:
    """Users to change; what they are at the end is written, unless the block raises.

    Two that change them at a time take turns by a lock on the folder, so that neither loses what
    the other did. A file that is not there yet is made, with mode 0600.

    Raises:
        InvalidRequest: As `read_users`; there is no such folder.
        OSError: It cannot be written; the old file stands.
    """
    path = path.resolve()  # by whichever link it is named, its folder's lock is the same
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as reason:
        message = f"users file {path}: {reason.strerror}: {path.parent}"
        raise InvalidRequest(message) from reason
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        content = _read(path, is_command=True)[0] if path.exists() else UsersFileContent({})
        yield content.users
        _write(path, content)
    finally:
        os.close(folder)


def _write(path: Path, content: UsersFileContent) -> None:
    """Replace the file: a reader sees the old or the new one, also after a power cut.

    The new one is open to nobody else from its first byte on, and belongs to whom the old one
    belonged: a broker has to read what root changed.
    """
    scratch = path.with_name(path.name + ".new")
    scratch.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with os.fdopen(os.open(scratch, flags, 0o600), "wb") as file:
        old = path.stat() if path.exists() else os.fstat(file.fileno())
        if old.st_uid != os.geteuid():  # we are root
            os.fchown(file.fileno(), old.st_uid, old.st_gid)
        file.write(encoded(content._replace(decoy_key=content.decoy_key or token_bytes(32))))
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)
    fsync_path(path.parent)


class UsersFile:
    """Users as the file has them now: it is looked at again whenever somebody is looked up.

    A `stat` a login costs a microsecond or two and needs no signal, so that a password that was
    changed or a user who was deleted counts from the next login on. A changed file that cannot be
    used changes nothing: a slip of the editor must not lock everybody out. It is told in the log,
    once.
    """

    def __init__(self, path: Path) -> None:
        """Read the users file. Raises InvalidRequest as `read_users`."""
        self._path = path
        self._content, self._stamp = _read(path)
        self._decoy_key = token_bytes(32)

    @property
    def users(self) -> Users:
        """Return the users that the file has now."""
        return self._now().users

    @property
    def decoy_key(self) -> bytes:
        """Return the file's decoy key; without one, a key that lasts as long as this process."""
        return self._now().decoy_key or self._decoy_key

    def _now(self) -> UsersFileContent:
        stamp = self._stamp_now()
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._content, self._stamp = _read(self._path)
                count = len(self._content.users)
                _log.info("users file %s was read again: %d users", self._path, count)
            except InvalidRequest as reason:
                _log.error("%s; the users are as they were", reason)  # one line
        return self._content

    def _stamp_now(self) -> _Stamp | None:
        try:
            return _stamp(self._path.stat())
        except OSError:
            return None


def _read(path: Path, *, is_command: bool = False) -> tuple[UsersFileContent, _Stamp | None]:
    """Read the file, and the stamp by which a later change is seen.

    The stamp and the mode are those of the very file that is read.
    """
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            _check(path, status, is_command=is_command)
            content = file.read(MOST_BYTES + 1)
    except OSError as reason:
        message = f"users file {path}: {reason.strerror}; make it with `sparkstore passwd`"
        raise InvalidRequest(message) from reason
    try:
        if len(content) > MOST_BYTES:
            raise InvalidRequest("larger than 64 MiB")  # noqa: TRY301
        return decoded(content), _stamp(status)
    except InvalidRequest as reason:
        message = f"users file {path}: {reason}"
        raise InvalidRequest(message) from reason


def _check(path: Path, status: os.stat_result, *, is_command: bool) -> None:
    if not stat.S_ISREG(status.st_mode):
        message = f"users file {path} is no file"
        raise InvalidRequest(message)
    is_roots = is_command and os.geteuid() == 0
    if status.st_uid not in {0, os.geteuid()} and not is_roots:
        message = f"users file {path} belongs to another user: chown it to the broker's"
        raise InvalidRequest(message)
    if status.st_mode & 0o077:
        message = f"users file {path} can be read by others: chmod 600 it"
        raise InvalidRequest(message)


def _stamp(status: os.stat_result) -> _Stamp:
    return status.st_ino, status.st_mtime_ns, status.st_size, status.st_mode
