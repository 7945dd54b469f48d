"""Files that are not known to be on disk, written anew before an fsync of theirs is believed.

An fsync that failed must never be tried again: the kernel tells a failed write-back once, to
whoever asks first, and from then on the pages count as clean. A second fsync says yes, also that of
the next process, while the disk never got the bytes. Whoever was told may be gone, and what it
wrote down about it may be, too. So a start believes no fsync of a file that it did not write. The
files of a table after its mark (`marks`) are read back, which is good as long as the page cache has
them. They are written to new files, which are fsynced and take the place of the old ones. What is
read back broken is found so afterwards (`healing`) and comes again from the layer before, which is
let go of only behind the mark.

A folder is not written anew: a rename into it makes it dirty again, and a file system that could
not write its own structures refuses every later write to them.

What a cut at any moment leaves: under each name the old file or the new one, and perhaps a scratch
file in the root, which the next start removes. Decision: scratch files are not in the table, so no
engine's listing or vacuum ever meets one; names of versions and data files stay as they are.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from uuid import uuid4

from sparkstore.errors import CorruptData
from sparkstore.storage.durable_files import fsync_open, fsync_with_folders
from sparkstore.tables.delta_files import (
    check_sum_file,
    checkpoints,
    log_files,
    log_folder,
    read_version,
    versions,
)
from sparkstore.tables.root import Root

_log = logging.getLogger(__name__)

_NO_LIMIT = 1 << 63
_CHUNK_BYTES = 1 << 20
_OPENERS = 16
"""So many may open a shared root while one file is written anew: each tidies up once."""


def rewrite_after(root: Root, table: str, mark: int) -> list[Path]:
    """Write anew what a table has after its mark; the files, broken ones included.

    Only the one who may commit to the table may do this. Readers are not disturbed: each file is
    replaced by its like in one step.

    Args:
        root: The root that the table is in.
        table: Name of the table, as `journal`.
        mark: Last version that is known to be durable, -1 if none is.

    Raises:
        SyncFailed: The device failed; what is not yet written anew stands as it was.
        OSError: No room, most likely; the same.
    """
    for left in root.path.glob(f"{_scratch_name(table)}*"):
        left.unlink(missing_ok=True)
    paths = _suspects(root.table(table), mark)
    for path in paths:
        _rewrite_insisting(path, root.path / _scratch_name(table))
    if paths:
        fsync_with_folders(paths, up_to=root.table(table))
        text = "%s: made sure that %d files after version %d are on disk, as at each start"
        _log.info(text, table, len(paths), mark)
    return paths


def _scratch_name(table: str) -> str:
    return f"rewriting-{table.replace('/', '-')}-"


def _suspects(table: Path, mark: int) -> list[Path]:
    """Files that no mark speaks for.

    A log that was cleaned was so behind a mark: data files that only its checkpoints name are on
    disk, also if the mark itself was lost.
    """
    log = {*log_files(table, mark + 1, _NO_LIMIT)}
    # The checkpoint of the marked version may have come after the mark.
    log.update(file for v, files in checkpoints(table).items() if v >= mark for file in files)
    data = [path for v in versions(table) if v > mark for path in _named_by(table, v)]
    if log:
        log.update(log_folder(table).glob("*_last_checkpoint*"))
    sums = [check_sum_file(path) for path in (*data, *log)]
    return [path for path in dict.fromkeys([*data, *sums, *sorted(log)]) if path.is_file()]


def _named_by(table: Path, version: int) -> Iterable[Path]:
    try:
        return [table / file.path for file in read_version(table, version).adds]
    except CorruptData:  # healing sets it aside
        return []


def _rewrite_insisting(path: Path, scratch: Path) -> None:
    """Rewrite a file, again if another opener of a shared root took our copy for one left over."""
    for turn in range(_OPENERS):
        try:
            _rewrite(path, scratch.with_name(f"{scratch.name}{uuid4().hex}"))
        except FileNotFoundError:
            if turn == _OPENERS - 1 or not path.exists():
                raise
        else:
            return


def _rewrite(path: Path, scratch: Path) -> None:
    """Replace a file by what is read of it: where the disk fails to read, it ends."""
    try:
        with path.open("rb") as old, scratch.open("xb") as new:
            while chunk := _read(old.fileno(), path):
                new.write(chunk)
            new.flush()
            shutil.copystat(path, scratch)
            fsync_open(new.fileno(), scratch)
        scratch.replace(path)
    except OSError:
        scratch.unlink(missing_ok=True)
        raise


def _read(descriptor: int, path: Path) -> bytes:
    try:
        return os.read(descriptor, _CHUNK_BYTES)
    except OSError as reason:
        _log.error("%s cannot be read to its end: %s", path, reason)
        return b""
