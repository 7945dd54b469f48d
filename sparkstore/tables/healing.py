"""Set aside what a power cut broke at the end of a table, so that the table opens again.

Neither engine fsyncs on a local file system, and the commit file is published before its bytes are
on disk. So after a power cut the newest versions may be zeroed, cut, or name data files that are;
then both engines refuse the *whole* table. Everything after the mark (`marks`) is checked, the mark
itself once more; from the first broken version on, all is moved to `<root>/set-aside`, and the
layer before (WAL, journal, history) brings it again.

Decision: what counts is the largest version whose *snapshot* is whole, not the first that names a
broken file. A small file that a later, whole version merged away may have been vacuumed; its
absence breaks nothing.

The moves can be cut short anywhere: files are first linked to the new folder and that is fsynced.
Then they are unlinked from the log, versions last, from the newest down. Checkpoints go before
them: a checkpoint newer than its versions would hide that they are gone. What is left at each
moment is a table that the next run finds broken at the same version, or healed.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sparkstore.errors import CorruptData
from sparkstore.storage.durable_files import fsync_path
from sparkstore.tables.delta_files import (
    broken_check_sums,
    check_sum_file,
    check_sums_agree,
    checkpoints,
    log_file,
    log_files,
    log_folder,
    read_version,
    version_of,
    versions,
)
from sparkstore.tables.file_rewrite import rewrite_after
from sparkstore.tables.marks import Marked, lower_mark, mark_durable, read_marks
from sparkstore.tables.parquet_check import reason_broken
from sparkstore.tables.root import Root

__all__ = ["Healed", "Marked", "check", "heal", "mark_durable", "read_marks"]

_BROKEN = -1
_NO_LIMIT = 1 << 63

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Healed:
    """Files of one table that were set aside.

    Attributes:
        table: Name of the table that was healed.
        first_broken: First version set aside; None if only checkpoints or check sums were.
        reason: What was found broken.
        was_durable: The version had been marked durable: a disk, not a power cut, broke it.
            Recovery says so if records are missing because of it.
        set_aside: Where the files are now.
    """

    table: str
    first_broken: int | None
    reason: str
    was_durable: bool
    set_aside: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class _Finding:
    """The last whole version, why the next one is not, and other files that are not whole."""

    last_whole: int
    reason: str
    broken: tuple[Path, ...]


def check(root: Root, table: str) -> int | None:
    """First broken version of a table after its mark, None if all are whole; changes nothing.

    Raises:
        CorruptData: What is broken cannot be set aside: see `heal`.
    """
    finding = _find(root.table(table), read_marks(root).versions.get(table, -1))
    return finding.last_whole + 1 if finding.reason else None


def heal(root: Root, tables: Iterable[str]) -> list[Healed]:
    """Set the broken end of each table aside, then mark what is left as durable.

    What is after the mark is written anew first (`file_rewrite`): an fsync of it may have failed.
    Only the one who may commit to a table heals it: the store the journal; history and state
    whoever holds the jobs' lease. Nothing is deleted. A second run finds nothing to do.

    Raises:
        CorruptData: Something is broken that no other layer can bring again: the table's first
            version, a checkpoint without the versions before it, or versions that were durable
            are gone. Nothing was changed in that table.
    """
    healed: list[Healed] = []
    for table in tables:
        mark = read_marks(root).versions.get(table, -1)
        rewrite_after(root, table, mark)  # before the check: what is read there is on disk then
        finding = _find(root.table(table), mark)
        files = _files_to_move(root.table(table), finding)
        # Before any file leaves: a table that ends before its mark counts as one that lost some.
        if finding.last_whole < mark:
            lower_mark(root, table, finding.last_whole)
        if files:
            healed.append(
                _set_aside(root, table, finding, files, was_durable=finding.last_whole < mark)
            )
        mark_durable(root, {table: finding.last_whole})
    return healed


def _find(table: Path, mark: int) -> _Finding:
    known = versions(table)
    newest, broken_checkpoints = max(known, default=-1), _broken_checkpoints(table, mark)
    if newest < mark:
        message = (
            f"{table} ends at version {newest}, but version {mark} was on disk: restore the root"
            " from a replica or a backup"
        )
        raise CorruptData(message)
    whole_checkpoints = [
        v for v, files in checkpoints(table).items() if not broken_checkpoints & {*files}
    ]
    first = mark if mark >= 0 else min(known, default=0)
    last_whole, reason = _last_whole(table, first, newest, mark)
    if last_whole < mark:
        _check_not_lost(table, mark)
    base = max((v for v in whole_checkpoints if v <= last_whole), default=-1)
    if last_whole < 0 or not {*range(base + 1, last_whole + 1)} <= {*known}:
        message = (
            f"{table} cannot be healed ({reason or 'versions before its last are gone'}):"
            " restore the root from a replica or a backup"
        )
        raise CorruptData(message)
    sums = _broken_sums(table, max(mark, 0), last_whole)
    return _Finding(last_whole, reason, (*sorted(broken_checkpoints), *sums))


def _last_whole(table: Path, first: int, newest: int, mark: int) -> tuple[int, str]:
    """Largest version whose snapshot is whole, given that all before `first` are."""
    last_whole, reason, broken = first - 1, "", dict[str, str]()
    for version in range(first, newest + 1):
        try:
            committed = read_version(table, version)
        except CorruptData as unreadable:
            return last_whole, reason or str(unreadable)
        for path in committed.removes:
            broken.pop(path, None)
        for file in committed.adds:
            why = reason_broken(table / file.path, file.size, deep=version > mark)
            if why is not None:
                broken[file.path] = why
        if broken:
            reason = reason or next(iter(broken.values()))
        else:
            last_whole, reason = version, ""
    return last_whole, reason


def _check_not_lost(table: Path, mark: int) -> None:
    """Check that no data file of a whole version was removed.

    To set the version aside would mend nothing.

    Raises:
        CorruptData: So it is, and the file is to be put back.
    """
    lost: list[str] = []
    with suppress(CorruptData):
        adds = read_version(table, mark).adds
        lost += [file.path for file in adds if not (table / file.path).exists()]
    if lost and table.name == "journal":  # the others are made anew from it
        message = (
            f"{table / lost[0]} is gone, though it was on disk: put it back, or restore the root"
            " from a replica or a backup; nothing was changed"
        )
        raise CorruptData(message)


def _broken_checkpoints(table: Path, mark: int) -> set[Path]:
    """Files of broken checkpoints: of those at or after the mark, and of the newest."""
    standing = checkpoints(table)
    newest = max(standing, default=-1)
    broken: set[Path] = set()
    for version, files in standing.items():
        if version >= min(mark, newest) and not _is_whole_checkpoint(files):
            broken.update(files)
    return broken


def _is_whole_checkpoint(files: list[Path]) -> bool:
    parts = files[0].name.split(".")
    expected = int(parts[3]) if parts[2] != "parquet" else 1
    return len(files) == expected and all(
        reason_broken(file, file.stat().st_size, deep=True) is None for file in files
    )


def _broken_sums(table: Path, first: int, last: int) -> list[Path]:
    """Check sums that are not whole, of files that are: Spark refuses the files because of them."""
    files = [path for path in log_files(table, first, last) if not path.name.startswith(".")]
    for version in range(first, last + 1):
        if log_file(table, version).is_file():
            files += [table / file.path for file in read_version(table, version).adds]
    sums = [
        check_sum_file(path)
        for path in files
        if path.is_file() and broken_check_sums(path, path.stat().st_size)
    ]
    return sums + [path for path in files if path.suffix == ".crc" and not _is_json(path)]


def _is_json(path: Path) -> bool:
    try:
        return isinstance(json.loads(path.read_bytes()), dict)
    except ValueError:
        return False


def _files_to_move(table: Path, finding: _Finding) -> list[Path]:
    """Order files as they may leave: what points forward first, the oldest version last."""
    log = log_folder(table)
    later = log_files(table, finding.last_whole + 1, _NO_LIMIT)
    checkpoint = _file_and_sums(log / "_last_checkpoint")
    staying = {
        version
        for version, files in checkpoints(table).items()
        if version <= finding.last_whole and not {*files} & {*finding.broken}
    }
    pointer = checkpoint if _last_checkpoint(log) not in {None, *staying} else []
    broken = [file for path in finding.broken for file in _file_and_sums(path)]
    later.sort(key=lambda path: (path.suffix == ".json", -(version_of(path.name) or 0)))
    return [*pointer, *dict.fromkeys([*broken, *later])]


def _file_and_sums(path: Path) -> list[Path]:
    return [file for file in (check_sum_file(path), path) if file.is_file()]


def _last_checkpoint(log: Path) -> int | None:
    """Version that `_last_checkpoint` names: None if it is absent, `_BROKEN` if not whole."""
    path = log / "_last_checkpoint"
    try:
        content = path.read_bytes()
        version = int(json.loads(content)["version"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        return _BROKEN
    whole = check_sums_agree(path, content) and not broken_check_sums(path, len(content))
    return version if whole else _BROKEN


def _set_aside(
    root: Root, table: str, finding: _Finding, files: list[Path], *, was_durable: bool
) -> Healed:
    folder = _new_folder(root.path / "set-aside" / table)
    for path in files:
        os.link(path, folder / path.name)
    for synced in (folder, folder.parent, folder.parent.parent, root.path):
        fsync_path(synced)
    # Only now, as the links are durable: a power cut leaves each file in one place at least.
    for path in files:
        path.unlink()
    for parent in {path.parent for path in files}:
        fsync_path(parent)
    moved = tuple(folder / path.name for path in files)
    reason = finding.reason or "checkpoints or check sums are broken"
    first_broken = finding.last_whole + 1 if finding.reason else None
    level = logging.ERROR if was_durable else logging.WARNING
    for path in moved:
        _log.log(level, "%s: set aside %s: %s", table, path, reason)
    return Healed(table, first_broken, reason, was_durable, moved)


def _new_folder(parent: Path) -> Path:
    parent.mkdir(parents=True, exist_ok=True)
    taken = (int(path.name) for path in parent.iterdir() if path.name.isdigit())
    folder = parent / f"{max(taken, default=0) + 1:06d}"
    folder.mkdir()
    return folder
