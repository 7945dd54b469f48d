"""Decide where rows of history lie, so that a question opens few files. Pure: no Spark, no clock.

A *chunk* is what one task sorts and writes: first the rows that bring content, by queue, then all
others, by message id. It is cut into files of so many rows each. So one queue's content is in one
or two files of a chunk, and the rest of one message's events in one or two of the others.

A chunk has one segment of history, named after the last segment of the journal in it. The journal
begins a segment every 200 commits, which may be 40 s; each of them would be a file by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from math import ceil
from typing import NamedTuple

from sparkstore.compaction.plans.compact_plan import PositionRange
from sparkstore.compaction.plans.history_plan import Extent

CHUNK_BYTES, CHUNK_RECORDS = 256 << 20, 1_000_000
"""A chunk ends when it has so much: one task sorts it, on disk if it must."""
CONTENT_FILES, MOST_FILES = 12, 24
"""So many files have a chunk's content, and so many it has in all. One in twelve is less than a
tenth for a queue, and all twelve of them, with some others, less than twenty for a message."""
LEAST_FILE_BYTES = 256 << 10
"""Below that a file is not worth to be opened by itself."""

SMALL_BYTES, MERGED_BYTES = 32 << 20, 64 << 20
"""Smaller segments are put together, up to about so much."""
FEW_SEGMENTS = 8
"""So many small segments may lie side by side, and a segment have so many files too many."""
LONGEST_US = 86_400_000_000
"""Segments that are put together are of one day: retention goes by the age of a whole segment."""


class HistoryChunk(NamedTuple):
    """Positions that one task sorts and writes, and the segment of history that they get."""

    positions: PositionRange
    segment: int


def chunks(after: int, last: int, files: Iterable[Extent]) -> list[HistoryChunk]:
    """Cut what is moved from a journal into pieces; each piece ends where a segment of it does.

    Args:
        after: The last position that history has.
        last: The last one that it gets.
        files: What holds them, of the journal.
    """
    planned: list[HistoryChunk] = []
    start, size, ends = after, 0, last
    segments = groupby(sorted(files, key=lambda file: file.segment), lambda file: file.segment)
    for segment, group in segments:
        extents = [*group]
        ends = min(last, max(file.last for file in extents))
        size += sum(file.size_bytes for file in extents)
        if ends > start and (size >= CHUNK_BYTES or ends - start >= CHUNK_RECORDS):
            planned.append(HistoryChunk(PositionRange(start, ends), segment))
            start, size = ends, 0
        newest = segment
    if start < last:
        planned.append(HistoryChunk(PositionRange(start, last), newest))
    return planned


def rows_per_file(rows: int, bringing: int, size_bytes: int, count: int) -> int:
    """Return the number of rows of a file; 0: all of a chunk.

    Args:
        rows: How many rows all chunks have.
        bringing: Those of them that bring content.
        size_bytes: The size of all chunks.
        count: How many chunks there are.
    """
    files = min(CONTENT_FILES, size_bytes // count // LEAST_FILE_BYTES)
    if files < 2:
        return 0
    return max(ceil(bringing / (files * count)), ceil(rows / (2 * files * count)))


class HistorySegmentSize(NamedTuple):
    """Size of one segment of history, as Delta's log has it.

    Attributes:
        number: The number of the segment.
        last: Its largest position.
        size_bytes: The size of its files.
        file_count: How many they are.
        times: When its oldest and its newest record were taken, UTC µs.
    """

    number: int
    last: int
    size_bytes: int
    file_count: int
    times: tuple[int, int]


def mergeable(segments: Iterable[HistorySegmentSize], *, folded: int) -> list[list[int]]:
    """Numbers of the segments to write anew, each list as one; they lie side by side.

    The newest segment stays as it is, since history ends with it, and so does what is not folded.
    """
    runs: list[list[int]] = []
    run: list[HistorySegmentSize] = []
    for segment in sorted(segments)[:-1]:
        if segment.last >= folded:
            break
        if run and not _fits([*run, segment]):
            runs += _worth(run)
            run = []
        if segment.size_bytes < SMALL_BYTES:
            run.append(segment)
    return runs + _worth(run)


def _fits(run: Sequence[HistorySegmentSize]) -> bool:
    size = sum(segment.size_bytes for segment in run)
    oldest, newest = min(s.times[0] for s in run), max(s.times[1] for s in run)
    return (
        run[-1].size_bytes < SMALL_BYTES and size <= MERGED_BYTES and newest - oldest < LONGEST_US
    )


def _worth(run: Sequence[HistorySegmentSize]) -> list[list[int]]:
    many = any(segment.file_count > MOST_FILES + FEW_SEGMENTS for segment in run)
    return [[segment.number for segment in run]] if len(run) > FEW_SEGMENTS or many else []
