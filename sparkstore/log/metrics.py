"""Counters of a log, for a broker's metrics: plain numbers, each written by one thread."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class LogMetrics:
    """Since the log was opened.

    Attributes:
        groups: Syncs of the write-ahead log.
        records: Records made durable.
        packed_bytes: Their bytes.
        delta_commits: Delta commits that landed.
        delta_rows: Rows in them.
        delta_commit_s: Time they took, Arrow included.
        delta_error: Why the newest try failed; empty while they work.
    """

    groups: int = 0
    records: int = 0
    packed_bytes: int = 0
    delta_commits: int = 0
    delta_rows: int = 0
    delta_commit_s: float = 0.0
    delta_error: str = ""

    def synced(self, records: int, packed_bytes: int) -> None:
        """One group is on disk."""
        self.groups += 1
        self.records += records
        self.packed_bytes += packed_bytes

    def committed(self, rows: int, took_s: float) -> None:
        """One Delta commit landed."""
        self.delta_commits += 1
        self.delta_rows += rows
        self.delta_commit_s += took_s

    def commit_failed(self, reason: str) -> None:
        """A try of a Delta commit failed."""
        self.delta_error = reason

    def commit_worked(self) -> None:
        """They work again."""
        self.delta_error = ""
