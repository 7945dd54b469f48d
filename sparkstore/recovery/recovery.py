"""Rebuild what a store had: state + every record after P, each position once. No JVM.

The layers overlap on purpose (a record is let go only when its successor is durable), so a position
may be in history and in the journal: then both must say the same. Positions are gapless, so a hole
or a short end is found by counting, never passed over.

They are read in the order state, journal, history: what a job and a trim move meanwhile they move
the other way, so a reader beside a serving store misses nothing.

The write-ahead log is not read here: the log replays it into the journal first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from sparkstore.core.fold import State
from sparkstore.core.records import Kind
from sparkstore.errors import CorruptData
from sparkstore.recovery.arrow_fold import fold_columns, fold_tables, rows_that_count
from sparkstore.tables.arrow_values import is_run
from sparkstore.tables.marks import read_marks
from sparkstore.tables.root import Root
from sparkstore.tables.schema import FOLD_COLUMNS, ROW, STATE
from sparkstore.tables.snapshot import FileStats, columns_of, read_files, snapshot

_FOLD = columns_of(ROW, FOLD_COLUMNS)
ALL_PARTS = ("entry", "wiring", "member", "staged", "link", "delivery", "meta")
_STATE_FILE = pa.schema([field for field in STATE if field.name not in {"part", "block"}])


@dataclass(frozen=True, slots=True)
class RecoveredRoot:
    """The content of a root, as recovery found it.

    Attributes:
        state: The fold of everything.
        last_position: Position of the last record, 0 if there is none.
        segment: Segment of the last record, 0 if there is none.
        state_position: P, where the table `state` stands.
        history_position: H, the last position in `history`.
        history_start: Before this position `history` is not gapless.
    """

    state: State
    last_position: int
    segment: int
    state_position: int
    history_position: int
    history_start: int


def recover(root: Root) -> RecoveredRoot:
    """Read a root back. Heal it, and replay its write-ahead log, before.

    Raises:
        CorruptData: A position is missing, is there twice, or differs between two layers; records
            are missing that were durable; or a file cannot be decoded.
    """
    with _readable(root):
        return _recover(root, fold_tables)


def recover_columns(root: Root) -> tuple[RecoveredRoot, pa.Table]:
    """Recover a root with the entries as columns (`arrow_fold.fold_columns`), and not in the state.

    Raises:
        CorruptData: What `recover` raises it for.
    """
    columns: list[pa.Table] = []

    def fold(state_rows: pa.Table, rows: pa.Table) -> State:
        state, entries = fold_columns(state_rows, rows)
        columns.append(entries)
        return state

    with _readable(root):
        return _recover(root, fold), columns[0]


@contextmanager
def _readable(root: Root) -> Iterator[None]:
    """Turn Arrow's errors into `CorruptData`; a device's error, which has an `errno`, passes."""
    try:
        yield
    except (pa.ArrowException, OSError) as reason:
        if isinstance(reason, OSError) and reason.errno is not None:
            raise
        lines = str(reason).splitlines() or [type(reason).__name__]
        message = f"a file of {root.path} cannot be read: {lines[0]}: restore it from a replica"
        raise CorruptData(f"{message} or a backup") from reason


def _recover(root: Root, fold: Callable[[pa.Table, pa.Table], State]) -> RecoveredRoot:
    # First of all: another opener of a shared root may commit and mark while this one reads.
    durable = read_marks(root).last_position
    state_rows = read_state(root)
    meta = _meta(state_rows)
    journal, history = snapshot(root.journal), snapshot(root.history)
    state_position = meta["position"]
    end = last_position(history)
    _check_reach(root, history_position=end, state_position=state_position, journal=journal)
    # Nobody else keeps the rows: the fold lets go of them as soon as it has the entries.
    state = fold(state_rows, _rows_after(state_position, meta["epoch"], history, journal))
    pa.default_memory_pool().release_unused()  # some 300 bytes for each record that was read
    # A mark counts a fenced writer's late commit, whose positions may be beyond those that count.
    _check_durable(root, max(state.position, last_position(journal)), durable)
    segment = max((file.partition for file in (*history, *journal)), default=meta["segment"])
    return RecoveredRoot(state, state.position, segment, state_position, end, meta["history_start"])


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of the records in Delta.

    Attributes:
        last_position: The largest in journal and history, and P.
        epoch: Epoch of the newest `opened`, 0 if there is none.
        opened_position: Position of that `opened`; 0 if only `state` remembers it.
        segment: The largest, 0 if there is none.
    """

    last_position: int
    epoch: int
    opened_position: int
    segment: int


