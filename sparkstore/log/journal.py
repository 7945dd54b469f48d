"""The Delta journal: each commit exactly once, by one writer, on one thread.

Every commit carries (`sparkstore.` metadata) the writer's UUID, its epoch, its own number in that
epoch, and the positions and segment of its rows. Its Delta transaction (`JOURNAL_APP`, epoch ·
2⁴⁰ + number) makes a commit fail whose handle has not seen another writer's.

Why a commit lands exactly once (ARCHITECTURE: Rule 3): a number is bound to its rows until its fate
is known. A commit that failed may have landed all the same, so the handle is opened anew and the
newest numbered version is read back: it is mine with the number in doubt (landed), mine with the
number before (it did not; try again), or somebody else's of this or a later epoch (`Fenced`). Only
after that may a fresh handle commit, because a fresh handle would be accepted whatever it missed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import (
    ColumnProperties,
    CommitProperties,
    DeltaTable,
    PostCommitHookProperties,
    Transaction,
    WriterProperties,
    write_deltalake,
)
from deltalake.exceptions import DeltaError

from sparkstore.bucket.publisher import CommitPublisher
from sparkstore.errors import CorruptData, Fenced, Unavailable
from sparkstore.storage.durable_files import SyncFailed
from sparkstore.tables.delta_files import Version, newest_version, read_version, versions
from sparkstore.tables.delta_log_cleaning import clean_log
from sparkstore.tables.root import Root

JOURNAL_APP = "sparkstore.journal"
_EPOCH = 1 << 40
_REOPEN_EVERY = 50
_CHECKPOINT_EVERY = 100
_TRIES_OF_AN_OPEN = 5
_SLACK_BYTES = 64 << 10
"""Free beside the rows of a commit: for its log entry, and where Parquet takes more than memory."""
_NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
_RISING = ColumnProperties(dictionary_enabled=False, encoding="DELTA_BINARY_PACKED")
_AS_DIFFERENCES = {"position": _RISING, "message_id": _RISING}
"""Numbers that rise, nearly all by one: a dictionary of them has an item for each row. As
differences, 40,000 rows of acquired and dequeued messages are 15 KB and not 404."""
_COMMITTED = WriterProperties(compression="SNAPPY", column_properties=_AS_DIFFERENCES)
_MERGED = WriterProperties(
    compression="ZSTD", compression_level=4, column_properties=_AS_DIFFERENCES
)
"""A merge is on no client's time, so its file is smaller: compressed as by deltalake itself."""


@dataclass(frozen=True, slots=True)
class Commit:
    """Rows of one Delta commit.

    Attributes:
        rows: In the order of positions, without gap, all of one segment.
        first_position: Position of the first row.
        last_position: Position of the last row.
        segment: Partition they are in.
    """

    rows: pa.Table
    first_position: int
    last_position: int
    segment: int


