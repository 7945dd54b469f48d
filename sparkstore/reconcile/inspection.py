"""Look at a root: all its tables as they were at one moment, under names of this look alone.

Why a serving store cannot make it lie: the caller holds the jobs' lease, so history and state do
not move. The journal does: the store appends, merges, and trims what history has. So recovery is
read first and ends at position F; then the journal's narrow columns are read once and kept; and
everything is compared up to F. What a trim took in between is at or before P, where nobody looks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from uuid import uuid4

import pyarrow as pa
from deltalake.exceptions import DeltaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from sparkstore.compaction.state_fold import Meta, read_meta
from sparkstore.errors import StoreError, Unavailable
from sparkstore.reconcile.lost_files import lost_of, without
from sparkstore.reconcile.table_copies import TableCopy, entries, others, record_digest, wiring
from sparkstore.recovery.recovery import RecoveredRoot, recover
from sparkstore.tables.lock import is_held
from sparkstore.tables.root import TABLES, Root
from sparkstore.tables.schema import NARROW_COLUMNS
from sparkstore.tables.snapshot import FileStats, snapshot
from sparkstore.views.spark_tables import statement, translated

MAX_RECOVERED = 1_000_000
"""Rows of state and records after P that are folded in this process and sent to Spark, 1 KB each in
memory; with more, the folds of Spark alone are compared, and a finding says so."""
_TRIES = 3


class Names:
    """Temporary views of one look; `close` drops them."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._suffix = uuid4().hex[:12]
        self._views: list[str] = []

    def add(self, name: str, frame: DataFrame) -> str:
        """Give a frame a name for SQL."""
        view = f"reconcile_{name}_{len(self._views)}_{self._suffix}"
        frame.createOrReplaceTempView(view)
        self._views.append(view)
        return view

    def keep(self, name: str, frame: DataFrame) -> str:
        """Compute a frame now, once, and give what came out a name.

        Decision: a local checkpoint and not `persist`: the views' folds are plans of hundreds of
        operators, and every query over a persisted one plans it again and compares it with
        everything that is persisted. A checkpoint is a plan of one operator.
        """
        return self.add(name, frame.localCheckpoint())

    def close(self) -> None:
        """Drop all temporary views that were named."""
        while self._views:
            self.spark.catalog.dropTempView(self._views.pop())


class Folds:
    """The views' folds of one side, each computed when it is first asked for; repairs rarely do.

    All checks of a look have the same, computed once. Who changes history or state within a look
    must not ask for it afterwards.
    """

    def __init__(self, names: Names, side: TableCopy) -> None:
        self._names, self._side = names, side

    @cached_property
    def kept(self) -> tuple[list[str], str]:
        """Names of entries, wiring, others; empty tables, and why, if the views refuse."""
        names = self._names
        frames = [fold(names.spark, self._side) for fold in (entries, wiring, others)]
        try:
            with translated("the views do not answer"):
                return [names.keep("folded", frame) for frame in frames], ""
        except Unavailable as reason:
            return [names.add("refused", frame.limit(0)) for frame in frames], str(reason)


@dataclass(frozen=True, slots=True)
class Look:
    """The tables as one look read them; every name is of a temporary view that ends with the look.

    Attributes:
        root: The root that was read.
        names: To add more.
        lost: By table, data files that it names and that are not whole, and why: left out here.
        meta: The meta row of `state`.
        history_end: H, the largest position in history, 0 if it is empty.
        end: F, the largest position that is compared.
        recovered: What a broker would start with; None if that failed or is too much.
        recovery_failure: Why it failed; empty if it did not.
        side: The three tables, the journal up to F.
        counting: Rows of the journal that count, up to F, with `digest` and `piece_bytes`.
        fenced: Rows of the journal that do not count.
        records: Every record up to F once, narrow.
        folds: What the views fold of `side`.
        is_written: A store may have the root open, so what is staged or held may be in use.
    """

    root: Root
    names: Names
    lost: Mapping[str, Mapping[str, str]]
    meta: Meta
    history_end: int
    end: int
    recovered: RecoveredRoot | None
    recovery_failure: str
    side: TableCopy
    counting: str
    fenced: str
    records: str
    folds: Folds
    is_written: bool

    @property
    def entries(self) -> str:
        """Every entry at F, by the views' fold; empty if they refuse to answer."""
        return self.folds.kept[0][0]

    @property
    def wiring(self) -> str:
        """Every queue, exchange, binding and configured object at F, the same."""
        return self.folds.kept[0][1]

    @property
    def others(self) -> str:
        """Every member, staged message, link and remembered delivery at F, the same."""
        return self.folds.kept[0][2]

    @property
    def refusal(self) -> str:
        """Return the reason why the views refuse; empty if they answer."""
        return self.folds.kept[1]

    @property
    def start(self) -> int:
        """Positions are gapless from here on."""
        return self.meta.history_start

    def rows(self, name: str, **values: object) -> DataFrame:
        """The query in `sql/<name>.sql` over this look."""
        views = self.side.names() | {
            "records": self.records,
            "fenced": self.fenced,
            "start": str(self.start),
            "end": str(self.end),
        }
        return self.names.spark.sql(
            statement(name, views | {key: str(value) for key, value in values.items()})
        )

    def held(self) -> DataFrame:
        """Entries that somebody holds who cannot come back for them."""
        return self.rows("reconcile_held", entries=self.entries, others=self.others)

    def lost_content(self) -> DataFrame:
        """Messages on a queue whose header is nowhere, or not all of whose body is there."""
        ids = "coalesce(min(message_id), 0) AS least", "coalesce(max(message_id), 0) AS largest"
        ends = self.names.spark.table(self.entries).selectExpr(*ids).collect()[0]
        return self.rows(
            "reconcile_content", entries=self.entries, least=ends.least, largest=ends.largest
        )


