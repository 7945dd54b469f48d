"""Find a root as it stood at a time: the last position of then, and a fold to start from.

A time means the last position whose record was taken at that time or before. Positions, and not
times, are the order of what happened: only the records up to a position are something that the root
ever was. Where the clock of the store was set back, records with a later time stand before it. They
belong to the answer, since every record that follows them does. So a later time never means a
smaller position, and an answer never has half of a transaction.

The fold to start from is the newest version of `state` that is not after the position and whose
files are all there: often that of now, else one that no VACUUM has taken yet. Without one, all of
history is folded, as long as it has its first record. A record of history never changes, so what is
found stays right when tables are compacted; only the files of an older version may go.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake.exceptions import DeltaError

from sparkstore.errors import CorruptData, InvalidRequest
from sparkstore.recovery.arrow_fold import rows_that_count
from sparkstore.tables.delta_files import versions
from sparkstore.tables.root import Root
from sparkstore.tables.schema import ROW, STATE
from sparkstore.tables.snapshot import FileStats, columns_of, read_files, snapshot

AsOf = datetime | str | int
"""A time, its text, or a position. A time without a time zone is UTC."""

_SECOND_US = 1_000_000
_PREFIX = "position="
_TIMES = columns_of(ROW, ("position", "epoch", "kind", "at"))
_META = columns_of(STATE, ("position", "epoch", "history_start"))
_FORMS = "give a time as '2026-11-22 10:00', '2026-11-22T10:00:00+01:00', or position=N"


class PointInTime(NamedTuple):
    """A root as it stood once.

    Attributes:
        position: The last record that counts.
        at: The moment that was asked for, UTC µs; of a position, when its record was taken.
        version: Version of the table `state` to start from; None: from nothing.
        folded: P of that version, 0 without one.
        is_in_history: The table `history` has every record up to the position.
    """

    position: int
    at: int
    version: int | None
    folded: int
    is_in_history: bool


class _Meta(NamedTuple):
    """The one row of the part `meta` of a version of `state`."""

    position: int = 0
    epoch: int = 0
    history_start: int = 1


def microseconds(as_of: AsOf) -> int | None:
    """Read a time as UTC µs; None: it is a position.

    Raises:
        InvalidRequest: It is neither.
    """
    if isinstance(as_of, int) or as_of_position(as_of) is not None:
        return None
    moment = _moment(as_of)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * _SECOND_US + since.microseconds


def has_zone(as_of: AsOf) -> bool:
    """Return whether nothing has to be assumed: it names its time zone, or is a position."""
    return microseconds(as_of) is None or _moment(as_of).tzinfo is not None


def as_of_position(as_of: AsOf) -> int | None:
    """Read `position=N`, or a number; None: it is a time.

    Raises:
        InvalidRequest: The position is no number.
    """
    if isinstance(as_of, int):
        return as_of
    if isinstance(as_of, datetime) or not as_of.strip().startswith(_PREFIX):
        return None
    number = as_of.strip().removeprefix(_PREFIX)
    if not number.isascii() or not number.isdecimal() or len(number) > 18:
        raise InvalidRequest(f"{as_of!r} is no position: {_FORMS}")
    return int(number)


def point_in_time(root: Root, as_of: AsOf) -> PointInTime:
    """Find a root as it stood.

    Raises:
        InvalidRequest: There is no such time, it is in the future, or history begins later.
        CorruptData: A table, or a file of one, is gone.
    """
    moment, position = microseconds(as_of), as_of_position(as_of)
    now = time.time_ns() // 1000
    if moment is not None and moment > now:
        raise InvalidRequest(f"{as_of} is in the future: it is {_text(now)} now")
    meta, ours, history = _layers(root)
    end, last = _end(history), _last(meta, ours, history)
    if position is None:
        assert moment is not None
        position = _position_at(moment, ours, history)
    elif position > last:
        raise InvalidRequest(f"position {position} is in the future: the last record is {last}")
    else:
        moment = _time_of(position, ours, history)
    version, folded = _base(root, meta, position)
    if version is None and (position < 1 or meta.history_start > 1):
        raise InvalidRequest(f"{as_of} is before {_beginning(root, meta, ours, history)}")
    at = now if moment is None else moment
    return PointInTime(position, at, version, folded, position <= end)


def latest_position(root: Root) -> int:
    """Return the position of the last record that Delta has and that counts.

    Raises:
        CorruptData: A table, or a file of one, is gone.
    """
    return _last(*_layers(root))


def _layers(root: Root) -> tuple[_Meta, pa.Table, list[FileStats]]:
    """Look the three tables up, in the order in which recovery does: what moves is in a later one.

    Returns:
        The newest meta row, the journal's records after P that count, and the files of history.
    """
    meta = _meta_of(snapshot(root.state))
    journal, history = snapshot(root.journal), snapshot(root.history)
    return meta, _records_after(meta, journal), history


def _end(history: list[FileStats]) -> int:
    return max((file.positions[1] for file in history if file.has_statistics), default=0)


def _last(meta: _Meta, ours: pa.Table, history: list[FileStats]) -> int:
    return max(_end(history), meta.position, pc.max(ours["position"]).as_py() or 0)


def _moment(as_of: datetime | str | int) -> datetime:
    if isinstance(as_of, datetime):
        return as_of
    try:
        return datetime.fromisoformat(str(as_of).strip())
    except ValueError as reason:
        raise InvalidRequest(f"{as_of!r} is no time: {_FORMS}") from reason


def _text(at: int) -> str:
    try:
        return f"{datetime.fromtimestamp(at / _SECOND_US, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError):
        return f"{at} µs"


def _meta_of(files: list[FileStats]) -> _Meta:
    rows = read_files((file for file in files if file.partition == "meta"), _META).to_pylist()
    return max((_Meta(**row) for row in rows), default=_Meta())


def _records_after(meta: _Meta, journal: list[FileStats]) -> pa.Table:
    """Read the journal's records after P that count: what is before, history has."""
    files = [file for file in journal if file.positions[1] > meta.position]
    rows = read_files(files, _TIMES, ds.field("position") > meta.position)
    return rows_that_count(rows, epoch=meta.epoch)


