"""Files that survive a power cut: fsync of files and folders, atomic replacement of small ones."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


class SyncFailed(OSError):
    """An fsync failed: never try again, a second one may say yes and lie (`file_rewrite`). Stop."""


def fsync_path(path: Path) -> None:
    """Fsync one file or folder.

    Raises:
        SyncFailed: The device failed.
        OSError: It is not there.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fsync_open(descriptor, path)
    finally:
        os.close(descriptor)


def fsync_open(descriptor: int, path: Path) -> None:
    """Fsync a file that is open; `path` is its name, for the error.

    Raises:
        SyncFailed: The device failed.
    """
    try:
        os.fsync(descriptor)
    except OSError as reason:
        raise SyncFailed(reason.errno, reason.strerror, str(path)) from reason


def fsync_with_folders(paths: Iterable[Path], *, up_to: Path) -> None:
    """Fsync each file, then each folder between it and `up_to` (included), once each."""
    folders: set[Path] = {up_to}
    for path in paths:
        fsync_path(path)
        folders.update(folder for folder in path.parents if folder.is_relative_to(up_to))
    for folder in sorted(folders, key=lambda folder: -len(folder.parts)):
        fsync_path(folder)


def make_folders(folder: Path, mode: int = 0o777) -> None:
    """Make a folder and those above it that are not there, with names that survive a power cut.

    Raises:
        SyncFailed: The device failed.
        OSError: They cannot be made.
    """
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(mode=mode, parents=True, exist_ok=True)
    for path in made:
        fsync_path(path.parent)


def replace_durably(path: Path, content: bytes) -> None:
    """Replace a small file: a reader sees the old or the new content, also after a power cut.

    Raises:
        SyncFailed: The device failed.
        OSError: No room, most likely; the old content stands.
    """
    scratch = path.with_name(path.name + ".new")
    with scratch.open("wb") as file:
        file.write(content)
        file.flush()
        fsync_open(file.fileno(), scratch)
    # The content is synced before the rename, the rename with the folder after it.
    scratch.replace(path)
    fsync_path(path.parent)
