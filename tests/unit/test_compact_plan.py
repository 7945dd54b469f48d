"""What a compaction decides to do."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparkstore.compact_plan import (
    FILE_BYTES,
    Extent,
    Limits,
    Step,
    file_count,
    pieces,
    steps,
    target_condition,
)


def test_steps_cover_every_position_after_p_once_and_none_is_too_long() -> None:
    assert steps(10, 35, Limits(10)) == [Step(10, 20), Step(20, 30), Step(30, 35)]
    assert steps(10, 30, Limits(10)) == [Step(10, 20), Step(20, 30)]


def test_a_small_rest_goes_with_the_step_before() -> None:
    assert steps(0, 21, Limits(10)) == [Step(0, 10), Step(10, 21)]


def test_nothing_is_folded_when_state_is_as_far_as_history_or_farther() -> None:
    assert steps(10, 10, Limits(10)) == []
    assert steps(12, 10, Limits(10)) == []


def test_a_file_is_as_large_as_it_should_be_and_there_is_at_least_one() -> None:
    assert [file_count(size) for size in (0, 1, FILE_BYTES, FILE_BYTES + 1)] == [1, 1, 1, 2]


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(1, 2 * FILE_BYTES)), max_size=20),
    st.integers(0, 60),
)
def test_pieces_cover_every_position_to_move_once(found: list[tuple[int, int]], after: int) -> None:
    files, first = [], 1
    for length, size_bytes in found:
        files.append(Extent(first, first + length - 1, size_bytes))
        first += length
    last = max(first - 1, after)
    if last == after:
        return
    result = pieces(after, last, [file for file in files if file.last > after])
    assert [piece.after for piece in result] == [after, *(piece.last for piece in result[:-1])]
    assert result[-1].last == last
    assert all(piece.after < piece.last for piece in result)


def test_a_piece_ends_with_the_file_that_makes_it_large_enough() -> None:
    half = FILE_BYTES // 2
    files = [Extent(1, 10, half), Extent(11, 20, half), Extent(21, 30, half), Extent(31, 40, half)]
    assert pieces(0, 40, files) == [Step(0, 20), Step(20, 40)]


def test_the_target_condition_has_literals_only() -> None:
    assert target_condition({"meta", "wiring"}, {7, 3}) == (
        "(t.part IN ('meta', 'wiring') OR t.part = 'entry' AND t.block IN (3, 7))"
    )


def test_a_fold_that_only_adds_entries_reads_none() -> None:
    assert target_condition({"meta"}, set()) == "(t.part IN ('meta'))"
