"""The committer thread: groups → Delta commits, and everything else that commits to the journal.

It is the only thread that touches the journal's handle (ARCHITECTURE: Rule 2). Why nothing is lost:
a group comes here after its sync. Its write-ahead log file is released only after `mark_durable`
said that its Delta commit would survive a power cut (ARCHITECTURE: Rule 5). A commit to a root in a
bucket is published there before. With `ack = "delta"`, completions wait for the same. A commit that
fails is tried again with the same rows until its fate is known; nothing else is committed
meanwhile.
"""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from sparkstore.config import StoreConfig
from sparkstore.core.records import Run
from sparkstore.errors import CorruptData, Ended, StoreError, Unavailable
from sparkstore.log.batcher import (
    CommitBatcher,
    CommitLimits,
    Fire,
    RecordGroup,
    SegmentLimits,
    Segments,
)
from sparkstore.log.journal import Commit, Journal
from sparkstore.log.log_metrics import LogMetrics
from sparkstore.log.trim import Trimmer
from sparkstore.log.wal import Wal
from sparkstore.storage.disk_room import DiskRoom
from sparkstore.storage.durable_files import SyncFailed
from sparkstore.tables import rows
from sparkstore.tables.marks import mark_durable
from sparkstore.tables.root import Root

_log = logging.getLogger(__name__)

_MERGED_FILE_BYTES = 64 << 20
_LONGEST_RETRY_S = 5.0
_MARK_EVERY_COMMITS = 25
_IDLE_MARK_MS = 1_000
_MARK_BYTES_HELD_BACK = 1 << 19
"""Files of the log are small then, and are to be free again soon."""


class CommitterEvents(NamedTuple):
    """Callbacks of a committer: for records that a Delta commit holds, and for its failure."""

    on_committed: Callable[[Sequence[Run]], None]
    on_failure: Callable[[StoreError], None]


