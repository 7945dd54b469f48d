"""Decide when a Delta commit is due, and in which segment it goes. Pure: no clock, no thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sparkstore.core.records import Run
from sparkstore.errors import StoreError

Fire = Callable[[StoreError | None], None]


@dataclass(slots=True)
class RecordGroup:
    """Records that were made durable together, or are to be (`ack = "delta"`).

    Attributes:
        first_position: Position of the first record.
        runs: The records, in the order of their positions.
        packed_bytes: Their size in the write-ahead log.
        on_commit: Called in order when a Delta commit holds the group.
    """

    first_position: int
    runs: Sequence[Run]
    packed_bytes: int
    on_commit: list[Fire] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class CommitLimits:
    """Limits of a Delta commit: it is due once one of them is reached.

    Attributes:
        interval_ms: Longest wait of a group.
        max_bytes: Packed bytes; also where one commit ends and the next begins.
    """

    interval_ms: int
    max_bytes: int


class CommitBatcher:
    """Collects groups and hands them out as commits, in order; a group is never split."""

    def __init__(self, limits: CommitLimits) -> None:
        self._limits = limits
        self._groups: deque[tuple[int, RecordGroup]] = deque()
        self.waiting_bytes = 0
        self._is_urgent = False

    def add(self, group: RecordGroup, *, now_ms: int) -> None:
        """Queue one group of records for the next commit."""
        self._groups.append((now_ms, group))
        self.waiting_bytes += group.packed_bytes

    def hurry(self) -> None:
        """Make everything that waits due now: somebody asked for a flush."""
        self._is_urgent = True

    def due_at_ms(self, *, now_ms: int) -> int | None:
        """Return the time at which a commit is due; None while nothing waits."""
        if not self._groups:
            return None
        if self._is_urgent or self.waiting_bytes >= self._limits.max_bytes:
            return now_ms
        return self._groups[0][0] + self._limits.interval_ms

    @property
    def oldest_at_ms(self) -> int | None:
        """Return the time at which the longest waiting group came; None while nothing waits."""
        groups = self._groups
        return groups[0][0] if groups else None

    def take(self) -> list[RecordGroup]:
        """The groups of the next commit, oldest first: at least one if any waits."""
        taken: list[RecordGroup] = []
        size = 0
        while self._groups and (not taken or size < self._limits.max_bytes):
            _, group = self._groups.popleft()
            taken.append(group)
            size += group.packed_bytes
        self.waiting_bytes -= size
        self._is_urgent = self._is_urgent and bool(self._groups)
        return taken


@dataclass(frozen=True, slots=True)
class SegmentLimits:
    """Limits of a segment: it closes once one of them is reached.

    Attributes:
        records: Rows in it.
        commits: Delta commits in it: each is a file until the segment is merged.
        age_ms: Since its first commit.
    """

    records: int
    commits: int
    age_ms: int


class Segments:
    """Numbers the segment of each commit."""

    def __init__(self, limits: SegmentLimits, first: int) -> None:
        self._limits = limits
        self.current = first
        self._records = self._commits = self._opened_at_ms = 0
        self._packed_bytes = 0

    def add(self, records: int, packed_bytes: int, *, now_ms: int) -> None:
        """Count one commit into the open segment."""
        if not self._commits:
            self._opened_at_ms = now_ms
        self._records += records
        self._commits += 1
        self._packed_bytes += packed_bytes

    def roll(self, *, now_ms: int) -> ClosedSegment | None:
        """Close the current segment if a limit is reached; what was closed."""
        is_due = self._commits and (
            self._records >= self._limits.records
            or self._commits >= self._limits.commits
            or now_ms - self._opened_at_ms >= self._limits.age_ms
        )
        if not is_due:
            return None
        closed = ClosedSegment(self.current, self._commits, self._packed_bytes)
        self.current += 1
        self._records = self._commits = self._packed_bytes = 0
        return closed


@dataclass(frozen=True, slots=True)
class ClosedSegment:
    """A segment that gets no more rows: its number, its Delta commits, its packed bytes."""

    segment: int
    commits: int
    packed_bytes: int

    @property
    def is_worth_merging(self) -> bool:
        """True if its files are so small that rewriting them costs little and saves many."""
        return self.commits > 1 and self.packed_bytes < self.commits * _SMALL_FILE_BYTES


_SMALL_FILE_BYTES = 256 * 1024
