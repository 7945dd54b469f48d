"""Notice tables whose past was written anew, which Delta's cache takes for unchanged.

Delta keeps what it knows of a table between queries, and adds the versions that came since. That is
wrong where a version is another file now: a root that was healed after a power cut, put back from a
copy, or made anew in the same folder. The newest version of each table is among those files in each
of these cases, since a damage to a log ends with its newest version. So that file tells: as long as
it is the same file, what Delta knows of the versions up to it holds.
"""

from __future__ import annotations

import threading
from pathlib import Path

from sparkstore.tables.delta_files import log_file, newest_version
from sparkstore.tables.root import TABLES, Root

_Mark = tuple[int, int, int]


class SeenTables:
    """The newest version of each table at its last question; for any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[Path, tuple[Path, _Mark | None]] = {}

    def is_rewritten(self, root: Root) -> bool:
        """True if the past of a table of this root is not what it was at the last question."""
        is_rewritten = False
        with self._lock:
            for table in map(root.table, TABLES):
                if table in self._seen:
                    file, mark = self._seen[table]
                    is_rewritten |= _mark(file) != mark
                newest = log_file(table, newest_version(table))
                self._seen[table] = newest, _mark(newest)
        return is_rewritten


def _mark(file: Path) -> _Mark | None:
    """What tells a file from another one of its name; None if it is not there."""
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
