"""A stream of events beside a store that commits, folds, trims, merges and drops, against a list.

The steps of the stream are those of Spark: it asks for the latest offset, writes it down, plans the
batch, reads it, and may die between any two of these; then a new reader does the batch again. The
steps of the root come between them, and between the looks of one read at the tables, too. Whatever
comes, the batches that were finished are the records of the log, each once, in their order.

The tables are real, and so are their files, which a merge and a vacuum take away at once.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from deltalake import DeltaTable, write_deltalake
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from pyspark_sparkstore import DefaultSource
from sparkstore.core.records import Kind
from sparkstore.spark_source import record_range
from sparkstore.spark_source.event_reader import EventStreamReader
from sparkstore.tables.root import open_or_create_root
from sparkstore.tables.snapshot import FileStats
from tests.support.histories.history_builder import STEPS, HistoryBuilder
from tests.support.histories.strategies import History, Row, build_history, fold_rows
from tests.support.roots.roots import append_journal, rows_table, state_table

Event = tuple[int, int, str, str | None]
Offset = dict[str, Any]
COUNTS = st.integers(1, 12)
SEGMENT_RECORDS = 9
_STEP = st.tuples(st.integers(0, len(STEPS) - 1), st.integers(0, 60), st.integers(0, 60))
_SOME = st.lists(_STEP, min_size=2, max_size=14)
_FENCING = [(STEPS.index(HistoryBuilder.publish), 0, 0), (STEPS.index(HistoryBuilder.open), 1, 2)]
"""A writer writes on from the place of the `opened` that fences it."""
HISTORIES = st.tuples(_SOME, _SOME, _SOME).map(
    lambda parts: build_history([*parts[0], *_FENCING, *parts[1], *_FENCING, *parts[2]])
)


class StreamBatch(NamedTuple):
    """Offsets that Spark has written down."""

    start: Offset
    end: Offset


def event(row: Row) -> Event:
    return row.position, row.epoch, row.record.kind.column, row.record.queue


class EventStreamMachine(RuleBasedStateMachine):
    """A root, a stream of it, and what the stream must have seen."""

    history: History
    reader: EventStreamReader
    offset: Offset

    @initialize(history=HISTORIES, first=COUNTS)
    def begin(self, history: History, first: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="sparkstore-stream-"))
        self.root = open_or_create_root(self.folder / "root")
        self.history, self.ghosts = history, [*history.ghosts]
        self.committed = self.moved = self.folded = self.number = self.trimmed = 0
        self.begins, self.lost = 1, 0
        self.batch: StreamBatch | None = None
        self.seen: list[Event] = []
        self.commit(first)
        self.restart()
        self.offset = self.reader.initialOffset()

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)

    # -- the root ----------------------------------------------------------------------------

    @rule(count=COUNTS)
    def commit(self, count: int) -> None:
        """The store commits records; a writer that was fenced writes on into its own segment."""
        rows = self.history.rows[self.committed : self.committed + count]
        self._append(rows)
        self.committed += len(rows)
        late = [ghost for ghost in self.ghosts if self._is_fenced(ghost)]
        self.ghosts = [ghost for ghost in self.ghosts if ghost not in late]
        self._append(late)

    @rule(merges=st.booleans())
    def open_anew(self, merges: bool) -> None:
        """The store commits up to the next `opened`; a late writer's rows are beyond the end."""
        left = self.history.rows[self.committed :]
        opened = [row.position for row in left if row.record.kind is Kind.OPENED]
        if opened:
            self.commit(opened[0] - self.committed)
        if merges:
            self.merge("journal")

    @rule(count=COUNTS, folds=st.booleans())
    def compact(self, count: int, folds: bool) -> None:
        """A compaction appends to history, and is killed or folds the state."""
        last = min(self.committed, self.moved + count)
        moved = self.history.rows[self.moved : last]
        for segment, rows in groupby(moved, lambda row: row.position // SEGMENT_RECORDS):
            table = rows_table([*rows], segment)
            shuffled = table.sort_by([("message_id", "descending"), ("kind", "ascending")])
            write_deltalake(str(self.root.history), shuffled, mode="append")
        self.moved = last
        if folds:
            self.folded = last
            self._publish()

    @rule(count=COUNTS)
    def trim(self, count: int) -> None:
        """The store lets go of what history and state have."""
        self.trimmed = min(self.folded, self.trimmed + count)
        DeltaTable(str(self.root.journal)).delete(f"position <= {self.trimmed}")

    @rule()
    def move_all(self) -> None:
        """A compaction moves all to history, and the store lets go of it."""
        self.compact(self.committed, folds=True)
        self.trim(self.committed)
        self.merge("journal")

    @rule(table=st.sampled_from(["journal", "history"]))
    def merge(self, table: str) -> None:
        """Small files become one, and the old ones are gone at once."""
        there = DeltaTable(str(self.root.table(table)))
        there.optimize.compact()
        there.vacuum(0, dry_run=False, enforce_retention_duration=False)

    @rule(count=COUNTS, keeps=st.integers(2, 5))
    @precondition(lambda self: self.folded > self.begins)
    def drop(self, count: int, keeps: int) -> None:
        """Retention raises the start of history, and then drops some records before it."""
        self.begins = min(self.folded, self.begins + count)
        self._publish()
        gone = f"position < {self.begins} AND position % {keeps} <> 0"
        DeltaTable(str(self.root.history)).delete(gone)
        DeltaTable(str(self.root.journal)).delete(f"position < {self.begins}")

    # -- the stream --------------------------------------------------------------------------

    @rule()
    def restart(self) -> None:
        """The query dies, and starts again: nothing is left but what was written down."""
        source = DefaultSource(
            {
                "path": str(self.root.path),
                "kind": "*",
                "columns": "position,epoch,kind,queue",
                "failOnDataLoss": "false",
            }
        )
        reader = source.streamReader(source.schema())
        assert isinstance(reader, EventStreamReader)
        self.reader = reader

    @rule(limit=st.one_of(st.just(ReadAllAvailable()), COUNTS.map(ReadMaxRows)))
    @precondition(lambda self: self.batch is None)
    def plan(self, limit: ReadLimit) -> None:
        """Spark asks how far the next batch goes, and writes it down."""
        end = self.reader.latestOffset(self.offset, limit)
        assert end["position"] <= self.committed
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self.committed
        wanted = min(self.committed, self.offset["position"] + most)
        assert end["position"] == max(wanted, self.offset["position"])
        if end != self.offset:
            self.batch = StreamBatch(self.offset, end)

    @rule(finishes=st.booleans(), between=st.lists(st.integers(0, 4), max_size=3))
    @precondition(lambda self: self.batch is not None)
    def read(self, finishes: bool, between: list[int]) -> None:
        """Tasks read the batch while the root moves; the query finishes it, or dies before."""
        assert self.batch is not None
        found: list[Event] = []
        with patch.object(record_range, "snapshot", self._moving(between)):
            for partition in self.reader.partitions(*self.batch):
                for batch in self.reader.read(partition):
                    found += [tuple(row.values()) for row in batch.to_pylist()]
        after, last = self.batch.start["position"], self.batch.end["position"]
        expected = [event(row) for row in self.history.rows[after:last]]
        kept = [each for each in expected if each[0] >= self.begins]
        assert found[len(found) - len(kept) :] == kept
        assert found == expected[len(expected) - len(found) :]
        if finishes:
            self.seen += found
            self.lost += len(expected) - len(found)
            self.offset, self.batch = self.batch.end, None
        else:
            self.restart()

    @invariant()
    def each_record_was_seen_once(self) -> None:
        positions = [position for position, *_ in self.seen]
        assert positions == sorted(set(positions))
        assert len(positions) + self.lost == (self.offset["position"] if self.seen else self.lost)

    @invariant()
    def the_end_is_the_last_record_that_counts(self) -> None:
        assert self.reader.reportLatestOffset()["position"] == self.committed

    def _is_fenced(self, ghost: Row) -> bool:
        there = self.history.rows[: self.committed]
        return any(row.position <= ghost.position and row.epoch > ghost.epoch for row in there)

    def _append(self, rows: list[Row]) -> None:
        for (segment, _epoch), group in groupby(
            rows, lambda row: (row.position // SEGMENT_RECORDS, row.epoch)
        ):
            self.number += 1
            append_journal(self.root, [*group], segment, self.number)

    def _publish(self) -> None:
        state = fold_rows(self.history.rows[: self.folded])
        segment = self.folded // SEGMENT_RECORDS
        table = state_table(state, segment=segment, history_start=self.begins)
        write_deltalake(str(self.root.state), table, mode="overwrite")

    def _moving(self, between: list[int]) -> Callable[[Path], list[FileStats]]:
        """Return a look at a table after which the root moves, as long as there are moves left."""
        moves, look = [*between], record_range.snapshot

        def moving(table: Path) -> list[FileStats]:
            files = look(table)
            if moves:
                move = moves.pop()
                (
                    self.move_all,
                    lambda: self.compact(5, folds=False),
                    lambda: self.merge("journal"),
                    lambda: self.merge("history"),
                    lambda: self.commit(3),
                )[move]()
            return files

        return moving


def test_rows_of_a_fenced_writer_are_never_read_and_never_the_end() -> None:
    """They are beyond the end, then beside what counts, then alone, as chance rarely has them."""
    machine = EventStreamMachine()
    try:
        machine.begin(build_history([(0, 1, 1), *_FENCING, (3, 2, 3), *_FENCING, (3, 4, 5)]), 1)
        for merges in (False, True):
            machine.open_anew(merges)
            machine.the_end_is_the_last_record_that_counts()
            machine.move_all()
            machine.restart()
            machine.the_end_is_the_last_record_that_counts()
            machine.commit(2)
            machine.plan(ReadAllAvailable())
            machine.read(True, [])
        assert len(machine.seen) == machine.committed
        machine.each_record_was_seen_once()
    finally:
        machine.teardown()


def test_a_stream_has_each_record_once_whatever_moves() -> None:
    examples = max(6, settings().max_examples // 8)
    run(EventStreamMachine, settings=settings(max_examples=examples, stateful_step_count=25))
