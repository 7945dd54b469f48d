"""The replication to a bucket: three Delta commits at most, by no JVM, whatever was killed before.

`history` and `state` of the replica name the same files as those of the primary; a file is
immutable, so it is uploaded once. The journal is not copied file by file, since a busy store
commits five times a second. Each run appends what comes after the replica's last position, in one
file for each segment, and drops what `history` has by now.

Why a reader of the replica finds every record, at each moment: of the primary's tables a run takes
state before journal before history, as recovery does, because records move the other way. It
publishes history before it drops anything from the journal, and state last.

Why no commit is lost or overwritten: each is one `put_if_absent` of the version after the one that
this run began with. Of two runs at a time one fails and changes nothing more. A run that was paused
while the replica was promoted fails too, because a promotion takes the next version of each table.
Only the commit counts: what was uploaded before a kill is uploaded again, under the same name with
the same bytes, or is never named.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from urllib.parse import unquote
from uuid import uuid4

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from sparkstore.bucket.table_publisher import TablePublisher
from sparkstore.bucket.working_copy import bring_up_log
from sparkstore.errors import CorruptData, StoreError, Unavailable
from sparkstore.jobs.report import JobReport
from sparkstore.recovery.recovery import journal_tail
from sparkstore.replication.bucket_replica import BucketPair, check_is_replica_of
from sparkstore.replication.record_at import fingerprint
from sparkstore.replication.record_files import (
    check_gapless,
    openings,
    rows_between,
    written_files,
)
from sparkstore.replication.replicate_plan import AGAIN, check_not_ahead
from sparkstore.storage.local import LocalStorage
from sparkstore.storage.storage import Storage
from sparkstore.tables import healing
from sparkstore.tables.delta_contents import COPY, TableContents, commit, contents, largest
from sparkstore.tables.delta_files import committed_at_s, log_file, versions
from sparkstore.tables.fencing import identity_at
from sparkstore.tables.root import Identity, Root
from sparkstore.tables.snapshot import snapshot

_log = logging.getLogger(__name__)

_UPLOADS = 4
_UPKEEP_COMMITS = 50
_READER_HOURS = 24
"""A query elsewhere may take so long."""
_LAST_POSITION, _LAST_RECORD = "sparkstore.last_position", "sparkstore.last_record"


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketReplicateReport(JobReport):
    """Figures of a replication to a bucket; `root` is the replica.

    Attributes:
        primary: The root it copied from.
        generation: The generation that primary and replica have in common.
        position_before: The last position that the replica held before.
        position_after: The same, afterwards.
        files_copied: Data files uploaded.
        bytes_copied: Size of the files that were uploaded.
        commit_count: Delta commits made.
        lag_records: Records that the primary committed to Delta while this ran, and that the next
            run will copy.
    """

    primary: str
    generation: int
    position_before: int
    position_after: int
    files_copied: int
    bytes_copied: int
    commit_count: int
    lag_records: int


class _Upload(NamedTuple):
    """A local file and the name it gets."""

    file: Path
    name: str


def replicate_to_bucket(pair: BucketPair) -> BucketReplicateReport:
    """Bring a replica up to what the primary had committed to Delta when this began.

    Raises:
        Unavailable: The primary's journal is broken at its end; another run is at work; the bucket
            did not answer. Nothing is lost; run it again.
        Fenced: The replica was promoted meanwhile.
        CorruptData: The replica holds other records than the primary; nothing was changed.
    """
    began = time.monotonic()
    copy = _Copy(pair)
    copy.run()
    return BucketReplicateReport(
        job="replicate",
        root=pair.replica.location,
        primary=pair.source.location,
        generation=pair.identity.generation,
        position_before=copy.before,
        position_after=copy.last,
        files_copied=copy.files_copied,
        bytes_copied=copy.bytes_copied,
        commit_count=copy.commit_count,
        lag_records=pair.source.lag(pair.primary, copy.last),
        seconds=round(time.monotonic() - began, 3),
    )


class _Copy:
    """A run of the copy: what both sides hold is looked up once, at its begin."""

    def __init__(self, pair: BucketPair) -> None:
        self._pair, self._replica, primary = pair, pair.replica, pair.primary
        _check_journal(pair)
        self._base = {
            name: contents(pair.replica, name) for name in ("state", "journal", "history")
        }
        tail, disk = journal_tail(primary), LocalStorage(primary.path)
        # State before journal before history: records move the other way, so none is missed.
        self._state = contents(disk, "state")
        self._journal, self._journal_files = contents(disk, "journal"), snapshot(primary.journal)
        self._history = contents(disk, "history")
        self._moved = largest(self._history.adds.values(), "position")
        self.before = max(
            largest(self._base[name].adds.values(), "position") for name in ("journal", "history")
        )
        self.last = max(self._moved, tail.last_position)
        self._openings = [(tail.epoch, tail.opened_position), *openings(self._journal_files)]
        self.files_copied = self.bytes_copied = 0
        self._committed: list[str] = []
        self._signature = {COPY: uuid4().hex}

    @property
    def commit_count(self) -> int:
        """Return the number of Delta commits that were made."""
        return len(self._committed)

    def run(self) -> None:
        """Copy what is new."""
        check_not_ahead(self._replica.location, self.before, self.last)
        self._check_same()
        # History before the journal drops what it has, and state last: readers find each record.
        self._publish_files("history", self._history)
        self._publish_journal()
        self._publish_files("state", self._state)
        for table, base in self._base.items():
            if table in self._committed and base.version % _UPKEEP_COMMITS == _UPKEEP_COMMITS - 2:
                _tidy(self._replica, table)

    def _check_same(self) -> None:
        """Compare the record at the replica's end with the primary's.

        Raises:
            CorruptData: It is another one, so the two went apart before it.
        """
        known = _last_record(self._base["journal"])
        if known is None or known[0] != self.before:
            return
        now = fingerprint(self._pair.primary, self.before)
        if now and now != known[1]:
            message = (
                f"{self._replica.location} has another record at position {self.before} than its"
                f" primary: the two went apart; keep one of them, and {AGAIN}"
            )
            raise CorruptData(message)

    def _publish_files(self, table: str, source: TableContents) -> None:
        """Upload a table's new files, and have the replica's table name those of the primary's."""
        folder, held = self._pair.primary.table(table), self._base[table].adds
        names = [unquote(path) for path in source.adds if path not in held]
        self._upload(_Upload(folder / name, f"{table}/{name}") for name in names)
        self._commit(table, source.adds, source, {})

    def _publish_journal(self) -> None:
        """Append what comes after the replica's end; drop what its history has."""
        base = self._base["journal"]
        after = max(self._moved, largest(base.adds.values(), "position"))
        kept = {
            path: add for path, add in base.adds.items() if largest([add], "position") > self._moved
        }
        with TemporaryDirectory(prefix="sparkstore-replicate-") as folder:
            rows = rows_between(self._journal_files, after, self.last, self._openings)
            added = [*written_files(rows, Path(folder))]
            check_gapless(added, after, self.last)
            self._upload(_Upload(file.file, f"journal/{file.name}") for file in added)
        wanted = {**kept, **{file.name: file.add for file in added}}
        last_record = fingerprint(self._pair.primary, self.last)
        info = {_LAST_POSITION: str(self.last), _LAST_RECORD: last_record}
        # The writer's transactions stay with it: whoever writes next begins another epoch.
        schema = TableContents(protocol=self._journal.protocol, metadata=self._journal.metadata)
        self._commit("journal", wanted, schema, info)

    def _upload(self, files: Iterable[_Upload]) -> None:
        def upload(file: _Upload) -> int:
            try:
                self._replica.upload(file.name, file.file)
            except FileNotFoundError as reason:
                message = f"{file.file} went while it was copied: run it again"
                raise Unavailable(message) from reason
            return file.file.stat().st_size

        with ThreadPoolExecutor(_UPLOADS) as pool:
            for size in pool.map(upload, files):
                self.files_copied += 1
                self.bytes_copied += size

    def _commit(
        self,
        table: str,
        wanted: Mapping[str, Mapping[str, Any]],
        source: TableContents,
        info: Mapping[str, str],
    ) -> None:
        base = self._base[table]
        if base.version >= 0 and wanted.keys() == base.adds.keys():
            return
        signed = {**self._signature, **info}
        now_ms = time.time_ns() // 1_000_000
        if not commit(self._replica, table, base, wanted, source, signed, now_ms=now_ms):
            self._fail_as_second(table)
        self._committed.append(table)

    def _fail_as_second(self, table: str) -> None:
        """Say who was first.

        Raises:
            Fenced: The replica was promoted.
            Unavailable: Another run has committed to it.
        """
        where = self._replica.location
        replica = identity_at(self._replica)
        if replica is not None:
            check_is_replica_of(where, replica, self._pair.primary.identity)
        message = f"{where}: somebody else has committed to {table} meanwhile, as another replicate"
        raise Unavailable(f"{message} does: run it again")


