"""Bring what jobs commit to a root in a bucket into the working copy of the store that serves it.

Jobs commit to `history` and `state`, on machines of their own (`job_copy`). The store needs both:
it lets go of journal segments that they hold (`log.trim`), and then reads content from `history`.
A thread looks every so often; it is not the committer's, since a compaction may have rewritten
gigabytes, which must not hold up a commit.

Why a reader of the copy finds every record at each moment: `state` is looked up before `history`
and comes into the copy after it, because records move the other way (as recovery reads them). Of a
table the data files come first, and log entries in their order. What no version names any more
stays in the copy for the grace of readers.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import unquote

from sparkstore.bucket.working_copy import download, log_base, remove_others
from sparkstore.errors import StoreError, Unavailable
from sparkstore.storage.data_paths import check_within
from sparkstore.storage.durable_files import replace_durably
from sparkstore.storage.storage import Storage
from sparkstore.tables.delta_contents import TableContents, contents
from sparkstore.tables.delta_files import log_folder, newest_version, version_of
from sparkstore.tables.root import Root

_log = logging.getLogger(__name__)

_LONGEST_INTERVAL_S = 30.0


class Follower:
    """Brings the tables of jobs into a working copy."""

    def __init__(
        self, bucket: Storage, root: Root, reader_grace_s: float, remove: Callable[[], None]
    ) -> None:
        """Take the copy as brought up; `start` begins to look.

        Args:
            bucket: Where the root is.
            root: The working copy that was brought up.
            reader_grace_s: How long a file stays that no version names any more.
            remove: Called after each look, to remove what the bucket need not keep.
        """
        self._remove = remove
        self._bucket, self._root, self._grace_s = bucket, root, reader_grace_s
        self._has = {name: newest_version(root.table(name)) for name in ("state", "history")}
        self._unnamed_since_s: dict[Path, float] = {}
        self._stopping = threading.Event()
        self._complained = False

    @property
    def versions(self) -> Mapping[str, int]:
        """Newest versions that the copy has whole; they are in the bucket, so they are durable."""
        return self._has

    def start(self) -> None:
        """Look every so often from now on."""
        threading.Thread(target=self._run, name="follow", daemon=True).start()

    def stop(self) -> None:
        """Look no more. Does not wait for a bucket that does not answer."""
        self._stopping.set()

    def follow(self) -> None:
        """Bring what is new into the copy.

        Raises:
            StoreError: The bucket did not answer, or a file is gone; the copy is as whole as it
                was.
            OSError: No room here, most likely.
        """
        newest = {
            name: contents(self._bucket, name)
            for name in ("state", "history")
            if _newest_in(self._bucket, name) > self._has[name]
        }
        for name in ("history", "state"):
            if name in newest:
                self._bring(name, newest[name])
        self._has = {**self._has, **{name: table.version for name, table in newest.items()}}

    def _bring(self, name: str, table: TableContents) -> None:
        folder = self._root.path
        named = {folder / name / unquote(path) for path in table.adds}
        missing = [file for file in named if not file.exists()]
        download(self._bucket, folder, [file.relative_to(folder).as_posix() for file in missing])
        for entry in self._log_entries(name, table.version):
            stored = self._bucket.read(entry)
            if stored is None:
                message = f"{self._bucket.location}/{entry} went while it was read: try again"
                raise Unavailable(message)
            replace_durably(check_within(folder, entry), stored.content)
        self._forget_log(name)
        self._forget_files(name, named)

    def _log_entries(self, name: str, last: int) -> list[str]:
        """Log entries that the copy lacks, checkpoints after the version that they are of."""
        numbers = {
            file.name: number
            for file in self._bucket.files(f"{name}/_delta_log")
            if (number := version_of(file.name.rpartition("/")[2])) is not None
        }
        wanted = [entry for entry, number in numbers.items() if self._has[name] < number <= last]
        return sorted(wanted, key=lambda entry: (numbers[entry], ".checkpoint." in entry))

    def _forget_log(self, name: str) -> None:
        folder = log_folder(self._root.table(name))
        base = log_base(path.name for path in folder.iterdir())
        for path in folder.iterdir():
            version = version_of(path.name)
            if version is not None and version < base:
                path.unlink()

    def _forget_files(self, name: str, named: set[Path]) -> None:
        now_s, table = time.monotonic(), self._root.table(name)
        since_s = self._unnamed_since_s
        unnamed = {
            file
            for file in table.rglob("*.parquet")
            if file.parent != log_folder(table) and file not in named
        }
        for file in unnamed:
            since_s.setdefault(file, now_s)
        gone = {file for file in unnamed if now_s - since_s[file] >= self._grace_s}
        remove_others(table, named | (unnamed - gone))
        for file in [path for path in since_s if path in gone or path in named]:
            del since_s[file]

    def _run(self) -> None:
        interval_s = min(_LONGEST_INTERVAL_S, max(self._grace_s, 1.0))
        while not self._stopping.wait(interval_s):
            try:
                self.follow()
                self._remove()
            except (StoreError, OSError) as reason:
                if not self._complained:
                    _log.warning(
                        "what jobs did is not known, so journal and bucket grow: %s", reason
                    )
                self._complained = True
            else:
                self._complained = False


def _newest_in(bucket: Storage, table: str) -> int:
    numbers = (
        version_of(file.name.rpartition("/")[2]) for file in bucket.files(f"{table}/_delta_log")
    )
    return max((number for number in numbers if number is not None), default=-1)
