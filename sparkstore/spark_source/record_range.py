"""Read the records of a range of positions, each once, wherever they are by now.

Positions have no gap, and a record never changes. So a range is a fixed set of rows, and whoever
has counted that each position is there once has all of it. That is what makes this right, and not
the order of look-ups: a compaction may move rows from the journal to history between any two of
them, a trim may drop a segment, and a merge may replace files. Then a look-up finds a gap, a file
that is gone, or history's end further on, and both tables are looked up again.

Up to H, where history ends, rows come from history alone; those after it from the journal. Of
several rows of one position in the journal the one of the highest epoch counts. That is
ARCHITECTURE: Rule 3, for the range ends at a position that counts. So each has a row that
does, and the row of a fenced writer has a lower epoch than that. Rows of history all count.

What retention has dropped is a gap that stays. It is told from others by `history_start`, which is
raised before any row goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake.exceptions import DeltaError

from sparkstore.errors import CorruptData, InvalidRequest, Unavailable
from sparkstore.recovery.recovery import last_position, read_state
from sparkstore.tables.root import Root
from sparkstore.tables.schema import ROW
from sparkstore.tables.snapshot import FileStats, columns_of, read_files, snapshot

_TRIES = 6
_PLACE = columns_of(ROW, ("position", "epoch"))
_CHOSEN_BY = ("kind", "queue")
"""What a condition may be about."""


class RecordRange(NamedTuple):
    """The records after a position, up to another one.

    Attributes:
        after: The position before the first of them.
        last: The position of the last of them.
    """

    after: int
    last: int


class RecordsLost(InvalidRequest):
    """Choose what to do: history begins after the first record that was asked for.

    Attributes:
        first_left: The position of the first record that is left.
    """

    def __init__(self, message: str, first_left: int) -> None:
        super().__init__(message)
        self.first_left = first_left


class _Layers(NamedTuple):
    """The files of both tables that may have rows of a range, as they were looked up."""

    history: list[FileStats]
    journal: list[FileStats]
    end: int


def history_start(root: Root) -> int:
    """Return the position from which on history is whole."""
    start: int | None = pc.max(read_state(root, parts=("meta",))["history_start"]).as_py()
    return start or 1


def read_range(
    root: Root,
    wanted: RecordRange,
    columns: Sequence[str],
    where: ds.Expression | None = None,
) -> pa.Table:
    """Read some columns of the records of a range, in the order of positions.

    Args:
        root: The root that has them.
        wanted: Its last position is one that counts.
        columns: Names of columns of `ROW`.
        where: Which of the records are wanted, by kind and queue; None: all.

    Raises:
        RecordsLost: Retention has dropped the first of them.
        CorruptData: A position is missing or doubled.
        Unavailable: The tables cannot be read, again and again.
    """
    failure: Exception | None = None
    for _ in range(_TRIES):
        try:
            layers = _look_up(root, wanted)
            ghosts = _checked_places(layers, wanted)
            return _rows(layers, wanted, columns, where, ghosts)
        except (CorruptData, DeltaError, OSError, pa.ArrowException) as reason:
            failure = reason
    start = history_start(root)
    if wanted.after + 1 < start:
        message = f"the records {wanted.after + 1} to {start - 1} of {root.path} are gone"
        raise RecordsLost(f"{message}: the first that is left is {start}", start) from failure
    if isinstance(failure, CorruptData):
        raise failure
    raise Unavailable(f"{root.path} cannot be read: {failure}: run it again") from failure


def _look_up(root: Root, wanted: RecordRange) -> _Layers:
    journal, history = snapshot(root.journal), snapshot(root.history)
    end = last_position(history)
    return _Layers(
        [file for file in history if _meets(file, wanted.after, min(wanted.last, end))],
        [file for file in journal if _meets(file, max(wanted.after, end), wanted.last)],
        end,
    )


def _meets(file: FileStats, after: int, last: int) -> bool:
    return file.positions[0] <= last and file.positions[1] > after


def _of_history(layers: _Layers, wanted: RecordRange) -> ds.Expression:
    return _between(wanted.after, min(wanted.last, layers.end))


def _of_journal(layers: _Layers, wanted: RecordRange) -> ds.Expression:
    return _between(max(wanted.after, layers.end), wanted.last)


def _between(after: int, last: int) -> ds.Expression:
    return (ds.field("position") > after) & (ds.field("position") <= last)


def _checked_places(layers: _Layers, wanted: RecordRange) -> pa.Table:
    """Check that each position is there once; return the rows of fenced writers.

    Raises:
        CorruptData: One is missing or doubled, or a file is gone.
    """
    old = read_files(layers.history, _PLACE.remove(1), _of_history(layers, wanted))
    new = read_files(layers.journal, _PLACE, _of_journal(layers, wanted))
    counted = new.group_by("position").aggregate([("epoch", "max")])
    positions = pa.concat_tables([old, counted.select(["position"])])["position"].combine_chunks()
    expected = pa.array(range(wanted.after + 1, wanted.last + 1), pa.int64())
    if not positions.take(pc.sort_indices(positions)).equals(expected):
        message = f"records are missing between {wanted.after} and {wanted.last}"
        raise CorruptData(f"{message}, or there twice: run sparkstore verify")
    if counted.num_rows == new.num_rows:
        return new.slice(0, 0)
    joined = new.join(counted, "position")
    ghosts = joined.filter(pc.less(joined["epoch"], joined["epoch_max"])).select(_PLACE.names)
    if new.num_rows - ghosts.num_rows != counted.num_rows:
        raise CorruptData("the journal has a position more than once: run sparkstore verify")
    return ghosts


def _rows(
    layers: _Layers,
    wanted: RecordRange,
    columns: Sequence[str],
    where: ds.Expression | None,
    ghosts: pa.Table,
) -> pa.Table:
    names = [*dict.fromkeys([*columns, *_PLACE.names, *_CHOSEN_BY])]
    schema = columns_of(ROW, names)
    parts = []
    for files, place in (
        (layers.history, _of_history(layers, wanted)),
        (layers.journal, _of_journal(layers, wanted)),
    ):
        parts.append(read_files(files, schema, place if where is None else place & where))
    parts[1] = _without(parts[1], ghosts)
    return pa.concat_tables(parts).sort_by("position").select([*columns])


def _without(rows: pa.Table, ghosts: pa.Table) -> pa.Table:
    for epoch in pc.unique(ghosts["epoch"]).to_pylist():
        positions = ghosts.filter(pc.equal(ghosts["epoch"], epoch))["position"]
        is_ghost = pc.and_(
            pc.equal(rows["epoch"], epoch), pc.is_in(rows["position"], positions.combine_chunks())
        )
        rows = rows.filter(pc.invert(is_ghost))
    return rows
