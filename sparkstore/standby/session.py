"""A standby at its primary, from its greeting on: copy, records of the journal, then live groups.

What comes first is left to Delta, which has it in order: a copy of all tables, if the standby has
none that fits, and then the records of the journal after its end. Meanwhile the log keeps the
groups that come (`Shipping.join`). Those before are in the journal within one Delta commit, which
is asked for. So nothing is read from the write-ahead log, and memory holds one file of the journal.

The standby may be rewound by what it is sent. Before that the witness names no standby
(`Shipping.release`): one that is half rewound does not take over.
"""

from __future__ import annotations

import logging
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa

from sparkstore.errors import CorruptData, StoreError, Unavailable
from sparkstore.log.writer import Log
from sparkstore.recovery.recovery import last_position
from sparkstore.replication.bucket_copy import replicate_to_bucket
from sparkstore.replication.bucket_replica import BucketPair
from sparkstore.replication.primary import Primary
from sparkstore.replication.record_at import fingerprint
from sparkstore.replication.record_files import openings, rows_between
from sparkstore.shipping.frames import (
    MOST_OTHER_BYTES,
    POSITION,
    PairFrame,
    PrimaryWelcome,
    StandbyHello,
    as_json,
)
from sparkstore.shipping.peer import Peer
from sparkstore.shipping.steps import may_join
from sparkstore.standby.copy_calls import FarStorage
from sparkstore.storage.local import LocalStorage
from sparkstore.tables.fencing import STANDBY
from sparkstore.tables.root import Identity, open_root
from sparkstore.tables.snapshot import snapshot

_log = logging.getLogger(__name__)

_BEAT_S = 0.5
_DELTA_S = 30.0
_PART_BYTES = 32 << 20


