"""The log: records in, completions out. `append` → group → WAL → completions → Delta commit.

Threads: whoever calls `append` (one at a time: the caller holds its store's lock); the log thread,
which alone writes to the write-ahead log and fires completions; the committer thread.

Why a completion never lies (ARCHITECTURE: Rule 1): the log thread fires it after `Wal.append`
returned for the group that holds its records, or, with `ack = "delta"`, the committer fires it
after the Delta commit landed and was made durable. Why none is fired twice or forgotten: an item is
in exactly one place, the inbox, the batch in hand, or a group. Each place fires all it holds
before it ends, also when it ends with a failure.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from queue import Empty, SimpleQueue
from typing import NamedTuple

from sparkstore.config import StoreConfig
from sparkstore.content.reader import ContentReader
from sparkstore.content.scratch import Scratch
from sparkstore.core import codec
from sparkstore.core.records import MessageHeader, Run, rows_of
from sparkstore.errors import Closed, Ended, Fenced, Full, InvalidRequest, StoreError, Unavailable
from sparkstore.log.batcher import Fire, RecordGroup
from sparkstore.log.committer import Committer, CommitterEvents
from sparkstore.log.completions import bound, fire_once, ignore
from sparkstore.log.guards import LogGuards
from sparkstore.log.journal import Journal
from sparkstore.log.log_metrics import LogBacklog, LogMetrics
from sparkstore.log.logged_content import LoggedContent
from sparkstore.log.recent_content import RecentContent
from sparkstore.log.wal import NoRoom, Wal
from sparkstore.shipping.log_shipping import Shipping
from sparkstore.tables.root import Root
from sparkstore.witness.lease import Witness

_log = logging.getLogger(__name__)

_GROUP_BYTES = 4 << 20
_ROOM_RETRY_S = 0.2
_SCRATCH_TIMES = 16
"""Decoded content on disk is at most so many times what is kept in memory."""
_new = tuple.__new__  # a NamedTuple's own constructor is a call of Python for each


class _Item(NamedTuple):
    """An item of the log thread's queue: records, a bare completion, a flush, or the end."""

    packed: bytes
    runs: Sequence[Run]
    fire: Fire
    error: StoreError | None = None
    is_flush: bool = False


