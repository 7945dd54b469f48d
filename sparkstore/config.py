"""Settings of a store, read from TOML. Settings are data: no clock, no connection, no session."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from sparkstore.declared_settings import (
    MIB,
    AtLeast0,
    AtLeast1,
    Bounds,
    Seconds,
    check_declared,
)
from sparkstore.errors import InvalidRequest
from sparkstore.folder_name import check_is_folder_name
from sparkstore.settings_file import named_section, read_row, read_section


@dataclass(frozen=True, slots=True)
class ChainMemberConfig:
    """One more store that a broker's store is chained with; exactly one of the first two is set.

    Attributes:
        mirror: Folder of another root, which gets all that this one accepts.
        audit: File that gets one line for each call.
        on_failure: `end`: the broker ends when the member fails, as when its own disk does.
            `drop`: it goes on without it until the next start.
        max_waiting: A member that may be dropped is, when so many calls wait for it.
        max_distance: A mirror that is so many calls behind at the start is not caught up with.
    """

    PLACE: ClassVar[str] = "[store] chain:"

    mirror: str = ""
    audit: str = ""
    on_failure: Annotated[str, Bounds(words=("end", "drop"))] = "end"
    max_waiting: AtLeast1 = 10_000
    max_distance: AtLeast1 = 100_000

    def __post_init__(self) -> None:
        if bool(self.mirror) is bool(self.audit):
            raise InvalidRequest('[store] chain: say mirror = "FOLDER" or audit = "FILE" of each')
        check_is_folder_name(self.audit, "[store] chain: audit")
        check_declared(self, self.PLACE)


@named_section
@dataclass(frozen=True, slots=True)
class StoreConfig:
    """Settings of the log of a store and of its tables.

    Attributes:
        ack: When a call is complete: "wal" when the write-ahead log has it on disk, "delta" when
            its Delta commit landed. Empty: "wal" for a folder, "delta" for a URI.
        wal_dir: Folder of the write-ahead log; empty: `wal` in the root. Give it a disk of its own
            if you can.
        copy_dir: Folder of the working copy of a root in a bucket, a cache on this machine; empty:
            one in ~/.cache/sparkstore for each URI.
        lost_wal: Id of the write-ahead log of a root in a bucket that is lost for good, with what
            it held. A start that misses one names it.
        wal_file_bytes: Size of one write-ahead log file. Files are written once and then reused in
            turn.
        max_wal_files: With so many files full of records that Delta does not hold yet, calls get
            `Unavailable`.
        commit_interval_ms: Longest time a record waits for its Delta commit: how old an answer of
            Spark SQL can be.
        max_commit_bytes: A Delta commit is due at this size, too.
        segment_records: A segment of the journal closes after so many records. Closed segments are
            merged, moved to history by `sparkstore compact`, and then trimmed.
        segment_commits: A segment closes after so many Delta commits, too.
        segment_hours: A segment closes after so many hours, too.
        reader_grace_s: How long files that a query may still read are kept after they were
            replaced. Versions of the journal that a job may have begun with are kept as long, 3,000
            of them at most.
        max_message_bytes: A larger message is refused.
        max_pending_bytes: Calls get `Unavailable` while so much waits for the write-ahead log, or,
            with `ack = "delta"`, for its Delta commit.
        cache_bytes: Content of waiting messages kept in memory; the rest is read back when it is
            needed. Then up to 16 times as much lies decoded on the root's disk, in a file without
            a name.
        fence_check_s: How often the store looks whether a replica was promoted in its place; then
            it stops.
        witness: A prefix of a bucket, a folder that all machines have mounted, or
            kubernetes:NAMESPACE/NAME of a Lease, for a root that has replicas or a standby. One
            object there says which may serve (docs/jobs.md). Empty: as before. "none": it has one
            no more.
        witness_lease_s: How long the store goes on when the witness does not answer; a promotion
            waits as long.
        standby_listen: HOST:PORT at which a standby of this root may connect (docs/failover.md);
            beyond loopback it needs TLS. Empty: none may.
        peer: tcp:HOST:PORT, `standby_listen` of the other machine: be its standby while it serves.
            With a witness this machine takes over by itself when the other one is gone.
        peer_ca: The authorities, a PEM file, that vouch for the other machine's certificate. Empty:
            those of this system.
        synchronous: "always": nothing is acknowledged that a standby has not synced, too.
            "when_there": the same while there is a standby; without one for standby_grace_s this
            machine goes on alone.
        standby_grace_s: How long a standby may be silent before that.
        fsync: false only to measure what fsync costs, never in service: a power cut then loses
            acknowledged messages.
        member_grace_s: With several brokers on this root (docs/members.md): a broker that is gone
            so long loses what its consumers had acquired. That is delivered again.
        min_free_bytes: With less free on the disk of the root, or of `wal_dir`, new messages wait;
            consumers and orders go on. On a disk of less than ten times as much: with less than a
            tenth free.
        min_free_percent: The same as a part of the disk; the larger of both counts.
        reserve_bytes: Size of a file on these disks that is given up when one is full up, so that
            it can be drained. On a small disk it is a twentieth at most.
        chain: Stores that a broker chains with its own (docs/store-interface.md): a call is
            complete when all have it. A mirror is another root, which can take this one's place;
            audit writes one line a call. With on_failure = "drop" the broker goes on without a
            member that fails or has max_waiting calls to do; with "end" it ends. A mirror more than
            max_distance calls behind at the start is refused. For example:

              chain = [{mirror = "/second/queues", on_failure = "end", max_distance = 100_000},
                       {audit = "/var/log/calls.jsonl", on_failure = "drop", max_waiting = 10_000}]
    """

    PLACE: ClassVar[str] = "[store]"

    ack: Annotated[str, Bounds(words=("wal", "delta", ""))] = ""
    wal_dir: str = ""
    copy_dir: str = ""
    lost_wal: str = ""
    wal_file_bytes: Annotated[int, Bounds(MIB)] = 32 * MIB
    max_wal_files: Annotated[int, Bounds(2)] = 8
    commit_interval_ms: AtLeast0 = 200
    max_commit_bytes: AtLeast1 = 32 * MIB
    segment_records: AtLeast1 = 1_000_000
    segment_commits: AtLeast1 = 200
    segment_hours: Annotated[float, Bounds(0)] = 24.0
    reader_grace_s: Seconds = 3600.0
    max_message_bytes: AtLeast0 = 128 * MIB
    max_pending_bytes: AtLeast1 = 256 * MIB
    cache_bytes: AtLeast0 = 64 * MIB
    fence_check_s: Annotated[float, Bounds(0.01)] = 10.0
    witness: str = ""
    witness_lease_s: Annotated[float, Bounds(0.1)] = 10.0
    standby_listen: str = ""
    peer: str = ""
    peer_ca: str = ""
    synchronous: Annotated[str, Bounds(words=("always", "when_there"))] = "when_there"
    standby_grace_s: Annotated[float, Bounds(0.1)] = 5.0
    fsync: bool = True
    member_grace_s: Seconds = 30.0
    min_free_bytes: AtLeast0 = 128 * MIB
    min_free_percent: Annotated[float, Bounds(0)] = 0.0
    reserve_bytes: AtLeast0 = 16 * MIB
    chain: tuple[ChainMemberConfig, ...] = ()

    def __post_init__(self) -> None:
        check_declared(self, self.PLACE)
        for name in ("wal_dir", "copy_dir"):
            check_is_folder_name(str(getattr(self, name)), name)
        named = [link.mirror or link.audit for link in self.chain]
        for name in named:
            if named.count(name) > 1:
                message = f"[store] chain names {name} twice: each member needs its own"
                raise InvalidRequest(message)


def read_config(path: Path) -> StoreConfig:
    """Settings from the `[store]` table of a TOML file; what it leaves out has its default.

    Raises:
        InvalidRequest: The file cannot be used, or a setting of it: see `read_section`.
    """
    rows = {"chain": lambda item: read_row(item, ChainMemberConfig)}
    return read_section(path, StoreConfig, StoreConfig, rows)
