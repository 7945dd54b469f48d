"""What may be appended to a history, and in which files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkstore.compaction.plans.compact_plan import PositionRange
from sparkstore.compaction.plans.history_plan import (
    FILE_BYTES,
    LEAST_FILE_BYTES,
    Extent,
    Opening,
    RecordTally,
    counts,
    cuts,
    end_of,
)


@pytest.mark.parametrize(
    ("found", "after", "last"),
    [
        (RecordTally(0, 0, None), 7, 7),
        (RecordTally(3, 8 + 9 + 10, 10), 7, 10),
        (RecordTally(2, 8 + 10, 10), 7, None),
        (RecordTally(3, 8 + 10 + 10, 10), 7, None),
        (RecordTally(3, 8 + 8 + 10, 10), 7, None),
        (RecordTally(4, 8 + 9 + 10 + 10, 10), 7, None),
        (RecordTally(2, 9 + 10, 10), 7, None),
        (RecordTally(0, 0, 5), 7, 7),  # a sparse history ends before it is gapless
    ],
)
def test_records_go_on_only_without_a_gap_and_each_once(
    found: RecordTally, after: int, last: int | None
) -> None:
    assert end_of(found, after) == last


@pytest.mark.parametrize(
    ("openings", "expected"),
    [
        ([], "epoch >= 0"),
        ([(10, 3), (4, 2)], "epoch >= 3"),
        ([(10, 3), (12, 4)], "epoch >= CASE WHEN position >= 12 THEN 4 ELSE 3 END"),
        ([(12, 4)], "epoch >= CASE WHEN position >= 12 THEN 4 ELSE 0 END"),
        # One of a lower epoch is a ghost itself; of two at one position the higher counts.
        ([(9, 3), (12, 2), (14, 3)], "epoch >= 3"),
        (
            [(15, 7), (9, 3), (12, 4), (12, 5), (13, 4)],
            "epoch >= CASE WHEN position >= 15 THEN 7 WHEN position >= 12 THEN 5"
            " WHEN position >= 12 THEN 4 ELSE 3 END",
        ),
    ],
)
def test_a_row_counts_if_no_higher_epoch_was_opened_before_it(
    openings: list[tuple[int, int]], expected: str
) -> None:
    assert counts([Opening(*opening) for opening in openings], after=10) == expected


HALF = FILE_BYTES // 2


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([], [(10, 40)]),
        ([Extent(40, 9 * HALF)], [(10, 40)]),
        ([Extent(20, HALF), Extent(30, HALF), Extent(40, HALF)], [(10, 30), (30, 40)]),
        ([Extent(40, HALF), Extent(20, 2 * HALF), Extent(30, HALF)], [(10, 20), (20, 40)]),
        ([Extent(20, 2 * HALF), Extent(20, 2 * HALF), Extent(99, 2 * HALF)], [(10, 20), (20, 40)]),
    ],
)
def test_records_are_cut_where_files_end_and_some_size_is_reached(
    files: list[Extent], expected: list[tuple[int, int]]
) -> None:
    assert cuts(10, 40, files, cores=1) == expected


def test_a_task_for_each_core_is_cut_if_it_is_worth_a_file() -> None:
    files = [Extent(last, LEAST_FILE_BYTES) for last in (20, 30, 40)]
    assert cuts(10, 40, files, cores=3) == [(10, 20), (20, 30), (30, 40)]
    assert cuts(10, 40, files, cores=99) == [(10, 20), (20, 30), (30, 40)]
    small = [Extent(last, LEAST_FILE_BYTES // 3) for last in (20, 30, 40)]
    assert cuts(10, 40, small, cores=3) == [(10, 40)]


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(1, 2 * FILE_BYTES)), max_size=20),
    st.integers(0, 60),
)
def test_pieces_cover_every_position_to_move_once(found: list[tuple[int, int]], after: int) -> None:
    files, first = [], 1
    for length, size_bytes in found:
        files.append(Extent(first + length - 1, size_bytes))
        first += length
    last = max(first - 1, after)
    if last == after:
        return
    result = cuts(after, last, [file for file in files if file.last > after], cores=1)
    assert [piece.after for piece in result] == [after, *(piece.last for piece in result[:-1])]
    assert result[-1].last == last
    assert all(piece.after < piece.last for piece in result)


def test_a_piece_ends_with_the_file_that_makes_it_large_enough() -> None:
    half = FILE_BYTES // 2
    files = [Extent(10, half), Extent(20, half), Extent(30, half), Extent(40, half)]
    assert cuts(0, 40, files, cores=1) == [PositionRange(0, 20), PositionRange(20, 40)]
