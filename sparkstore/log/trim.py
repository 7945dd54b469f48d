"""Let go of journal segments that history and state hold durably (ARCHITECTURE: Rule 5).

In this order:

1. look at history and state as their marks have them
2. count history: it must hold every position up to P of that state
3. drop closed segments whose positions are all ≤ P, and that no commit touched for
   `reader_grace_s`

A power cut between any two of these leaves a journal that holds more than it must, never less.

Decision: nothing of history or state is fsynced here. Whoever wrote it does that and marks it; had
its fsync failed, a second one from here would say yes (`file_rewrite`). So what a job that was
killed left without a mark counts only after the next job, or the next start, has healed it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from sparkstore.config import StoreConfig
from sparkstore.errors import Unavailable
from sparkstore.log.journal import Journal
from sparkstore.tables.delta_files import newest_version
from sparkstore.tables.marks import read_marks
from sparkstore.tables.root import Root

_log = logging.getLogger(__name__)

_LONGEST_INTERVAL_S = 30.0


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """A segment of the journal: its number, its largest position, its newest file (epoch s)."""

    segment: int
    last_position: int
    changed_at_s: float


def plan(
    segments: Iterable[SegmentFacts],
    *,
    open_segment: int,
    folded_position: int,
    now_s: float,
    grace_s: float,
) -> list[int]:
    """Segments to drop: closed, folded, and older than any query that may be reading them."""
    return sorted(
        facts.segment
        for facts in segments
        if facts.segment < open_segment
        and facts.last_position <= folded_position
        and now_s - facts.changed_at_s >= grace_s
    )


class Trimmer:
    """Runs on the committer thread."""

    def __init__(self, root: Root, journal: Journal, config: StoreConfig) -> None:
        self._root, self._journal, self._config = root, journal, config
        self._interval_s = min(_LONGEST_INTERVAL_S, max(config.reader_grace_s, 1.0))
        self._ran_at_s = 0.0
        self._vacuum_at_s = 0.0

    def is_due(self, *, now_s: float) -> bool:
        """True at most every `reader_grace_s`, at least every 30 s."""
        return abs(now_s - self._ran_at_s) >= self._interval_s

    def run(self, open_segment: int, *, now_s: float) -> None:
        """Trim if there is anything to trim.

        Raises:
            Unavailable: A table could not be read, or the drop did not land; nothing is lost.
            CorruptData: History or state is broken; nothing was dropped.
        """
        self._ran_at_s = now_s
        if newest_version(self._root.state) <= 0 or open_segment == 0:
            return
        try:
            segments = _segments(DeltaTable(str(self._root.journal)))
            closed = [facts for facts in segments if facts.segment < open_segment]
            folded = self._durably_folded() if closed else 0
        except (DeltaError, OSError, pa.ArrowException, TypeError) as reason:
            message = f"cannot trim {self._root.journal}: {reason}"
            raise Unavailable(message) from reason
        dropped = plan(
            closed,
            open_segment=open_segment,
            folded_position=folded,
            now_s=now_s,
            grace_s=self._config.reader_grace_s,
        )
        if dropped:
            self._journal.drop_segments(dropped)
            self._vacuum_at_s = now_s + self._config.reader_grace_s
            _log.info("trimmed journal segments %s: history holds them", dropped)
        elif self._vacuum_at_s and now_s >= self._vacuum_at_s:
            self._journal.vacuum(self._config.reader_grace_s)
            self._vacuum_at_s = 0.0

    def _durably_folded(self) -> int:
        """The position up to which history and state would survive a power cut; 0 if unsure."""
        publisher = self._journal.publisher
        # What a copy has of the jobs' tables is in the bucket, so it is durable.
        marked = publisher.jobs.versions if publisher else read_marks(self._root).versions
        if not {"history", "state"} <= marked.keys():
            return 0
        state = DeltaTable(str(self._root.state), version=marked["state"])
        history = DeltaTable(str(self._root.history), version=marked["history"])
        meta = state.to_pyarrow_table(
            columns=["position", "history_start"], filters=[("part", "=", "meta")]
        )
        if not meta.num_rows:
            return 0
        (row,) = meta.to_pylist()
        held = history.to_pyarrow_dataset().scanner(
            columns=["position"],
            filter=(pc.field("position") >= (row["history_start"] or 1))
            & (pc.field("position") <= row["position"]),
        )
        expected = row["position"] - (row["history_start"] or 1) + 1
        count = held.count_rows()
        if count != expected:
            _log.error("history holds %d of %d positions: not trimmed", count, expected)
            return 0
        return int(row["position"])


def _segments(journal: DeltaTable) -> list[SegmentFacts]:
    actions = journal.get_add_actions(flatten=True)
    columns = {name: actions.column(name).to_pylist() for name in _STATISTICS}
    segments: dict[int, SegmentFacts] = {}
    for segment, last, changed in zip(*columns.values(), strict=True):
        known = segments.get(segment)
        facts = SegmentFacts(int(segment), int(last), _seconds(changed))
        if known is not None:
            facts = SegmentFacts(
                known.segment,
                max(known.last_position, facts.last_position),
                max(known.changed_at_s, facts.changed_at_s),
            )
        segments[facts.segment] = facts
    return [*segments.values()]


_STATISTICS = ("partition.segment", "max.position", "modification_time")


def _seconds(changed: object) -> float:
    timestamp = getattr(changed, "timestamp", None)
    return float(timestamp()) if timestamp else float(changed) / 1000  # type: ignore[arg-type]
