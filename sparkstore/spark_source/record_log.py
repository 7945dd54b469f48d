"""The records of a root as a log that a stream follows: its end, its start, and its records.

The end is the last position that counts. A record is in Delta only after it is in the write-ahead
log on disk, or in the bucket, so a record that is seen is durable. It counts for ever: the `opened`
of the next epoch is committed by a handle that has seen every row before it, and gets a position
after theirs (`sparkstore.log.journal`). So the end never goes back, but after a promotion or a
backup that ended before; by the time of a record, two records of one position are told apart.

The end is found by the rows of the newest epoch. A fenced writer's rows have a lower one than the
`opened` that fenced it, which is in the journal, or in history up to H, where it, or a record of
its epoch or of a later one, is the last.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake.exceptions import DeltaError

from sparkstore.core.records import Kind
from sparkstore.errors import CorruptData, Unavailable
from sparkstore.recovery.recovery import last_position
from sparkstore.tables.root import Root, open_root
from sparkstore.tables.schema import ROW
from sparkstore.tables.snapshot import FileStats, columns_of, read_files, snapshot

T = TypeVar("T")

_TRIES = 6
_PLACE = columns_of(ROW, ("position", "epoch", "at"))
_OPENED = columns_of(ROW, ("position", "epoch", "kind", "message_id"))


class RecordPlace(NamedTuple):
    """The place of a record, by which it is told from any other one.

    Attributes:
        position: Its position, 0: before the first record.
        epoch: Its epoch, 0: not known.
        at: Its time, UTC µs.
    """

    position: int = 0
    epoch: int = 0
    at: int = 0


class RecordLog:
    """The log of one root, looked up anew by each call. Not thread-safe.

    What was read of a file is kept for the next look, since files do not change.

    Args:
        path: The folder of the root.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._ends: dict[Path, RecordPlace] = {}
        self._moved = RecordPlace()

    def root(self) -> Root:
        """Open the root, which may have another role or identity than before.

        Raises:
            InvalidRequest: There is no root.
            CorruptData: Its `root.json` cannot be read.
        """
        return open_root(self._path)

    def files(self) -> tuple[list[FileStats], list[FileStats]]:
        """Return the files of the journal and of history.

        Raises:
            CorruptData, Unavailable: The tables cannot be read, again and again.
        """
        return _insist(lambda: (snapshot(self._root.journal), snapshot(self._root.history)))

    def end(self) -> RecordPlace:
        """Return the last record that counts.

        Raises:
            CorruptData, Unavailable: The tables cannot be read, again and again.
        """
        return _insist(self._end)

    def at_position(self, position: int) -> RecordPlace | None:
        """Return the record at a position, None if it is neither in the journal nor in history.

        Raises:
            CorruptData, Unavailable: The tables cannot be read, again and again.
        """
        return _insist(lambda: self._at_position(position))

    def first_from(self, at: int, start: int) -> int | None:
        """Return the first position from `start` on whose record is of a time or later.

        Raises:
            CorruptData, Unavailable: The tables cannot be read, again and again.
        """
        limit = pa.scalar(at, _PLACE.field("at").type)

        def look() -> int | None:
            where = (ds.field("at") >= limit) & (ds.field("position") >= start)
            first: int | None = None
            for file in (*snapshot(self._root.journal), *snapshot(self._root.history)):
                if first is None or file.positions[0] < first:
                    rows = read_files([file], _PLACE.remove(1), where)
                    least = pc.min(rows["position"]).as_py()
                    first = least if first is None else min(first, least or first)
            return first

        return _insist(look)

    def openings(self) -> list[RecordPlace]:
        """Return every `opened` that there is, by position: a long look, for an error.

        Raises:
            CorruptData, Unavailable: The tables cannot be read, again and again.
        """

        def look() -> list[RecordPlace]:
            files = [*snapshot(self._root.journal), *snapshot(self._root.history)]
            where = (ds.field("kind") == Kind.OPENED.column) & ds.field("message_id").is_null()
            rows = read_files(files, _OPENED, where)
            pairs = zip(rows["position"].to_pylist(), rows["epoch"].to_pylist(), strict=True)
            return [RecordPlace(*pair) for pair in sorted(set(pairs))]

        return _insist(look)

    @property
    def _root(self) -> Root:
        return self.root()

    def _end(self) -> RecordPlace:
        journal, history = self.files()
        self._ends = {file.path: self._ends.get(file.path) or _end_of(file) for file in journal}
        ours = max(self._ends.values(), key=_by_epoch, default=RecordPlace())
        moved = last_position(history)
        if moved != self._moved.position:
            files = [file for file in history if file.positions[1] >= moved]
            self._moved = _newest_at(files, moved)
        is_newer = ours.epoch >= self._moved.epoch and ours.position > moved
        return ours if is_newer else self._moved

    def _at_position(self, position: int) -> RecordPlace | None:
        files = [*snapshot(self._root.journal), *snapshot(self._root.history)]
        here = [file for file in files if file.positions[0] <= position <= file.positions[1]]
        place = _newest_at(here, position)
        return place if place.position else None


def _insist(look: Callable[[], T]) -> T:
    """Look again where files moved meanwhile.

    Raises:
        CorruptData, Unavailable: They cannot be read all the same.
    """
    failure: Exception | None = None
    for _ in range(_TRIES):
        try:
            return look()
        except (CorruptData, DeltaError, OSError, pa.ArrowException) as reason:
            failure = reason
    if isinstance(failure, CorruptData):
        raise failure
    raise Unavailable(f"the log cannot be read: {failure}: run it again") from failure


def _by_epoch(place: RecordPlace) -> tuple[int, int]:
    return place.epoch, place.position


def _end_of(file: FileStats) -> RecordPlace:
    """Return the last record of the newest epoch in a file."""
    rows = read_files([file], _PLACE)
    rows = rows.filter(pc.equal(rows["epoch"], pc.max(rows["epoch"])))
    rows = rows.filter(pc.equal(rows["position"], pc.max(rows["position"])))
    return _newest(rows)


def _newest_at(files: list[FileStats], position: int) -> RecordPlace:
    """Return the record at a position: of several in the journal that of the highest epoch."""
    return _newest(read_files(files, _PLACE, ds.field("position") == position))


def _newest(rows: pa.Table) -> RecordPlace:
    at = rows["at"].cast(pa.int64())
    columns = (rows["position"].to_pylist(), rows["epoch"].to_pylist(), at.to_pylist())
    places = (RecordPlace(*row) for row in zip(*columns, strict=True))
    return max(places, key=_by_epoch, default=RecordPlace())
