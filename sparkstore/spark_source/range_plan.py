"""Decide which ranges of positions the tasks of one batch read. Pure: files in, ranges out.

A chunk of history has its rows by queue and message, so all of its files hold positions of the
whole chunk. Ranges therefore end where files do, so that few files are read by two tasks. A task
sorts its rows by position in memory, so it gets no more than so many records, or so many bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from sparkstore.spark_source.record_range import RecordRange
from sparkstore.tables.snapshot import FileStats

_PIECES = 8
_LEAST, _MOST = 20_000, 500_000
"""Records of one task: at least if there are more, and at most."""
_MOST_BYTES = 64 << 20
"""Of files, compressed, that one task reads where it reads content."""


def planned_ranges(
    history: list[FileStats],
    journal: list[FileStats],
    wanted: RecordRange,
    *,
    has_content: bool,
) -> list[RecordRange]:
    """Cut a range of positions into those of tasks, in order.

    Args:
        history: Files of history.
        journal: Files of the journal.
        wanted: The range, which is not empty.
        has_content: Tasks read messages, and not only what happened to them.
    """
    most = _most_records([*history, *journal]) if has_content else _MOST
    target = max(1, min(most, max(_LEAST, (wanted.last - wanted.after) // _PIECES)))
    end = max((file.positions[1] for file in history if file.has_statistics), default=0)
    spans = [
        *(file.positions for file in history),
        *((max(end + 1, file.positions[0]), file.positions[1]) for file in journal),
    ]
    bounds = [wanted.after, *_grouped(_ends(spans), wanted, target), wanted.last]
    ranges = (RecordRange(*pair) for pair in pairwise(bounds))
    return [piece for whole in ranges for piece in _split(whole, most)]


def _most_records(files: list[FileStats]) -> int:
    rows = sum(max(0, file.row_count) for file in files)
    size = sum(file.size_bytes for file in files if file.row_count >= 0)
    return min(_MOST, max(1_000, _MOST_BYTES * rows // max(1, size)))


def _ends(spans: Iterable[tuple[int, int]]) -> Iterator[int]:
    """Yield the positions that no file reaches over, in order."""
    reached = 0
    for first, last in sorted(span for span in spans if span[0] <= span[1]):
        if reached and first > reached:
            yield reached
        reached = max(reached, last)


def _grouped(ends: Iterable[int], wanted: RecordRange, target: int) -> Iterator[int]:
    """Choose the ends at which a range has enough records."""
    after = wanted.after
    for end in ends:
        if end - after >= target and end < wanted.last:
            yield end
            after = end


def _split(whole: RecordRange, most: int) -> Iterator[RecordRange]:
    length = whole.last - whole.after
    count = -(-length // most)
    cuts = [whole.after + length * part // count for part in range(count + 1)]
    return (RecordRange(*cut) for cut in pairwise(cuts))
