"""Decide what may be appended to a history, and in which files, from a few numbers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from sparkstore.compaction.plans.compact_plan import PositionRange

FILE_BYTES, LEAST_FILE_BYTES = 64 << 20, 8 << 20
"""Size that a file of history should have; at least, to have a task for each core."""


class RecordTally(NamedTuple):
    """Sums over the records to append, counted without ghosts.

    Attributes:
        row_count: How many records there are.
        total: Sum of their positions.
        last: Largest position; None without records.
    """

    row_count: int
    total: int
    last: int | None


def end_of(tally: RecordTally, after: int) -> int | None:
    """The last position, if what was found goes on after `after` without a gap; else None."""
    if tally.last is None or tally.last <= after:
        return after
    length = tally.last - after
    is_whole = (tally.row_count, tally.total) == (
        length,
        length * (tally.last + after + 1) // 2,
    )
    return tally.last if is_whole else None


class Opening(NamedTuple):
    """Position and epoch of an `opened` record."""

    position: int
    epoch: int


def counts(openings: Iterable[Opening], after: int) -> str:
    """Return the SQL condition under which a row of the journal after a position counts.

    A row is a ghost if an `opened` of a higher epoch has a position at or before its own
    (ARCHITECTURE: Rule 3): so it counts if its epoch is no less than the highest opened up to its
    position. Few numbers, no join.
    """
    least, higher = 0, list[Opening]()
    for opening in sorted(openings):
        if opening.position <= after:
            least = max(least, opening.epoch)
        elif opening.epoch > max([least, *(known.epoch for known in higher)]):
            higher.append(opening)
    if not higher:
        return f"epoch >= {least}"
    cases = "".join(f" WHEN position >= {at} THEN {epoch}" for at, epoch in reversed(higher))
    return f"epoch >= CASE{cases} ELSE {least} END"


class Extent(NamedTuple):
    """Largest position that a file of a journal or a history holds, its size, its segment."""

    last: int
    size_bytes: int
    segment: int = 0


def cuts(after: int, last: int, files: Sequence[Extent], *, cores: int) -> list[PositionRange]:
    """Positions of each file to write, in order.

    Each ends where a file that is read does, so that few are read twice.
    """
    share = sum(file.size_bytes for file in files) // cores
    enough = max(LEAST_FILE_BYTES, min(FILE_BYTES, share))
    ends = [after]
    size_bytes = 0
    for file in sorted(files):
        size_bytes += file.size_bytes
        if size_bytes >= enough and ends[-1] < file.last < last:
            ends.append(file.last)
            size_bytes = 0
    return [PositionRange(first, end) for first, end in pairwise([*ends, last])]