class Journal:
    """The handle of the one thread that commits to a journal."""

    def __init__(self, root: Root, writer: str, publisher: CommitPublisher | None = None) -> None:
        """Open the table without committing.

        Args:
            root: The root whose table `journal` is written.
            writer: UUID drawn at this open.
            publisher: If the root is a working copy: publishes what is committed, when it is told
                to.
        """
        self._root = root
        self.writer, self.publisher = writer, publisher
        self._epoch = 0
        self._number = 0
        self._table: DeltaTable | None = None
        self._commits = self._commits_since_checkpoint = 0
        last = self._last_numbered()
        self._adopted = last
        if last is not None:
            self._epoch, self._number = _number_of(last)

    @property
    def version(self) -> int:
        """Newest Delta version there is."""
        return newest_version(self._root.journal)

    @property
    def epoch(self) -> int:
        """Epoch that commits are made under."""
        return self._epoch

    def begin_epoch(self, epoch: int) -> None:
        """Commit under a new epoch from now on; its first commit must hold the `opened` record."""
        self._epoch, self._number = epoch, 0

    def append(self, commit: Commit) -> None:
        """Append the rows of a commit to the journal exactly once.

        Raises:
            Unavailable: Not known to have landed: call again with the same commit, nothing else.
            Fenced: Another writer owns the root.
        """
        metadata = {
            **self._metadata(self._number + 1),
            "sparkstore.first_position": str(commit.first_position),
            "sparkstore.last_position": str(commit.last_position),
            "sparkstore.segment": str(commit.segment),
        }
        try:
            if self._is_due_for_reopen() and self._has_landed(self._number + 1):
                self._landed()
                return
            assert self._table is not None
            self._check_room(commit.rows.nbytes)
            write_deltalake(
                self._table,
                commit.rows,
                mode="append",
                writer_properties=_COMMITTED,
                **self._numbered(metadata),
            )
        except (DeltaError, OSError, pa.ArrowException) as reason:
            self._table = None
            with suppress(OSError, CorruptData):
                self._check_owner()
            message = f"Delta commit to {self._root.journal} failed: {reason}"
            raise Unavailable(message) from reason
        self._landed()

    def merge(self, segment: int, target_bytes: int) -> None:
        """Rewrite the small files of a closed segment as few. It changes no row.

        Raises:
            Unavailable: It did not work out; nothing is lost.
            Fenced: Another writer owns the root.
        """
        options = _options(self._signature())
        files = (self._root.journal / f"segment={segment}").glob("*.parquet")
        self._maintain(
            lambda table: table.optimize.compact(
                partition_filters=[("segment", "=", str(segment))],
                target_size=target_bytes,
                max_concurrent_tasks=1,
                writer_properties=_MERGED,
                **options,
            ),
            sum(file.stat().st_size for file in files),
        )

    def drop_segments(self, segments: list[int]) -> None:
        """Drop whole segments: no row is read or rewritten. As `append` in what it raises.

        Its number is used up even if it fails: else a drop that landed unseen would be taken for
        the append that comes next.
        """
        listed = ", ".join(map(str, segments))
        self._number += 1
        options = self._numbered(self._metadata(self._number))
        self._maintain(lambda table: table.delete(f"segment in ({listed})", **options))

    def vacuum(self, grace_s: float) -> None:
        """Remove files that no version since `grace_s` ago names. As `merge` in what it raises."""
        hours, options = int(grace_s // 3600), _options(self._signature())
        options |= {"dry_run": False, "enforce_retention_duration": False}
        self._maintain(lambda table: table.vacuum(hours, **options))

    def checkpoint(self, grace_s: float = 0.0) -> None:
        """Write a Delta checkpoint, drop the log files that no version since `grace_s` ago needs.

        As `merge` in what it raises.

        Raises:
            SyncFailed: Also this, and then the store must stop: the next time it would be believed.
        """
        self._maintain(lambda table: table.create_checkpoint(), 0)
        self._commits_since_checkpoint = 0
        try:
            clean_log(self._root, "journal", grace_s)
        except SyncFailed:
            raise
        except (OSError, pa.ArrowException) as reason:
            message = f"the log of {self._root.journal} was not cleaned: {reason}"
            raise Unavailable(message) from reason

    @property
    def checkpoint_is_due(self) -> bool:
        """True once every so many commits."""
        return self._commits_since_checkpoint >= _CHECKPOINT_EVERY

    def _maintain(
        self, act: Callable[[DeltaTable], object], written_bytes: int | None = None
    ) -> None:
        """Do something to a fresh handle; `written_bytes` if it writes Parquet, about so many."""
        try:
            self._open()
            assert self._table is not None
            if written_bytes is not None:
                self._check_room(written_bytes)
            act(self._table)
        except (DeltaError, OSError) as reason:
            message = f"maintenance of {self._root.journal} failed: {reason}"
            raise Unavailable(message) from reason
        finally:
            self._table = None

    def _check_room(self, needed_bytes: int) -> None:
        """Do not begin a Parquet file that cannot be ended.

        delta-rs panics behind its error when a file could not be written to its end: a trace on
        standard error at every attempt, so every few seconds while a disk is full. No hook of
        Python's catches that, and a filter on descriptor 2 would be in the way of all who write
        there. Decision: the room is looked at before, with a little more than the rows take in
        memory. Who fills the disk meanwhile, or has a quota, still sees the trace. What frees room
        (dropped segments, vacuum) writes no Parquet, and is not held up.

        Raises:
            OSError: There is no room now.
        """
        free, needed_bytes = free_bytes(self._root.journal), needed_bytes + _SLACK_BYTES
        if free < needed_bytes:
            message = f"no space left on device: {free} bytes are free, {needed_bytes} are needed"
            raise OSError(message)

    def _signature(self) -> dict[str, str]:
        return {"sparkstore.writer": self.writer, "sparkstore.epoch": str(self._epoch)}

    def _metadata(self, number: int) -> dict[str, str]:
        return {**self._signature(), "sparkstore.number": str(number)}

    def _numbered(self, metadata: dict[str, str]) -> dict[str, Any]:
        version = self._epoch * _EPOCH + int(metadata["sparkstore.number"])
        return _options(metadata, [Transaction(JOURNAL_APP, version)])

    def _landed(self) -> None:
        self._number += 1
        self._commits += 1
        self._commits_since_checkpoint += 1

    def _is_due_for_reopen(self) -> bool:
        """Open a handle if there is none or it has grown slow; True if one was opened."""
        if self._table is not None and self._commits % _REOPEN_EVERY:
            return False
        self._open()
        return True

    def _open(self) -> None:
        self._table = DeltaTable(str(self._root.journal))
        self._check_owner()

    def _has_landed(self, number: int) -> bool:
        last = self._last_numbered()
        return (
            last is not None
            and last.metadata["sparkstore.writer"] == self.writer
            and _number_of(last) == (self._epoch, number)
        )

    def _check_owner(self) -> None:
        """Read back who committed last, before a fresh handle may commit.

        Raises:
            Fenced: Neither this writer nor the one it took over from; also one of an older epoch,
                whose last records the `opened` of this writer would else make void.
        """
        last = self._last_numbered()
        if last is None or last == self._adopted:
            return
        epoch, _ = _number_of(last)
        writer = last.metadata["sparkstore.writer"]
        if writer != self.writer:
            message = (
                f"{self._root.path} is owned by writer {writer[:8]} of epoch {epoch};"
                f" this writer, {self.writer[:8]} of epoch {self._epoch}, stops"
            )
            raise Fenced(message)

    def _last_numbered(self) -> Version | None:
        """The newest version that a writer's own number is on.

        It is never a fenced writer's: whose handle had not seen the `opened` that fenced it, had a
        conflict of transactions; whose handle was fresh, looked here first.
        """
        for version in reversed(versions(self._root.journal)):
            candidate = self._read(version)
            if JOURNAL_APP in candidate.transactions:
                return candidate
        return None

    def _read(self, version: int) -> Version:
        for _ in range(_TRIES_OF_AN_OPEN):
            try:
                return read_version(self._root.journal, version)
            except CorruptData as reason:
                # another opener's commit may be seen between its link and its bytes
                error = reason
        raise error


def _options(
    metadata: dict[str, str], transactions: list[Transaction] | None = None
) -> dict[str, Any]:
    """How each commit is made: it is not tried again by itself, and nothing follows it."""
    properties = CommitProperties(metadata, 0, transactions)
    return {"commit_properties": properties, "post_commithook_properties": _NO_HOOKS}


def free_bytes(folder: Path) -> int:
    """Return how many bytes this process may still write to the disk of a folder."""
    disk = os.statvfs(folder)
    blocks = disk.f_bavail if os.geteuid() else disk.f_bfree  # root has the reserve of some disks
    return blocks * disk.f_frsize


def _number_of(version: Version) -> tuple[int, int]:
    return int(version.metadata["sparkstore.epoch"]), int(version.metadata["sparkstore.number"])