def journal_tail(root: Root) -> Tail:
    """Return the end of the records in Delta, without folding them.

    It goes by the rows, not by the metadata of commits: merges and trims have none. The kinds are
    read from the journal, whose files are few and whose row groups without an `opened` are
    skipped; from history only what is after P, or, if that has none, from its end backwards.

    Raises:
        CorruptData: A file cannot be decoded.
    """
    with _readable(root):
        return _tail(root)


def _tail(root: Root) -> Tail:
    meta = _meta(read_state(root, parts=("meta",)))
    journal, history = snapshot(root.journal), snapshot(root.history)
    end = last_position(history)
    recent = [file for file in history if file.positions[1] > meta["position"]]
    epoch, opened_position = _newest_opened([*recent, *journal])
    older = [file for file in history if file not in recent]
    while older and epoch < max(meta["epoch"], 1):
        epoch, opened_position = _newest_opened([older.pop()])
    epoch = max(epoch, meta["epoch"])
    last = max(end, meta["position"], _last_of_epoch(journal, epoch, opened_position))
    segment = max((file.partition for file in (*history, *journal)), default=meta["segment"])
    return Tail(last, epoch, opened_position, segment)


def _newest_opened(files: list[FileStats]) -> tuple[int, int]:
    """Epoch and position of the newest `opened` in some files; zeros if they have none."""
    where = ds.field("kind") == Kind.OPENED.column
    rows = read_files(files, columns_of(ROW, ["epoch", "position", "kind"]), where)
    openings = zip(rows["epoch"].to_pylist(), rows["position"].to_pylist(), strict=True)
    return max(openings, default=(0, 0))


def _last_of_epoch(journal: list[FileStats], epoch: int, opened_position: int) -> int:
    """Last position in the journal that counts: a fenced writer's may be larger.

    A journal without a row of the epoch ends before its `opened`, which history or state has.
    """
    last = 0
    for file in sorted(journal, key=lambda file: file.positions[1], reverse=True):
        if file.positions[1] <= last:
            break
        rows = read_files([file], columns_of(ROW, ["position", "epoch"]))
        counts = pc.or_(pc.equal(rows["epoch"], epoch), pc.less(rows["position"], opened_position))
        last = max(last, pc.max(rows["position"].filter(counts)).as_py() or 0)
    return last


def read_state(root: Root, parts: Collection[str] = ALL_PARTS) -> pa.Table:
    """The table `state`, or some parts of it, in no particular order; `block` is left null."""
    by_part: dict[str, list[FileStats]] = {}
    for file in snapshot(root.state):
        if file.partition in parts:
            by_part.setdefault(file.partition, []).append(file)
    tables = [STATE.empty_table()]
    for part, files in by_part.items():
        rows = read_files(files, _STATE_FILE)
        rows = rows.add_column(0, STATE.field("part"), pa.repeat(pa.scalar(part), rows.num_rows))
        rows = rows.add_column(1, STATE.field("block"), pa.nulls(rows.num_rows, pa.int64()))
        tables.append(rows.cast(STATE))
    return pa.concat_tables(tables)


def _meta(state_rows: pa.Table) -> dict[str, Any]:
    rows = state_rows.filter(pc.equal(state_rows["part"], "meta")).to_pylist()
    if len(rows) > 1:
        message = f"state has {len(rows)} meta rows instead of one: run reconcile"
        raise CorruptData(message)
    if not rows:
        return {"position": 0, "epoch": 0, "segment": 0, "history_start": 1}
    meta: dict[str, Any] = rows[0]
    return meta


def last_position(files: list[FileStats]) -> int:
    """Return the largest position in some files, by statistics where there are any."""
    unknown = [file for file in files if not file.has_statistics]
    read = read_files(unknown, columns_of(ROW, ["position"]))
    known = max((file.positions[1] for file in files if file not in unknown), default=0)
    return max(known, pc.max(read["position"]).as_py() or 0)


