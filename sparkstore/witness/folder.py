"""Keep a witness's object in a folder that machines share, without a lock: by names used up once.

    <witness>/primary/7-<uuid>.now     a name; empty. There is one such, from the first object on
    <witness>/primary/7-<uuid>.json    the object of that name; `8-…` may be one that is to follow

To replace an object is to rename its name: the content of the next is written and fsynced first,
then `7-<uuid>.now` becomes `8-<another>.now`, then the folder is fsynced. Why of several who
replace one exactly one wins, on any number of machines: the file system renames a file once, and
for whoever comes later it is not there. No name is used twice, so one that slept for a year between
its look and its rename finds nothing to rename either. (A file that is created if absent, `8.json`,
could be created again after it had been trimmed.) Nobody holds anything meanwhile: who is frozen
within those milliseconds, or loses its network, is overtaken.

Why the content of a name is always there: it is written before the name, and removed after it.
Whoever won removes the contents of lower and of equal numbers but its own: none of those can get a
name any more. A reader that finds no name, or no content of one, has met a rename: it looks again.

Why of several who write the first object one wins: each prepares a whole `primary`, which is
renamed into its place, and a folder that holds something is not replaced.

Why a cut between any two steps is harmless: the old name stands, or the new one. What is left over
is content that has no name, which the next replacement removes, or a folder `primary.<uuid>`.

Version 0.6 and before had the object in `primary.json`, and replaced it under a lock. It counts
while there is no `primary`. The first replacement makes that, under that lock, and removes the
file: an older sparkstore that is still at work finds no object, and pushes back.
"""

from __future__ import annotations

import fcntl
import hashlib
import math
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import EEXIST, ENOTEMPTY
from pathlib import Path
from uuid import uuid4

from sparkstore.errors import Unavailable
from sparkstore.storage.durable_files import fsync_path, replace_durably
from sparkstore.storage.storage import StoredContent

_NAME, _CONTENT = ".now", ".json"
_OLD = "primary.json"
_LOOKS = 100


class FolderPlace:
    """The object in a folder; what goes wrong is an OSError, as the system says it."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._home = folder, folder / "primary"

    @property
    def location(self) -> str:
        """Return the path of the folder."""
        return str(self._folder)

    def read(self) -> StoredContent | None:
        """Read the object, as `WitnessPlace` says."""
        for _ in range(_LOOKS):
            try:
                names = [path.stem for path in self._home.iterdir() if path.suffix == _NAME]
            except FileNotFoundError:
                return self._read_old()
            if names:
                name = max(names, key=_number)  # of two the lower one is renamed by now
                with suppress(FileNotFoundError):
                    return StoredContent((self._home / f"{name}{_CONTENT}").read_bytes(), name)
        raise Unavailable(f"{self._home} has no name with its content: restore it, or remove it")

    def put_if_absent(self, content: bytes) -> bool:
        """Write the object if there is none, as `WitnessPlace` says."""
        if (self._folder / _OLD).exists():
            return False
        return self._begin(content)

    def replace_if_unchanged(self, content: bytes, tag: str) -> bool:
        """Replace the object if it is unchanged, as `WitnessPlace` says."""
        if tag.startswith(_OLD):
            return self._replace_old(content, tag)
        name = f"{_number(tag) + 1:.0f}-{uuid4().hex}"
        now, text = self._home / f"{name}{_NAME}", self._home / f"{name}{_CONTENT}"
        try:
            replace_durably(text, content)
            (self._home / f"{tag}{_NAME}").rename(now)
        except FileNotFoundError:
            # Over a network a rename may be asked twice, and the second answer be all that comes.
            if not now.exists():
                text.unlink(missing_ok=True)
                return False
        fsync_path(self._home)
        self._trim(name)
        return True

    def delete(self) -> None:
        """Remove the object; a kill within leaves a folder that nobody reads."""
        (self._folder / _OLD).unlink(missing_ok=True)
        scratch = self._scratch()
        with suppress(FileNotFoundError):
            self._home.rename(scratch)
            shutil.rmtree(scratch)
        fsync_path(self._folder)

    def _begin(self, content: bytes) -> bool:
        """Put a whole `primary` in its place; False if another one is there."""
        scratch, name = self._scratch(), f"1-{uuid4().hex}"
        scratch.mkdir()
        replace_durably(scratch / f"{name}{_CONTENT}", content)
        (scratch / f"{name}{_NAME}").touch()
        fsync_path(scratch)
        try:
            scratch.rename(self._home)
        except OSError as reason:
            shutil.rmtree(scratch, ignore_errors=True)
            if reason.errno not in {EEXIST, ENOTEMPTY}:
                raise
            return False
        fsync_path(self._folder)
        return True

    def _scratch(self) -> Path:
        return self._home.with_name(f"{self._home.name}.{uuid4().hex}")

    def _trim(self, name: str) -> None:
        """Remove what can be the object no more; a failure leaves it for later."""
        with suppress(OSError):
            for path in self._home.iterdir():
                if path.stem != name and _number(path.name) <= _number(name):
                    path.unlink(missing_ok=True)

    # ------------------------------------------------------------------- version 0.6 and before

    def _read_old(self) -> StoredContent | None:
        with suppress(FileNotFoundError):
            content = (self._folder / _OLD).read_bytes()
            return StoredContent(content, f"{_OLD}-{hashlib.sha256(content).hexdigest()}")
        return None

    def _replace_old(self, content: bytes, tag: str) -> bool:
        with _locked(self._folder / f"{_OLD}.lock"):
            standing = self._read_old()
            if standing is None or standing.tag != tag or not self._begin(content):
                return False
            (self._folder / _OLD).unlink()
            fsync_path(self._folder)
            return True


def _number(name: str) -> float:
    number, _, _ = name.partition("-")
    return int(number) if number.isdecimal() else math.inf  # no file of ours


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as reason:
            message = f"{path} is held by an older sparkstore: install the same one everywhere"
            raise Unavailable(message) from reason
        yield