class Committer:
    """Runs one thread; see the module for what may be concluded from what it fires.

    Attributes:
        failure: The error that stopped it; None while it works.
    """

    def __init__(
        self,
        root: Root,
        journal: Journal,
        wal: Wal | None,
        config: StoreConfig,
        first_segment: int,
        metrics: LogMetrics,
        events: CommitterEvents,
        room: DiskRoom,
    ) -> None:
        self._root, self._journal, self._wal, self._config = root, journal, wal, config
        limits = CommitLimits(config.commit_interval_ms, config.max_commit_bytes)
        self._batcher = CommitBatcher(limits)
        age_ms = int(config.segment_hours * 3_600_000)
        self._segments = Segments(
            SegmentLimits(config.segment_records, config.segment_commits, age_ms), first_segment
        )
        self._trimmer = Trimmer(root, journal, config)
        self._metrics, self._room = metrics, room
        self._on_committed, self._on_failure = events
        self._publisher = journal.publisher
        self._changed = threading.Condition()
        self._is_stopping = False
        self.failure: StoreError | None = None
        self._in_hand: tuple[int, int | None] = (0, None)
        self._committed_position = self._marked_position = 0
        self._unmarked_bytes = self._unmarked_commits = 0
        self._marked_at_ms = _now_ms()
        self._thread = threading.Thread(target=self._run, name="committer", daemon=True)
        self._thread.start()

    @property
    def waiting_bytes(self) -> int:
        """Packed bytes that no Delta commit holds yet."""
        return self._batcher.waiting_bytes

    @property
    def uncommitted(self) -> tuple[int, float]:
        """Packed bytes that no Delta commit is known to hold, and seconds since they came."""
        with self._changed:
            in_hand_bytes, came_at_ms = self._in_hand
            waiting_bytes = self._batcher.waiting_bytes + in_hand_bytes
            oldest = came_at_ms if came_at_ms is not None else self._batcher.oldest_at_ms
        return waiting_bytes, 0.0 if oldest is None else (_now_ms() - oldest) / 1000

    def add(self, group: RecordGroup) -> None:
        """Take a group, in order; after a failure its completions get that error."""
        with self._changed:
            if self.failure is not None:
                _fire([group], self.failure)
                return
            was_due = self._batcher.due_at_ms(now_ms=0)
            self._batcher.add(group, now_ms=_now_ms())
            if was_due is None or self._batcher.waiting_bytes >= self._config.max_commit_bytes:
                self._changed.notify()

    def flush(self, on_commit: Fire, next_position: int) -> None:
        """Fire when everything taken so far is in Delta."""
        self.add(RecordGroup(next_position, (), 0, [on_commit]))
        with self._changed:
            self._batcher.hurry()
            self._changed.notify()

    def stop(self) -> int:
        """Commit what is left, mark it, end the thread.

        Returns:
            The last position that survives without the write-ahead log, 0 if it committed none.
        """
        with self._changed:
            self._is_stopping = True
            self._batcher.hurry()
            self._changed.notify()
        self._thread.join()
        return self._marked_position

    def _run(self) -> None:
        groups: list[RecordGroup] = []
        try:
            while (groups := self._next()) or not self._is_stopping:
                if groups:
                    self._commit(groups)
                self._maintain()
            self._mark()
        except StoreError as reason:
            self._fail(groups, reason)
        except SyncFailed as reason:
            self._fail(groups, Ended(f"fsync failed: {reason}; restart the store"))
        except BaseException as reason:  # noqa: BLE001 - a panic of deltalake is no Exception
            _log.exception("the committer failed")
            self._fail(groups, Ended(f"the committer failed: {reason!r}; restart the store"))

    def _next(self) -> list[RecordGroup]:
        """Wait for a commit that is due, at most until maintenance may be."""
        with self._changed:
            while True:
                now_ms = _now_ms()
                due = self._batcher.due_at_ms(now_ms=now_ms)
                if due is not None and (due <= now_ms or self._is_stopping):
                    came_at_ms = self._batcher.oldest_at_ms
                    groups = self._batcher.take()
                    self._in_hand = (sum(group.packed_bytes for group in groups), came_at_ms)
                    return groups
                if self._is_stopping:
                    return []
                wait_ms = _IDLE_MARK_MS if due is None else due - now_ms
                if not self._changed.wait(wait_ms / 1000) and due is None:
                    return []

    def _commit(self, groups: list[RecordGroup]) -> None:
        runs = [run for group in groups for run in group.runs]
        if runs:
            self._commit_rows(groups, runs)
        self._in_hand = (0, None)
        _fire(groups, None)

    def _commit_rows(self, groups: list[RecordGroup], runs: list[Run]) -> None:
        first = next(group.first_position for group in groups if group.runs)
        segment = self._segments.current
        started = time.monotonic()
        table = rows.to_table(
            runs, first_position=first, epoch=self._journal.epoch, segment=segment
        )
        last = first + table.num_rows - 1
        commit = Commit(table, first, last, segment)
        self._insist(lambda: self._journal.append(commit))
        packed_bytes = sum(group.packed_bytes for group in groups)
        self._metrics.committed(table.num_rows, time.monotonic() - started)
        self._segments.add(table.num_rows, packed_bytes, now_ms=_now_ms())
        self._committed_position = last
        self._unmarked_bytes += packed_bytes
        self._unmarked_commits += 1
        if self._publisher is not None:
            self._insist(self._publisher.publish)
        elif self._wal is None:
            self._insist(self._mark)
        # Last: from now on their content is read from the tables and not from memory.
        self._on_committed(runs)

    def _insist(self, act: Callable[[], None]) -> None:
        """Retry a commit, or its mark, until its fate is known.

        Raises:
            Fenced: Another writer owns the root.
            Unavailable: The log is closing and Delta still fails, in an attempt that began after
                that: the write-ahead log has it.
        """
        wait_s = 0.1
        while True:
            is_last = self._is_stopping
            try:
                act()
            except Unavailable as reason:
                self._metrics.commit_failed(str(reason))
                self._room.failed()
                _log.warning("%s; trying again in %.1f s", reason, wait_s)
                if is_last:
                    raise
                with self._changed:
                    self._changed.wait_for(lambda: self._is_stopping, wait_s)
                wait_s = min(2 * wait_s, _LONGEST_RETRY_S)
            else:
                self._metrics.commit_worked()
                return

    def _maintain(self) -> None:
        """Do the maintenance that is due; a failure costs nothing but a line in the log."""
        self._room.look()
        try:
            if self._is_mark_due():
                self._mark()
            self._spare_wal_file()
            closed = self._segments.roll(now_ms=_now_ms())
            # A merge writes all of a segment once more.
            if closed and closed.is_worth_merging and self._room.has_room_for(_MERGED_FILE_BYTES):
                self._journal.merge(closed.segment, _MERGED_FILE_BYTES)
            if self._journal.checkpoint_is_due:
                self._journal.checkpoint(self._config.reader_grace_s)
                if self._publisher is not None:
                    self._publisher.tidy()
                # Each commit leaves some 10 KB in cycles, which a tuned process collects seldom.
                gc.collect(0)
            if self._trimmer.is_due(now_s=time.time()):
                self._mark()
                self._trimmer.run(self._segments.current, now_s=time.time())
        except (Unavailable, CorruptData) as reason:
            _log.warning("%s; the store goes on", reason)

    def _spare_wal_file(self) -> None:
        if self._wal is not None:
            try:
                self._wal.prepare_spare()
            except OSError as reason:
                _log.warning("no room for another write-ahead log file: %s", reason)

    def _is_mark_due(self) -> bool:
        if not self._unmarked_commits:
            return False
        most_bytes = self._config.wal_file_bytes // 2
        return (
            self._unmarked_bytes >= (_MARK_BYTES_HELD_BACK if self._room.held_back else most_bytes)
            or self._unmarked_commits >= _MARK_EVERY_COMMITS
            or _now_ms() - self._marked_at_ms >= _IDLE_MARK_MS * 5
            or self._is_stopping
        )

    def _mark(self) -> None:
        """Make what was committed survive a power cut, then let go of its log files.

        Raises:
            SyncFailed: An fsync failed: not to be tried again, so the log must stop.
            Unavailable: No room for the mark, most likely; it may be tried again.
            Fenced: Another writer committed to the bucket.
        """
        try:
            # Also without a new record: a merge or a drop may be what is to survive.
            if self._publisher is not None:
                self._publisher.publish()
            fsync = self._config.fsync and self._publisher is None
            mark_durable(self._root, {"journal": self._journal.version}, fsync=fsync)
        except SyncFailed:
            raise
        except OSError as reason:
            message = f"{self._root.path} could not be marked durable: {reason}"
            raise Unavailable(message) from reason
        self._unmarked_bytes = self._unmarked_commits = 0
        self._marked_at_ms = _now_ms()
        self._marked_position = self._committed_position
        # Only after the mark: until then a start has to replay these files.
        if self._wal is not None:
            self._wal.release(self._committed_position)

    def _fail(self, groups: list[RecordGroup], reason: StoreError) -> None:
        level = logging.WARNING if self._is_stopping else logging.CRITICAL
        _log.log(level, "no more Delta commits: %s", reason)
        # First: nothing more may be acknowledged while those that wait are told.
        self._on_failure(reason)
        with self._changed:
            self.failure = reason
            waiting = [*groups]
            while more := self._batcher.take():
                waiting += more
        _fire(waiting, reason)


def _fire(groups: Sequence[RecordGroup], error: StoreError | None) -> None:
    """Fire the completions of these groups, each once."""
    for group in groups:
        fires, group.on_commit = group.on_commit, []
        for fire in fires:
            fire(error)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