class StandbySession:
    """Brings one standby up and keeps it there; `run` returns when it is gone, and says why."""

    def __init__(
        self,
        log: Log,
        peer: Peer,
        hello: StandbyHello,
        stopping: threading.Event,
        on_live: Callable[[], None],
    ) -> None:
        assert log.shipping is not None
        self._log, self._peer, self._hello, self._stopping = log, peer, hello, stopping
        self._root, self._shipping, self._on_live = log.root, log.shipping, on_live

    def run(self) -> None:
        """Serve the standby until it or this primary ends.

        Raises:
            StoreError: Why it ended.
        """
        self._shipping.release()
        try:
            self._live(self._bring_up())
        finally:
            self._shipping.leave(self._peer)

    def _bring_up(self) -> int:
        """Make it have all that was before a position from which on groups are kept; that."""
        self._reach(self._log.synced_position)
        position, hello = self._hello.end, self._hello
        must_copy = not self._goes_on()
        has_log_end = self._is_same(hello.log_end, hello.log_end_digest)
        identity = open_root(self._root.path).identity  # a witness may be new
        self._peer.send(
            PairFrame.WELCOME,
            as_json(
                PrimaryWelcome(
                    identity.root_id,
                    identity.generation,
                    identity.superseded,
                    identity.witness,
                    must_copy,
                    has_log_end,
                )._asdict()
            ),
        )
        if must_copy:
            position = self._copy()
        _log.info("the standby at %s goes on after position %d", self._peer.where, position)
        log, lacking_bytes = self._log, 1 << 62  # how long what was there before is, nobody knows
        while (lacking := log.synced_position - position) > 0 and not may_join(
            lacking, lacking_bytes
        ):
            end, bytes_then = log.synced_position, log.synced_bytes
            self._reach(end)
            position = self._send_rows(position, end)
            lacking_bytes = log.synced_bytes - bytes_then
        joined_at = self._shipping.join()
        self._reach(joined_at - 1)
        self._send_rows(position, joined_at - 1)
        return joined_at

    def _live(self, joined_at: int) -> None:
        self._peer.send(PairFrame.LIVE, as_json({"epoch": self._log.epoch, "first": joined_at}))
        self._expect_ack(joined_at - 1)
        self._peer.patience_s = self._shipping.synchrony.grace_s
        self._shipping.attach(self._peer, self._hello.root_id)
        self._on_live()
        self._shipping.beat(self._peer)  # by which the standby knows that it is waited for
        while not self._stopping.wait(_BEAT_S):
            self._shipping.beat(self._peer)

    def _goes_on(self) -> bool:
        """Tell whether the journal has what the standby lacks, and its end is a record of ours."""
        end = self._hello.end
        journal = snapshot(self._root.journal)
        first = min((file.positions[0] for file in journal), default=1 << 62)
        return end + 1 >= first and self._is_same(end, self._hello.end_digest)

    def _is_same(self, position: int, digest: str) -> bool:
        return bool(digest) and digest == fingerprint(self._root, position)

    def _copy(self) -> int:
        """Copy all tables; the last position in them."""
        identity, far = self._root.identity, FarStorage(self._peer)
        far.files()  # answered once it begins: until then a job may be at work on its old root
        _log.warning("the standby at %s gets a copy of all tables", self._peer.where)
        copied = Identity(
            self._hello.root_id,
            role=STANDBY,
            generation=identity.generation,
            primary_id=identity.root_id,
        )
        source = Primary(LocalStorage(self._root.path), identity)
        report = replicate_to_bucket(BucketPair(source, self._root, far, copied))
        return report.position_after

    def _reach(self, position: int) -> None:
        """Wait until Delta has a position.

        Raises:
            Unavailable: It takes too long.
        """
        ends_at = time.monotonic() + _DELTA_S
        while _end(self._log) < position:
            committed = threading.Event()
            self._log.commit_now(partial(_set, committed))
            committed.wait(1.0)
            if self._log.failure is not None:
                raise self._log.failure
            if time.monotonic() > ends_at:
                raise Unavailable(f"Delta did not reach position {position}: see the log before")

    def _send_rows(self, after: int, last: int) -> int:
        """Send the records of the journal after a position; the last that was sent."""
        for rows in _records(self._log, after, last):
            if rows["position"][0].as_py() != after + 1:
                raise Unavailable(f"position {after + 1} left the journal while it was read")
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, rows.schema) as stream:
                stream.write_table(rows)
            content = sink.getvalue().to_pybytes()
            self._peer.send(PairFrame.ROWS, zlib.crc32(content).to_bytes(4, "little") + content)
            after += rows.num_rows
            self._expect_ack(after)
            _log.info("the standby at %s has position %d of %d", self._peer.where, after, last)
        if after < last:
            raise Unavailable(f"position {after + 1} left the journal while it was read")
        return after

    def _expect_ack(self, position: int) -> None:
        kind, body = self._peer.receive(lambda _kind: MOST_OTHER_BYTES)
        if kind is not PairFrame.ACK or body != POSITION.pack(position):
            raise CorruptData(f"the standby at {self._peer.where} did not confirm {position}")


def _set(committed: threading.Event, _error: StoreError | None) -> None:
    committed.set()


def _end(log: Log) -> int:
    """Return the last position in the tables, by the journal's statistics where it has any."""
    return last_position(snapshot(log.root.journal)) or last_position(snapshot(log.root.history))


def _records(log: Log, after: int, last: int) -> Iterator[pa.Table]:
    """Records of the journal that count, in order, in parts: of a large file, or many small ones.

    A part may end within a transaction. That harms nobody: until all is there the standby is not in
    step, and Spark sees what it sees while a store that was killed is replayed.
    """
    files = sorted(snapshot(log.root.journal), key=lambda file: file.positions)
    waiting, size = list[pa.Table](), 0
    for _, rows in rows_between(files, after, last, openings(files)):
        waiting.append(rows.sort_by("position"))
        size += rows.nbytes
        if size >= _PART_BYTES:
            yield from _parts(pa.concat_tables(waiting), size)
            waiting, size = [], 0
    if size:
        yield from _parts(pa.concat_tables(waiting), size)


def _parts(rows: pa.Table, size: int) -> Iterator[pa.Table]:
    step = max(1, rows.num_rows * _PART_BYTES // size)
    for start in range(0, rows.num_rows, step):
        yield rows.slice(start, step)
