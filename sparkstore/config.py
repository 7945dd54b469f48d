"""Settings of a store, read from TOML. Settings are data: no clock, no connection, no session."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sparkstore.errors import InvalidRequest
from sparkstore.settings_file import read_section, told_of

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
}


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """How the log and its tables behave; `conf/sparkstore.toml` has each with its default.

    Attributes:
        ack: `wal`: complete when the write-ahead log has it. `delta`: when the Delta commit landed;
            for a root given as a URI. Empty: `delta` for a URI, `wal` for a folder.
        wal_dir: Folder of the write-ahead log; empty: `wal` in the root.
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
        fsync: False only to measure what fsync costs; never in service.
    """

    ack: str = ""
    wal_dir: str = ""
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
    fsync: bool = True

    def __post_init__(self) -> None:
        if self.ack not in {"", "wal", "delta"}:
            message = f"ack is {self.ack!r}: say wal, delta, or leave it out"
            raise InvalidRequest(message)
        for name, bound in _LEAST.items():
            if not getattr(self, name) >= bound:  # so that not-a-number is refused, too
                message = f"{name} is {getattr(self, name)}: it must be at least {bound}"
                raise InvalidRequest(message)


def read_config(path: Path) -> StoreConfig:
    """Settings from the `[store]` table of a TOML file; what it leaves out has its default.

    Raises:
        InvalidRequest: No such file, not TOML, an unknown setting, or a value of the wrong type.
    """
    with told_of(path):
        return StoreConfig(**read_section(path, "store", StoreConfig()))