def digests(spark: SparkSession, table: str) -> DataFrame:
    """Position and hash of every row of a table of records."""
    return spark.table(table).select("position", record_digest().alias("digest"))


@contextmanager
def look(spark: SparkSession, root: Root) -> Iterator[Look]:
    """Read a root once. The caller holds its jobs' lease.

    Raises:
        StoreError: A table does not open.
    """
    names = Names(spark)
    try:
        yield _look(root, names)
    finally:
        names.close()


def _look(root: Root, names: Names) -> Look:
    spark = names.spark
    recovered, failure = _recover(root)
    lost = {table: lost_of(root, table) for table in TABLES}
    tables = {table: names.add(table, without(spark, root, table, lost[table])) for table in TABLES}
    meta = _meta(spark.table(tables["state"]))
    rows, counting, fenced = _journal(names, tables)
    ends = spark.sql(statement("reconcile_ends", tables | {"journal": counting})).collect()[0]
    end = recovered.last_position if recovered else max(*ends, meta.position)
    up_to_end = f"position <= {end}"
    counting = names.add("counting", spark.table(counting).where(up_to_end))
    part = names.add("journal_part", spark.table(rows).where(up_to_end))
    side = TableCopy(tables["state"], tables["history"], part)
    values = {"history": side.history, "journal": counting, "after": str(ends.history)}
    return Look(
        root=root,
        names=names,
        lost=lost,
        meta=meta,
        history_end=ends.history,
        end=end,
        recovered=recovered,
        recovery_failure=failure,
        side=side,
        counting=counting,
        fenced=fenced,
        records=names.add("records", spark.sql(statement("reconcile_records", values))),
        folds=Folds(names, side),
        is_written=is_held(root.path / "writer.lock") is not False,
    )


def _recover(root: Root) -> tuple[RecoveredRoot | None, str]:
    """Return the state that a broker would start with, or its failure; neither if it is too big."""
    failure = ""
    for _ in range(_TRIES):  # beside a store that merges files, a second try finds the new ones
        try:
            row_count = sum(
                max(file.row_count, 0) for name in TABLES for file in _needed(root, name)
            )
            return (None, "") if row_count > MAX_RECOVERED else (recover(root), "")
        except (StoreError, DeltaError, OSError, pa.ArrowException) as reason:
            failure = str(reason).splitlines()[0]
    return None, failure


def _needed(root: Root, table: str) -> list[FileStats]:
    """Files that a start reads: state, and the others after P."""
    files = snapshot(root.table(table))
    if table == "state":
        return files
    position = read_meta(root).position
    return [file for file in files if file.positions[1] > position]


def _meta(state: DataFrame) -> Meta:
    rows = state.where("part = 'meta'").select(*Meta.__dataclass_fields__).limit(2).collect()
    return Meta(**rows[0].asDict()) if rows else Meta()


def _journal(names: Names, tables: dict[str, str]) -> tuple[str, str, str]:
    """Names of the journal's narrow rows: all, what counts, the others (ARCHITECTURE: Rule 3)."""
    narrow = names.spark.table(tables["journal"]).select(
        *NARROW_COLUMNS,
        record_digest().alias("digest"),
        F.octet_length("body").alias("piece_bytes"),
    )
    rows = names.keep("journal_rows", narrow)
    opening = names.keep("epochs", names.spark.sql(statement("epochs", tables | {"journal": rows})))
    newer = F.expr("newer.epoch > row.epoch AND newer.position <= row.position")
    row, openings = names.spark.table(rows).alias("row"), names.spark.table(opening).alias("newer")
    return (
        rows,
        names.add("left_anti", row.join(F.broadcast(openings), newer, "left_anti")),
        names.add("left_semi", row.join(F.broadcast(openings), newer, "left_semi")),
    )
