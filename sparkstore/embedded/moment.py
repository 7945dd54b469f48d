"""The files of a root's tables at one moment, and those of them that Arrow reads.

A moment is a value: the files that deltalake's logs named when they were looked up, and P. No file
of a table ever changes, so whoever has a moment reads the same rows, now or later, here or in
another process, as long as the files are there. A compaction, a trim or an OPTIMIZE that comes
afterwards only replaces files. What it replaced stays for `reader_grace_s` (an hour, unless
configured otherwise), for exactly such readers (`compaction.upkeep`, `log.trim`); after that a read
of the moment fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from sparkstore.recovery.point_in_time import AsOf, PointInTime, point_in_time
from sparkstore.tables.root import Root
from sparkstore.tables.schema import ROW, STATE
from sparkstore.tables.snapshot import PARQUET, FileStats, last_position, newest

_TIME = ROW.field("at").type


class Moment(NamedTuple):
    """The three tables as they were when they were looked up.

    Attributes:
        state: The files of the fold.
        journal: The files of the journal; none where history has all that is asked for.
        history: The files of history.
        folded: P of this state.
        epoch: The epoch of its last record; 0 without a state.
        in_history: The last position of history.
        point: What was asked for, if not the newest.
        versions: The versions of state, journal and history.
    """

    state: list[FileStats]
    journal: list[FileStats]
    history: list[FileStats]
    folded: int
    epoch: int
    in_history: int
    point: PointInTime | None
    versions: tuple[int, int, int] = (0, 0, 0)

    def tables(self) -> Mapping[str, ds.Dataset]:
        """Return what Arrow reads, by the names of the tables."""
        return {
            "state": dataset(self.state, STATE, "part"),
            "journal": self.rows("journal"),
            "history": self.rows("history"),
        }

    def rows(self, name: str) -> ds.Dataset:
        """Return `journal` or `history`, whole."""
        return dataset(self.history if name == "history" else self.journal, ROW, "segment")

    def lost_file(self) -> FileStats | None:
        """Return a file that is not there any more, if there is one."""
        files = (*self.state, *self.journal, *self.history)
        return next((file for file in files if not file.path.exists()), None)


NOTHING = Moment([], [], [], 0, 0, 0, None)
"""A root without records."""


def looked_up(root: Root, as_of: AsOf | PointInTime | None) -> Moment:
    """Look the tables up once, in the order in which recovery does: a gap after P may show.

    Raises:
        InvalidRequest: `as_of` is in the future, or before history.
        CorruptData: A table is gone.
        DeltaError, OSError: It cannot be read.
    """
    point = as_of if as_of is None or isinstance(as_of, PointInTime) else point_in_time(root, as_of)
    state_version, state = newest(root.state, point and point.version)
    if point is not None and point.version is None:
        state = []
    meta = dataset((file for file in state if file.partition == "meta"), STATE, "part")
    journal_version, journal = newest(root.journal)
    history_version, history = newest(root.history)
    if point is not None and point.is_in_history:
        journal = []
    last = meta.to_table(["position", "epoch"])
    return Moment(
        state,
        journal,
        history,
        pc.max(last["position"]).as_py() or 0,
        pc.max(last["epoch"]).as_py() or 0,
        last_position(history),
        point,
        (state_version, journal_version, history_version),
    )


def dataset(files: Iterable[FileStats], schema: pa.Schema, partition: str) -> ds.Dataset:
    """Files of a table as Arrow reads them: what their log says of each keeps it closed."""
    files = list(files)
    nullable = pa.schema([field.with_nullable(nullable=True) for field in schema])
    if not files:
        return ds.dataset(nullable.empty_table())
    return ds.FileSystemDataset.from_paths(
        [str(file.path) for file in files],
        schema=nullable,
        format=PARQUET,
        filesystem=LocalFileSystem(),
        partitions=[_guarantee(file, nullable.field(partition)) for file in files],
    )


def _guarantee(file: FileStats, partition: pa.Field) -> ds.Expression:
    guarantee = ds.field(partition.name) == pa.scalar(file.partition, partition.type)
    if not file.has_statistics:
        return guarantee
    guarantee &= _within("position", *file.positions, or_null=False)
    guarantee &= _within("message_id", *file.message_ids)
    if file.times:
        guarantee &= _within("at", *(pa.scalar(time, _TIME) for time in file.times))
    if file.queues:
        guarantee &= _within("queue", *file.queues)
    return guarantee


def _within(column: str, least: Any, largest: Any, *, or_null: bool = True) -> ds.Expression:
    """Say what a column of a file is between, in the form from which Arrow draws conclusions."""
    above, below = ds.field(column) >= least, ds.field(column) <= largest
    nothing = ds.field(column).is_null()
    return (above | nothing) & (below | nothing) if or_null else above & below