def _rows_after(
    position: int, epoch: int, history: list[FileStats], journal: list[FileStats]
) -> pa.Table:
    """Records after a position from both layers, each once, in order, without fenced ones."""
    old, new = _read_after(position, history), _read_after(position, journal)
    zero, one = pa.scalar(0, pa.int8()), pa.scalar(1, pa.int8())
    layer = pa.chunked_array([pa.repeat(zero, old.num_rows), pa.repeat(one, new.num_rows)])
    both = pa.concat_tables([old, new]).append_column("layer", layer)
    both = rows_that_count(both, epoch=epoch)
    old_count = both.num_rows - (pc.sum(both["layer"]).as_py() or 0)
    both = both.drop_columns("layer")
    old = _in_order(both.slice(0, old_count), position, "history")
    new, end = both.slice(old_count), position + old_count
    if new.num_rows and pc.min(new["position"]).as_py() <= end:
        _check_same(old, new.filter(pc.less_equal(new["position"], end)), position)
        new = new.filter(pc.greater(new["position"], end))
    return pa.concat_tables([old, _in_order(new, end, "journal")])


def _read_after(position: int, files: list[FileStats]) -> pa.Table:
    """Rows of a layer after a position; a filter holds its rows twice, so few files get one."""
    astride = (file for file in files if file.positions[0] <= position < file.positions[1])
    after = (file for file in files if file.positions[0] > position)
    where = ds.field("position") > position
    return pa.concat_tables([read_files(astride, _FOLD, where), read_files(after, _FOLD)])


def _in_order(rows: pa.Table, position: int, layer: str) -> pa.Table:
    """The rows sorted by position, if they are exactly those after `position`."""
    if not is_run(rows["position"].combine_chunks(), position + 1):
        expected = pa.array(range(position + 1, position + 1 + rows.num_rows), pa.int64())
        rows = rows.sort_by("position")
        place = pc.index(pc.equal(rows["position"], expected), False).as_py()
        if place >= 0:
            wrong = rows["position"][place].as_py()
            raise CorruptData(_misplaced(wrong, position + 1 + place, layer))
    return rows


def _misplaced(wrong: int, expected: int, layer: str) -> str:
    if wrong < expected:
        return f"{layer} has position {wrong} more than once: run sparkstore verify"
    return f"positions {expected} to {wrong - 1} are missing before {layer}'s {wrong}"


def _check_same(old: pa.Table, overlap: pa.Table, position: int) -> None:
    """Check that records of both layers are the same where they overlap."""
    overlap = _sorted_once(overlap)
    twins = old.take(pc.subtract(overlap["position"], position + 1))
    if twins.equals(overlap):
        return
    for one, other in zip(twins.to_pylist(), overlap.to_pylist(), strict=True):
        if one != other:
            differing = [name for name in one if one[name] != other[name]]
            message = (
                f"position {one['position']} differs between history and journal in"
                f" {', '.join(differing)}: restore one of them"
            )
            raise CorruptData(message)


def _sorted_once(rows: pa.Table) -> pa.Table:
    rows = rows.sort_by("position")
    if pc.count_distinct(rows["position"]).as_py() != rows.num_rows:
        raise CorruptData("journal has a position more than once: run sparkstore verify")
    return rows


def _check_reach(
    root: Root, *, history_position: int, state_position: int, journal: list[FileStats]
) -> None:
    """Check that the journal still has the records that history lost: their content is there.

    The journal is trimmed only behind a durable history, so this fails only if something that was
    durable is gone.
    """
    start = min((file.positions[0] for file in journal), default=history_position + 1)
    if history_position < state_position and start > history_position + 1:
        message = (
            f"positions {history_position + 1} to {min(start - 1, state_position)} are neither in"
            f" history nor in the journal of {root.path}: restore them from a replica"
        )
        raise CorruptData(message)


def _check_durable(root: Root, last_position: int, durable: int) -> None:
    if last_position < durable:
        message = (
            f"{root.path} ends at position {last_position}, but {durable} was on disk: restore it"
            " from a replica or a backup"
        )
        raise CorruptData(message)
