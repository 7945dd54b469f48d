"""A folder as storage: a file appears by a hard link, is replaced by a rename, and is fsynced.

Why of several who create one file exactly one wins: the content is written to a scratch file of
its own and fsynced. A hard link of that to the name fails if the name is taken. Why of several
who replace one exactly one wins: each compares and replaces under a flock on `NAME.lock`, which is
held for no more than that. A cut leaves the old file or the new one, and perhaps a scratch file
(`NAME.` and a UUID), which nobody reads.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from sparkstore.storage.data_paths import check_within
from sparkstore.storage.durable_files import fsync_open, fsync_path, make_folders, replace_durably
from sparkstore.storage.storage import StoredContent, StoredFile


class LocalStorage:
    """Files below a folder; what goes wrong is an OSError, as the system says it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def location(self) -> str:
        """Return the path of the folder."""
        return str(self._folder)

    def read(self, name: str) -> StoredContent | None:
        """A small file as a whole; None if there is none of this name."""
        try:
            content = (self._folder / name).read_bytes()
        except FileNotFoundError:
            return None
        return StoredContent(content, _tag(content))

    def files(self, under: str = "") -> Iterator[StoredFile]:
        """Every file below a folder, in any order."""
        for path in (self._folder / under).rglob("*"):
            if path.is_file():
                name = path.relative_to(self._folder).as_posix()
                yield StoredFile(name, path.stat().st_size)

    def put_if_absent(self, name: str, content: bytes) -> bool:
        """Write a small file if there is none of this name; True if it now holds this content.

        Raises:
            SyncFailed: The device failed; the file may be there.
        """
        path = self._folder / name
        make_folders(path.parent)
        scratch = path.with_name(f"{path.name}.{uuid4().hex}")
        replace_durably(scratch, content)
        try:
            # A link fails where a rename would replace: of several who create the file one wins.
            path.hardlink_to(scratch)
        except FileExistsError:
            return path.read_bytes() == content
        finally:
            scratch.unlink()
            fsync_path(path.parent)
        return True

    def replace_if_unchanged(self, name: str, content: bytes, tag: str) -> bool:
        """Replace a small file that `read` gave with this tag; True if it now holds this content.

        Raises:
            SyncFailed: The device failed; the old or the new content stands.
        """
        path = self._folder / name
        with _locked(path.with_name(f"{path.name}.lock")):
            standing = path.read_bytes()
            if _tag(standing) == tag:
                replace_durably(path, content)
                return True
            return standing == content

    def upload(self, name: str, file: Path) -> None:
        """Copy a file of any size to here.

        Raises:
            SyncFailed: The device failed; the file is not there.
        """
        self._copy(file, self._folder / name)

    def download(self, name: str, file: Path) -> None:
        """Copy a file from here to a local path.

        Raises:
            FileNotFoundError: There is none of this name.
            CorruptData: It is a link out of its table, which a copy would bring in.
            SyncFailed: The device failed; the copy is not there.
        """
        self._copy(check_within(self._folder, name), file)

    def delete(self, name: str) -> None:
        """Remove a file; nothing happens if there is none of this name."""
        path = self._folder / name
        path.unlink(missing_ok=True)
        if path.parent.exists():
            fsync_path(path.parent)

    def _copy(self, source: Path, target: Path) -> None:
        make_folders(target.parent)
        scratch = target.with_name(f"{target.name}.{uuid4().hex}")
        try:
            with source.open("rb") as old, scratch.open("xb") as new:
                shutil.copyfileobj(old, new, 1 << 20)
                new.flush()
                fsync_open(new.fileno(), scratch)
            # Only content that is whole and synced gets the name.
            scratch.replace(target)
        finally:
            scratch.unlink(missing_ok=True)
        fsync_path(target.parent)


def _tag(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