def _position_at(moment: int, ours: pa.Table, history: list[FileStats]) -> int:
    """Find the last position whose record was taken at a moment or before; 0: none was."""
    limit = pa.scalar(moment, _TIMES.field("at").type)
    early = ours.filter(pc.less_equal(ours["at"], limit))
    last: int = pc.max(early["position"]).as_py() or 0
    for file in sorted(history, key=lambda file: file.positions[1], reverse=True):
        if file.positions[1] > last:
            rows = read_files([file], columns_of(ROW, ("position", "at")), ds.field("at") <= limit)
            last = max(last, pc.max(rows["position"]).as_py() or 0)
    return last


def _time_of(position: int, ours: pa.Table, history: list[FileStats]) -> int | None:
    """Read when the record of a position was taken; None if it is not there."""
    here = ours.filter(pc.equal(ours["position"], position))
    files = (file for file in history if file.positions[0] <= position <= file.positions[1])
    in_history = read_files(files, _TIMES, ds.field("position") == position)
    return pc.max(pa.concat_tables([here, in_history])["at"].cast(pa.int64())).as_py()  # type: ignore[no-any-return]


def _base(root: Root, newest: _Meta, position: int) -> tuple[int | None, int]:
    """Choose a version of `state` at or before a position: its number, and its P.

    P never falls from a version to the next, so half of those that are left may go at a time.
    """
    if not newest.position or position < newest.history_start - 1:
        return None, 0
    base: tuple[int | None, int] = (None, 0)
    left = versions(root.state)
    while left:
        middle = len(left) // 2
        files = _whole(root.state, left[middle])
        folded = None if files is None else _meta_of(files).position
        if folded is not None and folded > position:
            left = left[:middle]
            continue
        if folded is not None and folded >= max(newest.history_start - 1, 1):
            base = left[middle], folded
        left = left[middle + 1 :]
    return base


def _whole(table: Path, version: int) -> list[FileStats] | None:
    """List the files of a version; None if one of them, or of the log before it, is gone."""
    try:
        files = snapshot(table, version)
    except (DeltaError, OSError, CorruptData):
        return None
    return files if all(file.path.exists() for file in files) else None


def _beginning(root: Root, meta: _Meta, ours: pa.Table, history: list[FileStats]) -> str:
    """Say how far back an answer goes, and why no further."""
    if meta.history_start <= 1:
        first = _first(ours, history)
        return "the first record of this root" + (f", of {_text(first)}" if first else "")
    folds = (_meta_of(files).position for files in _whole_versions(root))
    back = min((fold for fold in folds if fold >= meta.history_start - 1), default=meta.position)
    at = _time_of(back, ours, history)
    when = f", of {_text(at)}" if at else ""
    return (
        f"what is kept whole: answers go back to position {back}{when}; history was shortened"
        " (compact --history-days keeps it for longer)"
    )


def _whole_versions(root: Root) -> Iterator[list[FileStats]]:
    return filter(None, (_whole(root.state, version) for version in versions(root.state)))


def _first(ours: pa.Table, history: list[FileStats]) -> int | None:
    for file in history:
        return _time_of(file.positions[0], ours, history)
    return pc.min(ours["at"].cast(pa.int64())).as_py() if ours.num_rows else None
