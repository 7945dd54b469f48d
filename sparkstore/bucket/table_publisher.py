"""Publish what was committed to one table of a copy: its versions one after the other.

A version is in the bucket when the put of its log entry was answered, or read back: its data files
are there before. Nobody can replace it, since every put of a log entry is `put_if_absent`.

Why none overwrites another's: the version number is the name, and the bytes name who committed, and
data files with UUIDs. Whoever is told that the name is taken reads what stands. If it is these
bytes, an answer was lost and the version is published. If it is other bytes, another was first.
This copy then publishes nothing more, because each later version of it would come after one that is
not its own.

Why a kill between any two puts is harmless: data files without their log entry are named by nobody;
a log entry is whole or absent.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Executor

from sparkstore.storage.storage import Storage
from sparkstore.tables.delta_contents import version_name
from sparkstore.tables.delta_files import (
    DataFile,
    checkpoints,
    log_file,
    newest_version,
    read_version,
    version_of,
)
from sparkstore.tables.root import Root


class TablePublisher:
    """Publishes the commits of one table. One thread at a time uses it."""

    def __init__(self, bucket: Storage, root: Root, table: str, uploads: Executor | None) -> None:
        """Take the copy as published: it was just brought up.

        Args:
            bucket: Where the root is.
            root: The working copy that was brought up.
            table: Name of the table, as `journal`.
            uploads: Where data files are uploaded, several at a time; None: whoever committed has
                put them into the bucket before.
        """
        self._bucket, self._name, self._uploads = bucket, table, uploads
        self._folder = root.table(table)
        self.published = newest_version(self._folder)
        self._checkpoint = max(checkpoints(self._folder), default=-1)
        self._removed: list[str] = []

    def publish(self) -> int | None:
        """Publish all that the copy has and the bucket lacks.

        Returns:
            None; or the version at which another's commit stands, and nothing more can be
            published.

        Raises:
            StoreError: Not known how far it got: call again.
        """
        while (entry := log_file(self._folder, self.published + 1)).exists():
            version = self.published + 1
            content, committed = entry.read_bytes(), read_version(self._folder, version)
            if self._uploads is not None:
                self._upload(self._uploads, committed.adds)
            # After its data files: whoever reads the entry finds them.
            if not self._bucket.put_if_absent(version_name(self._name, version), content):
                return version
            self.published = version
            self._removed += (f"{self._name}/{path}" for path in committed.removes)
        return None

    def _upload(self, uploads: Executor, files: Iterable[DataFile]) -> None:
        under_way = [
            uploads.submit(
                self._bucket.upload, f"{self._name}/{file.path}", self._folder / file.path
            )
            for file in files
        ]
        for upload in under_way:
            upload.result()

    def take_removed(self) -> list[str]:
        """Data files that the versions published since the last call name no more."""
        removed, self._removed = self._removed, []
        return removed

    def publish_checkpoint(self) -> None:
        """Publish the newest checkpoint of what is published, if the bucket lacks it."""
        files = checkpoints(self._folder)
        newest = max((version for version in files if version <= self.published), default=-1)
        if newest > self._checkpoint:
            for file in files[newest]:
                self._bucket.upload(f"{self._name}/_delta_log/{file.name}", file)
            self._checkpoint = newest

    def clean_log(self, keep_from: int) -> None:
        """Let go of log entries before a version: one that a whole checkpoint is of."""
        for file in self._bucket.files(f"{self._name}/_delta_log"):
            version = version_of(file.name.rpartition("/")[2])
            if version is not None and version < keep_from:
                self._bucket.delete(file.name)
