"""`durable.json`: per table, the last version that survives a power cut (ARCHITECTURE: Rule 5).

Neither engine fsyncs, so a version is durable only once somebody has fsynced all that it names:
the store for the journal, the holder of the jobs' lease for history and state. Both keep their
marks in one file, so that a reader sees one moment; a flock, never held during an fsync, orders the
two who write it. Only one of them marks a given table at a time, so no mark is overwritten by an
older one.

What is written, and in this order: data files, log files, the folders that name them, then the
mark. A power cut before the mark leaves the old mark, after which everything is checked again; the
mark itself is replaced atomically. So a mark never claims more than is on disk.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparkstore.errors import CorruptData
from sparkstore.storage.durable_files import fsync_with_folders, replace_durably
from sparkstore.tables.delta_files import (
    DataFile,
    Version,
    check_sum_file,
    checkpoints,
    log_files,
    log_folder,
    read_version,
    versions,
)
from sparkstore.tables.root import Root
from sparkstore.tables.snapshot import snapshot

MARKS_FILE = "durable.json"


@dataclass(frozen=True, slots=True)
class Marks:
    """Marks of what is known to be durable.

    Attributes:
        versions: Last durable version by table; a table that is not here was never marked.
        last_position: Largest position in a durable version of the journal, 0 if unknown.
    """

    versions: Mapping[str, int]
    last_position: int = 0


@dataclass(frozen=True, slots=True)
class Marked:
    """The work of `mark_durable` on one table: the range of versions, and the files fsynced."""

    table: str
    first: int
    last: int
    file_count: int


def read_marks(root: Root) -> Marks:
    """The marks; none if there is no file, or one that cannot be read: then all is checked."""
    try:
        content: dict[str, Any] = json.loads((root.path / MARKS_FILE).read_bytes())
        marked = {str(name): int(version) for name, version in content["versions"].items()}
        return Marks(marked, int(content["last_position"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Marks({})


def mark_durable(root: Root, up_to: Mapping[str, int], *, fsync: bool = True) -> list[Marked]:
    """Make the given version of each table durable, and all before it, then say so.

    Only what is new since the old mark is fsynced; a table whose mark is as new is left out.
    Nothing is to do for tables in a bucket: the answer of a put is its durability.

    Args:
        root: The root that the tables are in.
        up_to: Version by table name.
        fsync: False only to measure what fsync costs.

    Raises:
        CorruptData: A version to be marked is broken, or names a file that is not there.
        OSError: The device failed; nothing was marked. Do not try again, but stop: a
            second fsync may say yes and lie.
    """
    if root.remote is not None:
        return []
    old = read_marks(root).versions
    done: list[Marked] = []
    last_position = 0
    for table, version in up_to.items():
        if version > old.get(table, -1):
            committed = _versions_after(root.table(table), old.get(table, -1), version)
            paths = _paths(root.table(table), committed)
            if committed[0].version > old.get(table, -1) + 1:  # no mark, and old log files are gone
                paths += [file.path for file in snapshot(root.table(table))]
            if fsync:
                fsync_with_folders(paths, up_to=root.table(table))
            done.append(Marked(table, committed[0].version, version, len(paths)))
            last_position = max(last_position, _last_position(committed))
    # After every fsync: a start believes the mark and does not read what is before it.
    if done:
        with _locked(root):
            marks = read_marks(root)
            newest = {one.table: max(one.last, marks.versions.get(one.table, -1)) for one in done}
            marked = {**marks.versions, **newest}
            _write(root, Marks(marked, max(marks.last_position, last_position)))
    return done


def lower_mark(root: Root, table: str, version: int) -> None:
    """Take a mark back: the versions after it turned out to be broken all the same."""
    with _locked(root):
        marks = read_marks(root)
        _write(root, Marks({**marks.versions, table: version}, marks.last_position))


def active_after(committed: list[Version]) -> dict[str, DataFile]:
    """Data files that these consecutive versions bring and the last of them still names."""
    active: dict[str, DataFile] = {}
    for version in committed:
        for path in version.removes:
            active.pop(path, None)
        active.update((file.path, file) for file in version.adds)
    return active


def _versions_after(table: Path, old: int, new: int) -> list[Version]:
    known = versions(table)
    first = min(known, default=0) if old < 0 else old + 1
    return [read_version(table, version) for version in range(first, new + 1)]


def _paths(table: Path, committed: list[Version]) -> list[Path]:
    """Return the files to fsync: data files, log files and Spark's check sums of both."""
    data = [table / path for path in active_after(committed)]
    missing = next((path for path in data if not path.is_file()), None)
    if missing is not None:
        message = f"{missing} is not there, but the newest version of its table names it"
        raise CorruptData(message)
    first, last = committed[0].version, committed[-1].version
    newest_checkpoint = max((v for v in checkpoints(table) if v <= last), default=first)
    log = {*log_files(table, first, last), *log_files(table, newest_checkpoint, newest_checkpoint)}
    log.update(log_folder(table).glob("*_last_checkpoint*"))
    sums = [sums for path in data if (sums := check_sum_file(path)).is_file()]
    return [*data, *sums, *sorted(log)]


def _last_position(committed: list[Version]) -> int:
    positions = (version.metadata.get("sparkstore.last_position", "0") for version in committed)
    return max(map(int, positions), default=0)


def _write(root: Root, marks: Marks) -> None:
    content = {"versions": dict(marks.versions), "last_position": marks.last_position}
    replace_durably(root.path / MARKS_FILE, json.dumps(content).encode())


@contextmanager
def _locked(root: Root) -> Iterator[None]:
    with (root.path / "durable.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