def _check_journal(pair: BucketPair) -> None:
    if healing.check(pair.primary, "journal") is not None:
        message = f"{pair.source.location}: the journal is broken at its end: start the store"
        raise Unavailable(message)


def _last_record(journal: TableContents) -> tuple[int, str] | None:
    """Position and fingerprint of the replica's end, as its last run wrote them down."""
    info = journal.commit_info
    if not info.get(_LAST_RECORD):
        return None
    return int(info[_LAST_POSITION]), info[_LAST_RECORD]


def _tidy(replica: Storage, table: str) -> None:
    """Keep the log of a replica's table short, and remove files that it has not named for a day.

    A file that was uploaded and never named stays, since a run may be about to name it. A failure
    is a line in the log: the next time does it. It works on a copy of the table's log: deltalake
    decodes a URI twice, so it would miss a prefix that has a `%` in its name.
    """
    try:
        with TemporaryDirectory(prefix="sparkstore-upkeep-") as name:
            _tidy_copy(replica, Root(Path(name), Identity("")), table)
    except (StoreError, DeltaError, OSError) as reason:
        _log.warning("%s/%s was not tidied: %s", replica.location, table, reason)


def _tidy_copy(replica: Storage, copy: Root, table: str) -> None:
    bring_up_log(replica, copy.path, table)
    publisher = TablePublisher(replica, copy, table, None)
    opened = DeltaTable(str(copy.table(table)))
    opened.create_checkpoint()
    publisher.publish_checkpoint()
    oldest = min(versions(copy.table(table)))
    entry = log_file(copy.table(table), oldest)
    if oldest and time.time() - committed_at_s(entry) >= _READER_HOURS * 3600:
        publisher.clean_log(oldest)
    for path in opened.vacuum(_READER_HOURS, dry_run=True, enforce_retention_duration=False):
        replica.delete(f"{table}/{path}")
