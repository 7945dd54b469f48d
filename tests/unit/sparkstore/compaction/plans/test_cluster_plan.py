"""Where rows of history come to lie: chunks, rows of a file, segments that are put together."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkstore.compaction.plans.cluster_plan import (
    CHUNK_BYTES,
    CHUNK_RECORDS,
    CONTENT_FILES,
    FEW_SEGMENTS,
    LEAST_FILE_BYTES,
    LONGEST_US,
    MOST_FILES,
    SMALL_BYTES,
    HistoryChunk,
    HistorySegmentSize,
    chunks,
    mergeable,
    rows_per_file,
)
from sparkstore.compaction.plans.compact_plan import PositionRange
from sparkstore.compaction.plans.history_plan import Extent


def test_many_short_segments_of_the_journal_become_one_of_history() -> None:
    files = [Extent(10 * (n + 1), 1000, n) for n in range(50)]
    assert chunks(0, 500, files) == [HistoryChunk(PositionRange(0, 500), 49)]


@pytest.mark.parametrize(
    "files",
    [
        [Extent(10, CHUNK_BYTES, 3), Extent(40, 1, 4)],
        [Extent(10, CHUNK_BYTES // 2, 3), Extent(9, CHUNK_BYTES // 2, 3), Extent(40, 1, 4)],
    ],
)
def test_a_chunk_that_is_large_enough_ends_with_its_segment(files: list[Extent]) -> None:
    assert chunks(0, 40, files) == [
        HistoryChunk(PositionRange(0, 10), 3),
        HistoryChunk(PositionRange(10, 40), 4),
    ]


@given(
    st.lists(st.tuples(st.integers(1, CHUNK_RECORDS), st.integers(1, CHUNK_BYTES)), min_size=1),
    st.integers(0, 100),
)
def test_chunks_follow_one_another_without_a_gap_and_their_segments_rise(
    lengths: list[tuple[int, int]], after: int
) -> None:
    files, last = list[Extent](), after
    for number, (length, size_bytes) in enumerate(lengths):
        last += length
        files.append(Extent(last, size_bytes, number))
    found = chunks(after, last, files)
    assert (found[0].positions.after, found[-1].positions.last) == (after, last)
    assert all(one.positions.last == other.positions.after for one, other in pairwise(found))
    assert all(one.segment < other.segment for one, other in pairwise(found))
    assert all(chunk.positions.after < chunk.positions.last for chunk in found)


@pytest.mark.parametrize("share", [0, 1, 3, 50, 100])
def test_a_chunk_has_as_many_files_as_one_question_may_open(share: int) -> None:
    rows = 300_000
    most = rows_per_file(rows, rows * share // 100, CHUNK_BYTES, 1)
    assert rows / most <= MOST_FILES
    assert rows * share / 100 / most <= CONTENT_FILES


def test_what_is_small_is_one_file() -> None:
    assert rows_per_file(1000, 300, 2 * LEAST_FILE_BYTES - 1, 1) == 0


def _segments(count: int, size_bytes: int = 1000, file_count: int = 1) -> list[HistorySegmentSize]:
    return [
        HistorySegmentSize(n, 10 * n + 10, size_bytes, file_count, (n, n + 1)) for n in range(count)
    ]


def test_small_segments_are_put_together_when_they_are_many() -> None:
    few = _segments(FEW_SEGMENTS + 1)
    assert mergeable(few, folded=1000) == []
    many = _segments(FEW_SEGMENTS + 2)
    assert mergeable(many, folded=1000) == [[*range(FEW_SEGMENTS + 1)]], "but for the newest"


def test_what_is_not_folded_stays_as_it_is() -> None:
    many = _segments(2 * FEW_SEGMENTS)
    assert mergeable(many, folded=10 * FEW_SEGMENTS) == []


def test_a_large_segment_parts_those_beside_it() -> None:
    many = _segments(3 * FEW_SEGMENTS)
    many[FEW_SEGMENTS] = many[FEW_SEGMENTS]._replace(size_bytes=SMALL_BYTES)
    assert mergeable(many, folded=1000) == [[*range(FEW_SEGMENTS + 1, 3 * FEW_SEGMENTS - 1)]]


def test_segments_of_different_days_stay_apart() -> None:
    many = [
        segment._replace(times=(segment.number * LONGEST_US, segment.number * LONGEST_US))
        for segment in _segments(3 * FEW_SEGMENTS)
    ]
    assert mergeable(many, folded=1000) == []


def test_a_segment_of_many_files_is_written_anew_once() -> None:
    crowded = _segments(2, file_count=MOST_FILES + FEW_SEGMENTS + 1)
    assert mergeable(crowded, folded=1000) == [[0]]
    assert mergeable(_segments(2, file_count=MOST_FILES + 1), folded=1000) == []
