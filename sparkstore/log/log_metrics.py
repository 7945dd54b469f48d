"""Counters of a log, for a broker's metrics: plain numbers, each written by one thread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from sparkstore.metrics.counters import counted
from sparkstore.metrics.histograms import WRITE_BOUNDS_S, Histogram, timed


class LogBacklog(NamedTuple):
    """Records that a log has accepted and that are still on their way to Delta.

    Attributes:
        unsynced_bytes: Packed bytes that wait for a sync.
        uncommitted_bytes: Packed bytes that wait for their Delta commit.
        wal_files: Files of the write-ahead log, in use or free; 0 where there is none.
        unshipped_bytes: Packed bytes that were acknowledged and are not in the bucket yet: what
            this disk alone holds. 0 for a root on a disk, and with `ack = "delta"`.
        unshipped_age_s: How long the oldest of them has been waiting.
        witness_left_s: How long the lease at the root's witness runs unless it is renewed; None:
            it has none.
    """

    unsynced_bytes: int
    uncommitted_bytes: int
    wal_files: int
    unshipped_bytes: int = 0
    unshipped_age_s: float = 0.0
    witness_left_s: float | None = None


@dataclass(slots=True)
class LogMetrics:
    """Counters of a log since it was opened.

    Attributes:
        delta_error: Why the newest try of a Delta commit failed; empty while they work.
    """

    groups: int = counted("Syncs of the write-ahead log.")
    records: int = counted("Records made durable.")
    packed_bytes: int = counted("Bytes of the records made durable.")
    delta_commits: int = counted("Delta commits that landed.")
    delta_rows: int = counted("Rows in the Delta commits that landed.")
    delta_commit_s: float = counted("Seconds that the Delta commits took.", 0.0)
    sync_duration_seconds: Histogram = timed(
        "Seconds that one write and sync of the write-ahead log took.", WRITE_BOUNDS_S
    )
    delta_commit_duration_seconds: Histogram = timed(
        "Seconds that one Delta commit took, with its retries.", WRITE_BOUNDS_S
    )
    delta_error: str = ""

    def synced(self, records: int, packed_bytes: int) -> None:
        """Count one group that is on disk."""
        self.groups += 1
        self.records += records
        self.packed_bytes += packed_bytes

    def committed(self, rows: int, took_s: float) -> None:
        """Count one Delta commit that landed."""
        self.delta_commits += 1
        self.delta_rows += rows
        self.delta_commit_s += took_s
        self.delta_commit_duration_seconds.observe(took_s)

    def commit_failed(self, reason: str) -> None:
        """Count a failed try of a Delta commit."""
        self.delta_error = reason

    def commit_worked(self) -> None:
        """Note that commits to Delta work again."""
        self.delta_error = ""