class Log:
    """An open log; made by `start.open_log`.

    Attributes:
        failure: What it stopped with; None while it has not.
        ends_by: The person who wants its end, to tell people; empty: it is just stopped.
        room: What is free on its disks.
        witness: Its lease; None: the root has no witness.
        shipping: The way to a standby; None: none may come.
        epoch: What its records are written under.
    """

    ends_by = ""

    def __init__(
        self,
        root: Root,
        journal: Journal,
        wal: Wal | None,
        locks: ExitStack,
        config: StoreConfig,
        *,
        next_position: int,
        first_segment: int,
        guards: LogGuards,
    ) -> None:
        self.root, self.config, self.epoch, self.metrics = root, config, journal.epoch, LogMetrics()
        self._wal, self._locks, self._publisher = wal, locks, journal.publisher
        self.room, self.witness, self.shipping = self._guards = guards
        self._pack = codec.packer()
        self.next_position = self._synced_below = next_position
        self._was_there = next_position - 1  # replayed: it survives without the write-ahead log
        self._taken_bytes = self._done_bytes = 0
        self.failure: StoreError | None = None
        self._stalled = ""
        self._has_ended, self._is_well = False, True
        self._recent = RecentContent(config.cache_bytes)
        scratch = Scratch(root.path, _SCRATCH_TIMES * config.cache_bytes, self.room.has_room_for)
        self._content = ContentReader(root, config.cache_bytes // 4, scratch)
        self._logged = LoggedContent(self._recent, self._content, self.flush, self.metrics)
        self._inbox: SimpleQueue[_Item | None] = SimpleQueue()
        self._ending, self._end_guard = threading.Event(), threading.Lock()
        self._committer = Committer(
            root,
            journal,
            wal,
            config,
            first_segment,
            self.metrics,
            CommitterEvents(self._recent.committed, self.fail),
            self.room,
        )
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    @property
    def backlog(self) -> LogBacklog:
        """Return how much was accepted and is not yet synced, or not yet committed to Delta."""
        files = 0 if self._wal is None else self._wal.file_count
        unsynced = self._taken_bytes - self._done_bytes
        waiting = self._committer.waiting_bytes
        if self._publisher is None or self._wal is None:
            left_s = self.witness.left_s if self.witness is not None else None
            return LogBacklog(unsynced, waiting, files, witness_left_s=left_s)
        return LogBacklog(unsynced, waiting, files, *self._committer.uncommitted)

    def append(self, runs: Sequence[Run], on_complete: Fire) -> int:
        """Take runs of records that become durable together; they get consecutive positions.

        `on_complete` fires on a thread of the log's, once they survive a power cut. Only one thread
        at a time may call this: the caller's lock gives the order.

        Returns:
            The position of the first (of the next record, if there are none).

        Raises:
            Full: No room in the write-ahead log; nothing was taken.
            InvalidRequest: A record cannot be written: an integer over 64 bits, half a surrogate
                pair; nothing was taken.
            StoreError: The log has stopped, and this is why.
        """
        self.check()
        return self.append_packed(runs, self.pack(runs), on_complete)

    def pack(self, runs: Iterable[Run]) -> bytes:
        """Encode runs as `append_packed` takes them; under the caller's lock, as `append`.

        Raises:
            InvalidRequest: One cannot be written, for the reasons of `append`.
        """
        try:
            return b"".join(map(self._pack, runs))
        except (OverflowError, ValueError) as reason:
            message = f"a record cannot be written: {reason}"
            raise InvalidRequest(message) from reason

    def append_packed(self, runs: Sequence[Run], packed: bytes, on_complete: Fire) -> int:
        """Append checked runs that `pack` encoded, as `append` does; raises nothing.

        The log may have been handed over since the check; then the completion has that error.
        """
        first = self.next_position
        self.next_position = first + rows_of(runs)
        self._taken_bytes += len(packed)
        # Before the put: from then on another thread may complete them, and their content is read.
        self._recent.add(runs)
        self._put(_new(_Item, (packed, runs, on_complete, None, False)))
        return first

    def finish(self, on_complete: Fire, error: StoreError | None) -> None:
        """Fire a completion in its turn, with `error`, and without a record."""
        self._put(_Item(b"", (), on_complete, error))

    def flush(self, on_complete: Fire) -> None:
        """Call back, on the committer's thread, when all records before are in Delta commits."""
        self._put(_Item(b"", (), on_complete, is_flush=True))

    def _put(self, item: _Item) -> None:
        self._inbox.put(item)
        if self._has_ended:
            self._refuse_the_rest()

    @property
    def synced_position(self) -> int:
        """Return the last position that was acknowledged, or may be."""
        return self._synced_below - 1

    @property
    def synced_bytes(self) -> int:
        """Return the bytes of all records that were synced since this log was opened."""
        return self._done_bytes

    def commit_now(self, on_commit: Fire) -> None:
        """Call back when all that was acknowledged before is in Delta commits; from any thread.

        Unlike `flush` it does not wait its turn: the log thread may itself wait for a standby.
        """
        self._committer.flush(on_commit, self._synced_below)

    def load(self, message_id: int) -> tuple[MessageHeader, bytes]:
        """Header and content of a message that was appended: see `LoggedContent`."""
        return self._logged.load(message_id)

    def read_ahead(self, message_ids: Sequence[int]) -> None:
        """Make messages ready for `at_hand`: see `LoggedContent`."""
        self._logged.read_ahead(message_ids)

    def at_hand(self, message_ids: Sequence[int]) -> dict[int, tuple[MessageHeader, bytes]]:
        """Header and content of those messages of which they are in memory."""
        return self._logged.at_hand(message_ids)

    def read(self, message_id: int, offset: int, length: int) -> bytes:
        """A part of the content of a message that was appended: see `LoggedContent`."""
        return self._logged.read(message_id, offset, length)

    def headers(self, message_ids: Sequence[int]) -> list[MessageHeader | None]:
        """Headers of messages that were appended: see `LoggedContent`."""
        return self._logged.headers(message_ids)

    def hand_over(self) -> None:
        """Take nothing more, and fire all completions; a standby in step may take over from then.

        The first part of `close`. What this root's own tables lack goes there later: the standby
        has it in its own log. The lease is released after the log thread, which alone tells of
        records, has ended. Each call, from any thread, returns when it is over.
        """
        self._end(Unavailable("this machine hands over to the other one: connect again"))

    def _end(self, reason: StoreError) -> None:
        with self._end_guard:
            if self._has_ended:
                return
            self._ending.set()
            self._inbox.put(None)
            self._thread.join()
            self._is_well = self.failure is None
            self.failure = self.failure or reason
            # In this order: what comes while this is set is refused here or by whoever brought it.
            self._has_ended = True
            self._refuse_the_rest()
            self._guards.release(self.ends_by)

    def close(self) -> None:
        """Make accepted records durable and visible, fire all completions, let go of the root."""
        self._end(Closed("the store is closed: open a new one"))
        is_well = self._is_well  # else a group may be in the log that nobody was told of
        # The committer ends first: its last mark says which files nobody needs any more.
        marked = self._committer.stop()
        if self._wal is not None:
            self._wal.close(released=max(marked, self._was_there) if is_well else 0)
        if self._publisher is not None:
            self._publisher.close(is_well=is_well and self._committer.failure is None)
        self._content.close()
        # Last: who takes the lock next must find nothing of this store under way.
        self._locks.close()

    def check(self) -> None:
        """Raise what `append` would raise now, whatever the records; else do nothing."""
        if self.failure is not None:
            raise self.failure.with_traceback(None)
        if self._stalled:
            delta = f"; Delta: {self.metrics.delta_error}" if self.metrics.delta_error else ""
            raise Full(f"{self._stalled}{delta}; retry later")
        if self._taken_bytes - self._done_bytes > self.config.max_pending_bytes:
            raise Full("too much waits for the write-ahead log: retry later")
        if self._wal is None and self._committer.waiting_bytes > self.config.max_pending_bytes:
            reason = self.metrics.delta_error or "busy"
            raise Full(f"too much waits for its Delta commit: {reason}; retry later")

    def _run(self) -> None:
        inbox = self._inbox
        while (item := inbox.get()) is not None:
            batch, size, is_last = [item], len(item.packed), False
            while size < _GROUP_BYTES and not inbox.empty():
                more = inbox.get()
                if more is None:
                    is_last = True
                    break
                batch.append(more)
                size += len(more.packed)
            self._settle(batch, size)
            if is_last:
                return

    def _settle(self, batch: list[_Item], size: int) -> None:
        """Make a batch durable as one group, and fire what it completes, in order."""
        first = self._synced_below
        runs = [run for item in batch for run in item.runs]
        rows = rows_of(runs)
        error = self._secure(batch, size, rows)
        self._done_bytes += size
        if error is not None:
            self.fail(error)
            for item in batch:
                fire_once(item.fire, item.error or error)
            return
        self._synced_below = first + rows
        if self._wal is None:
            self._hand_over_unacknowledged(batch, RecordGroup(first, runs, size))
            return
        if runs:
            self.metrics.synced(rows, size)
        flushes = self._tell(batch)
        if runs:
            # Only now: it is on disk, and whoever waits for that has nothing of its Delta commit.
            self._committer.add(RecordGroup(first, runs, size))
        for item in flushes:
            self._committer.flush(bound(item.fire, None), self._synced_below)

    def _tell(self, batch: list[_Item]) -> list[_Item]:
        """Fire the completions of a synced group in order; return its flushes, which wait on."""
        flushes = []
        for item in batch:
            if item.is_flush:
                flushes.append(item)
                continue
            try:  # `fire_once`, without a call more for each message
                item.fire(item.error)
            except Exception:  # noqa: BLE001 - a caller's bug must not stop everybody's
                _log.exception("a completion callback failed")
        return flushes

    def _hand_over_unacknowledged(self, batch: list[_Item], group: RecordGroup) -> None:
        """Leave completions to the committer.

        With `ack = "delta"` it fires once the commit is durable.
        """
        group.on_commit = [bound(item.fire, item.error) for item in batch]
        self._committer.add(group)
        if any(item.is_flush for item in batch):
            self._committer.flush(ignore, self._synced_below)

    def _secure(self, batch: list[_Item], size: int, count: int) -> StoreError | None:
        """Sync a group, and wait for the lease: its completions may fire then.

        Returns the error that they must be told, if any.
        """
        error = self.failure
        if error is None and self._wal is not None and size:
            payload = b"".join([item.packed for item in batch])
            if self.shipping is not None:  # first: the own sync runs while it is on its way
                self.shipping.ship(payload, count, self._synced_below)
            error = self._sync(self._wal, payload, count)
            if error is None and self.shipping is not None:
                error = self._wait_for_standby(self.shipping)
        if error is None and self.witness is not None:
            error = self._wait_for_witness(self.witness)
        return error

    def _sync(self, wal: Wal, payload: bytes, count: int) -> StoreError | None:
        first = self._synced_below
        while True:
            began = time.perf_counter()
            try:
                wal.append(payload, count, first)
            except NoRoom as reason:
                if self.failure is not None:
                    return self.failure
                if self._ending.is_set() and self.metrics.delta_error:
                    return Unavailable(f"closed while {reason}")
                self._stall(f"no room in the write-ahead log: {reason}")
                self.room.failed()
                time.sleep(_ROOM_RETRY_S)
            except Exception as reason:  # noqa: BLE001 - whatever it is, callers must be told
                what = reason if isinstance(reason, OSError) else repr(reason)
                message = f"write-ahead log: {what}; nothing is acknowledged: restart the store"
                return Ended(message)
            else:
                self.metrics.sync_duration_seconds.observe(time.perf_counter() - began)
                self._go_on()
                return None

    def _wait_for_witness(self, witness: Witness) -> StoreError | None:
        """Wait until the lease runs: what is on disk by now is told only under it."""
        while not witness.wait_until_held(_ROOM_RETRY_S):
            if self.failure is not None:
                return self.failure
            if self._ending.is_set():
                message = f"closed while the witness {witness.location} did not answer"
                return Ended(f"{message}: whether this store is the primary is not known")
            self._stall(f"the witness {witness.location} does not answer")
        self._go_on()
        return None

    def _wait_for_standby(self, shipping: Shipping) -> StoreError | None:
        """Wait until a standby has the group, too, or none need have it."""
        while True:
            try:
                if shipping.wait(_ROOM_RETRY_S):
                    self._go_on()
                    return None
                why = shipping.why
            except Fenced as reason:
                return reason
            except (StoreError, OSError) as reason:
                why = str(reason)
                self._ending.wait(_ROOM_RETRY_S)
            if self.failure is not None:
                return self.failure
            if self._ending.is_set():
                return Ended(f"closed while {why}: what was not answered may be lost")
            self._stall(why)

    def _refuse_the_rest(self) -> None:
        """Refuse what came after the end of the log thread; from any thread.

        Why nothing is forgotten: an item is put before `_has_ended` is set, and then `_end` finds
        it, or after that, and then whoever put it sees the flag. The inbox gives it to one of them.
        """
        with suppress(Empty):
            while True:
                item = self._inbox.get_nowait()
                if item is not None:
                    fire_once(item.fire, item.error or self.failure)

    def _stall(self, reason: str) -> None:
        if not self._stalled:
            _log.error("%s; pushing back", reason)
        self._stalled = reason

    def _go_on(self) -> None:
        if self._stalled:
            _log.warning("no longer so: %s", self._stalled)
            self._stalled = ""

    def fail(self, error: StoreError) -> None:
        """Acknowledge nothing from now on; the first reason counts. From any thread."""
        if self.failure is None:
            self.failure = error
            _log.critical("the log stopped acknowledging: %s", error)
