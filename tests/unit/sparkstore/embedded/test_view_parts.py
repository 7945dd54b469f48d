"""The parts of a view have each row once, whatever happens between planning and reading them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.serializers import CPickleSerializer

from sparkstore.core.annotations import plain_time
from sparkstore.core.records import message_enqueued, opened, queue_created
from sparkstore.embedded.answers import part_batches, view_batches, view_schema
from sparkstore.embedded.duckdb_views import moment_of
from sparkstore.embedded.plain_entries import Condition, PlainEntries
from sparkstore.embedded.view_parts import ViewPart, parts_of
from sparkstore.errors import Unavailable
from sparkstore.tables.root import Root
from sparkstore.tables.schema import STATE
from tests.support.histories.bundles import bundled, drawn_history, drawn_layers
from tests.support.histories.histories import History, Row, fold_rows
from tests.support.histories.seeds import seed
from tests.support.histories.timed_records import HEADER, beginning, put, told, took
from tests.support.roots.roots import append_journal, build_root, rows_table, state_table

VIEW = "queue_messages"
NARROW = ["queue", "message_id", "position", "enqueued_at", "acquired_by", "delivery_count"]
CHOICES = (
    NARROW,
    [],
    [*NARROW, "annotations", "death_reason", "visible_at"],
    [*NARROW, "subject", "properties", "header"],
    ["message_id", "priority", "expires_at", "message_bytes", "body"],
)
"""Columns of entries alone, none, and those for which more has to be looked at."""


class MovedRoot:
    """A root of chance, which moves on as a store and its jobs move one on.

    Attributes:
        root: Where it is.
        history: All that happened so far.
    """

    def __init__(self, chance: random.Random, folder: Path) -> None:
        """Tell a dozen histories, cut anywhere; a state tells who brought what content, or not."""
        self._chance = chance
        self.history = bundled(chance, [drawn_history(chance, 50) for _ in range(12)])
        self.layers = drawn_layers(chance, self.history)
        self.root = build_root(folder / "root", self.layers)
        if self.layers.state_position:
            self._fold(self.layers.state_position)

    def move_on(self) -> None:
        """Write more records, fold all, move all to history, and trim the journal."""
        last = self.history.last_position
        rows, epoch = self.history.rows, self.history.rows[-1].epoch
        found = [queue_created(1, "new", "{}"), message_enqueued(2, "new", 999_999, HEADER, b"new")]
        more = [rows[-1]._replace(position=last + 1 + n, record=r) for n, r in enumerate(found)]
        self.history = History([*rows, *more], self.history.ghosts)
        append_journal(self.root, more, self.layers.segment(last), 10_000 + epoch)
        moved = self.history.rows[self.layers.history_position :]
        write_deltalake(str(self.root.history), rows_table(moved, 9), mode="append")
        self._fold(self.history.last_position)
        DeltaTable(str(self.root.journal)).delete()

    def _fold(self, position: int) -> None:
        rows = self.history.rows[:position]
        told = state_table(fold_rows(rows), segment=self.layers.segment(position)).to_pylist()
        forgets = self._chance.random() < 0.2
        for row in told:
            if row["part"] == "entry":
                record = rows[row["position"] - 1].record
                is_whole = record.message is not None and record.message.protocol is not None
                row["segment"] = None if forgets else int(is_whole)
        table = pa.Table.from_pylist(told, STATE)
        write_deltalake(str(self.root.state), table, mode="overwrite")


def read(
    parts: Sequence[ViewPart], columns: Sequence[str], conditions: Sequence[Condition] = ()
) -> Counter[str]:
    return counted(
        (batch for part in parts for batch in part_batches(part, columns, conditions)), columns
    )


def read_whole(
    root: Root, view: str, columns: Sequence[str], as_of: int | None = None
) -> Counter[str]:
    return counted(view_batches(root, view, columns, as_of=as_of), columns)


def counted(batches: Iterable[pa.RecordBatch], columns: Sequence[str]) -> Counter[str]:
    """Count rows by their text."""
    found = Counter[str]()
    for batch in batches:
        if columns:
            found.update(map(repr, batch.select(columns).to_pylist()))
        else:
            found[""] += batch.num_rows
    return found


def cut(
    root: Root, view: str, columns: Collection[str], rows: int, as_of: int | None = None
) -> list[ViewPart]:
    """Cut a view, and send the parts to another process, as Spark does."""
    parts = parts_of(view, moment_of(root, as_of), columns, rows=rows)
    spark = CPickleSerializer()
    found: list[ViewPart] = spark.loads(spark.dumps(parts))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("fixed", [1, None])
def test_the_parts_have_each_row_once_while_the_root_moves_on(
    tmp_path: Path, fixed: int | None
) -> None:
    """Now and as of a position; the rows are those that one task read when the parts were made."""
    number = seed() if fixed is None else fixed
    print(f"seed {number}")
    chance = random.Random(number)
    moved = MovedRoot(chance, tmp_path)
    root, end = moved.root, moved.history.last_position
    choices = [(VIEW, columns) for columns in (*CHOICES, view_schema(root, VIEW).names)]
    choices.append(("message_history", view_schema(root, "message_history").names))
    planned = []
    for as_of in (None, chance.randint(max(moved.layers.state_position, 1), end)):
        for view, columns in choices:
            wanted = read_whole(root, view, columns, as_of)
            parts = cut(root, view, columns, chance.choice([1, 5, 1_000]), as_of)
            planned.append((parts, columns, wanted))
    moved.move_on()
    assert any(wanted for _, _, wanted in planned)
    for parts, columns, wanted in planned:
        assert read(parts, columns) == wanted
    for view, columns in choices:
        assert read(cut(root, view, columns, 3), columns) == read_whole(root, view, columns)


START = beginning()


def test_messages_that_only_came_need_no_query(tmp_path: Path) -> None:
    """Those in state, in history after P, and in the journal; one that went on needs one."""
    root = told(
        tmp_path / "told",
        [*START, put(1, 10), put(2, 20), put(3, 30), took(2, 40), put(4, 50)],
        state=4,
        history=6,
    )
    moment = moment_of(root)
    plain = PlainEntries(moment, ["message_id"])
    tables = [pa.Table.from_batches(plain.of_state(moment.state)), *plain_tail(plain)]
    assert sorted(pa.concat_tables(tables)["message_id"].to_pylist()) == [1, 3, 4]
    assert plain.left() is not None
    before = PlainEntries(moment_of(root, 6), ["message_id"])
    assert before.left() is None


def plain_tail(plain: PlainEntries) -> list[pa.Table]:
    return [pa.Table.from_batches([batch]) for batch in plain.of_tail()]


def test_conditions_narrow_what_is_read_and_lose_no_row(tmp_path: Path) -> None:
    root = told(
        tmp_path / "told", [*START, *(put(n, 10 * n) for n in range(1, 9))], state=6, history=8
    )
    columns = ["message_id", "queue", "position"]
    for conditions, wanted in (
        ([Condition("position", ">", 6)], [4, 5, 6, 7, 8]),
        ([Condition("queue", "=", "q"), Condition("message_id", "<=", 2)], [1, 2]),
        ([Condition("queue", "=", "none")], []),
    ):
        for asked in (columns, [*columns, "body"]):
            parts = cut(root, VIEW, asked, 1)
            batches = [b for part in parts for b in part_batches(part, asked, conditions)]
            ids = [each for batch in batches for each in batch["message_id"].to_pylist()]
            assert sorted(ids) == wanted


def test_annotations_of_a_message_of_the_tail_are_there(tmp_path: Path) -> None:
    delayed = message_enqueued(20, "q", 2, HEADER, b"abc", detail=plain_time(30_000))
    root = told(tmp_path / "told", [*START, put(1, 10), delayed])
    for columns in (["message_id", "visible_at"], ["message_id", "visible_at", "body"]):
        found = read(cut(root, VIEW, columns, 1), columns)
        assert found == read_whole(root, VIEW, columns)
        assert sum("None" not in row for row in found) == 1


def test_what_a_fenced_writer_wrote_is_nobodys_content(tmp_path: Path) -> None:
    """Its record has the position of one that counts, in the journal."""
    root = told(tmp_path / "told", [*START, put(1, 10)])
    ghost = Row(6, 1, message_enqueued(20, "q", 2, HEADER, b"not"))
    ours = [Row(5, 2, opened(2, "w2")), Row(6, 2, message_enqueued(30, "q", 3, HEADER, b"ours"))]
    append_journal(root, [ghost], 0, 90)
    append_journal(root, ours, 0, 91)
    columns = ["message_id", "body"]
    found = read(cut(root, VIEW, columns, 1), columns)
    assert found == read_whole(root, VIEW, columns)
    assert found.total() == 2


def test_a_part_whose_files_were_deleted_says_what_to_do(tmp_path: Path) -> None:
    root = told(
        tmp_path / "told", [*START, put(1, 10), put(2, 20), took(2, 30)], state=4, history=4
    )
    parts = cut(root, VIEW, ["message_id"], 1)
    for path in [path for part in parts for path in part.moment.state]:
        path.path.unlink(missing_ok=True)
    with pytest.raises(Unavailable, match="reader_grace_s is over: load it anew"):
        read(parts, ["message_id"])
