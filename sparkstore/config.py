"""Settings of a store, read from TOML. Settings are data: no clock, no connection, no session."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from sparkstore.errors import InvalidRequest
from sparkstore.folder_name import check_is_folder_name
from sparkstore.settings_file import check_kind, check_names, read_section, told_of

_MIB = 1 << 20


_LEAST: dict[str, float] = {
    "wal_file_bytes": _MIB,
    "max_wal_files": 2,
    "commit_interval_ms": 0,
    "max_commit_bytes": 1,
    "segment_records": 1,
    "segment_commits": 1,
    "segment_hours": 0,
    "reader_grace_s": 0,
    "max_message_bytes": 0,
    "max_pending_bytes": 1,
    "cache_bytes": 0,
    "fence_check_s": 0.01,
    "witness_lease_s": 0.1,
    "member_grace_s": 0,
    "min_free_bytes": 0,
    "min_free_percent": 0,
    "reserve_bytes": 0,
}


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

    mirror: str = ""
    audit: str = ""
    on_failure: str = "end"
    max_waiting: int = 10_000
    max_distance: int = 100_000

    def __post_init__(self) -> None:
        if bool(self.mirror) is bool(self.audit):
            raise InvalidRequest('[store] chain: say mirror = "FOLDER" or audit = "FILE" of each')
        check_is_folder_name(self.audit, "[store] chain: audit")
        if self.on_failure not in {"end", "drop"}:
            message = f"[store] chain: on_failure is {self.on_failure!r}: say end or drop"
            raise InvalidRequest(message)
        for name in ("max_waiting", "max_distance"):
            if getattr(self, name) < 1:
                message = f"[store] chain: {name} is {getattr(self, name)}: it must be at least 1"
                raise InvalidRequest(message)


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """Settings of the log and its tables; `conf/sparkstore.toml` has each with its default.

    Attributes:
        ack: `wal`: complete when the write-ahead log has it. `delta`: when the Delta commit landed;
            for a root given as a URI. Empty: `delta` for a URI, `wal` for a folder.
        wal_dir: Folder of the write-ahead log; empty: `wal` in the root.
        copy_dir: Of a root in a bucket: folder of its working copy here; empty: one in the user's
            cache, named by the URI.
        lost_wal: Of a root in a bucket: id of a write-ahead log that is lost, whatever it held.
        wal_file_bytes: Size of one write-ahead log file.
        max_wal_files: With all of them full of records that Delta does not hold, calls get
            `Unavailable`.
        commit_interval_ms: Longest time a record waits for its Delta commit.
        max_commit_bytes: A Delta commit is due at this size, too.
        segment_records: A segment closes after so many records,
        segment_commits: or Delta commits,
        segment_hours: or hours.
        reader_grace_s: How long files that a query may still read are kept, and versions of the
            journal that a job may have begun with (of them 3,000 at most).
        max_message_bytes: A larger message is refused.
        max_pending_bytes: Calls get `Unavailable` while so much waits for the write-ahead log, or,
            with `ack = "delta"`, for its Delta commit.
        cache_bytes: Content of waiting messages kept in memory.
        fence_check_s: How often a store looks whether a replica was promoted in its place: so long
            may it go on after that.
        witness: Of a root on a disk that has replicas: a prefix of a bucket, or a folder that all
            machines have, where one object says which of them may serve. `none`: it has one no
            more. Empty: as before.
        witness_lease_s: How long the store goes on when the witness does not answer; so long waits
            a promotion.
        fsync: False only to measure what fsync costs; never in service.
        member_grace_s: A member of the store's service that is gone so long loses what it acquired.
        min_free_bytes: With less free on the disk of the root, or of `wal_dir`, new messages get
            `Unavailable`; of a disk of less than ten times as much, with less than a tenth.
        min_free_percent: The same as a part of the disk; the larger of both counts.
        reserve_bytes: Size of a file beside them that is given up when a disk is full up; of a
            small disk a twentieth at most.
        chain: Stores that a broker chains with its own, which is the first.
    """

    ack: str = ""
    wal_dir: str = ""
    copy_dir: str = ""
    lost_wal: str = ""
    wal_file_bytes: int = 32 * _MIB
    max_wal_files: int = 8
    commit_interval_ms: int = 200
    max_commit_bytes: int = 32 * _MIB
    segment_records: int = 1_000_000
    segment_commits: int = 200
    segment_hours: float = 24.0
    reader_grace_s: float = 3600.0
    max_message_bytes: int = 128 * _MIB
    max_pending_bytes: int = 256 * _MIB
    cache_bytes: int = 64 * _MIB
    fence_check_s: float = 10.0
    witness: str = ""
    witness_lease_s: float = 10.0
    fsync: bool = True
    member_grace_s: float = 30.0
    min_free_bytes: int = 128 * _MIB
    min_free_percent: float = 0.0
    reserve_bytes: int = 16 * _MIB
    chain: tuple[ChainMemberConfig, ...] = ()

    def __post_init__(self) -> None:
        for each in fields(self):
            _check_kind(each.name, getattr(self, each.name), each.default)
        if self.ack not in {"", "wal", "delta"}:
            message = f"ack is {self.ack!r}: say wal, delta, or leave it out"
            raise InvalidRequest(message)
        for name, bound in _LEAST.items():
            if not getattr(self, name) >= bound:  # so that not-a-number is refused, too
                message = f"{name} is {getattr(self, name)}: it must be at least {bound}"
                raise InvalidRequest(message)
        for name in ("wal_dir", "copy_dir"):
            check_is_folder_name(str(getattr(self, name)), name)
        named = [each.mirror or each.audit for each in self.chain]
        for name in named:
            if named.count(name) > 1:
                message = f"[store] chain names {name} twice: each member needs its own"
                raise InvalidRequest(message)


def _check_kind(name: str, value: object, default: object) -> None:
    """Refuse a value of another type where Python code gives it: None would be a folder's name."""
    if isinstance(default, str) and not isinstance(value, str | Path):
        message = f"{name} is {value!r}: say a text"
        raise InvalidRequest(message)
    if isinstance(default, int | float) and not isinstance(value, int | float):
        message = f"{name} is {value!r}: say a number"
        raise InvalidRequest(message)


def read_config(path: Path) -> StoreConfig:
    """Settings from the `[store]` table of a TOML file; what it leaves out has its default.

    Raises:
        InvalidRequest: No such file, not TOML, an unknown setting, or a value of the wrong type.
    """
    with told_of(path):
        values = read_section(path, "store", StoreConfig())
        values["chain"] = tuple(map(_chain_member, values.get("chain", [])))
        return StoreConfig(**values)


def _chain_member(item: object) -> ChainMemberConfig:
    if not isinstance(item, Mapping):
        message = f'[store] chain: {item!r} is no member: say {{mirror = "FOLDER"}} of each'
        raise InvalidRequest(message)
    known: dict[str, Any] = {each.name: type(each.default) for each in fields(ChainMemberConfig)}
    check_names(item, known, "key", "of [store] chain")
    for name, value in item.items():
        check_kind("store", f"chain: {name}", value, known[name])
    return ChainMemberConfig(**item)
