"""What a compaction decides to do."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sparkstore.compact_plan import (
    FILE_BYTES,
    IdRange,
    Limits,
    Step,
    file_count,
    joined,
    steps,
    target_condition,
)


def test_steps_cover_every_position_after_p_once_and_none_is_too_long() -> None:
    assert steps(10, 35, Limits(10)) == [Step(10, 20), Step(20, 30), Step(30, 35)]
    assert steps(10, 30, Limits(10)) == [Step(10, 20), Step(20, 30)]


def test_nothing_is_folded_when_state_is_as_far_as_history_or_farther() -> None:
    assert steps(10, 10, Limits(10)) == []
    assert steps(12, 10, Limits(10)) == []


def test_a_file_is_as_large_as_it_should_be_and_there_is_at_least_one() -> None:
    assert [file_count(size) for size in (0, 1, FILE_BYTES, FILE_BYTES + 1)] == [1, 1, 1, 2]


def test_ranges_are_joined_over_the_smallest_gaps() -> None:
    ranges = [IdRange(1, 2), IdRange(4, 5), IdRange(100, 100), IdRange(200, 201)]
    assert joined(ranges, 3) == [IdRange(1, 5), IdRange(100, 100), IdRange(200, 201)]
    assert joined(ranges, 1) == [IdRange(1, 201)]


@given(st.lists(st.tuples(st.integers(1, 500), st.integers(0, 20)), max_size=30), st.integers(1, 8))
def test_joined_ranges_cover_every_id_and_are_few(found: list[tuple[int, int]], limit: int) -> None:
    ranges = [IdRange(first, first + length) for first, length in found]
    result = joined(ranges, limit)
    covered = {number for part in result for number in range(part.first, part.last + 1)}
    assert covered >= {number for part in ranges for number in range(part.first, part.last + 1)}
    assert len(result) <= limit
    assert all(a.last < b.first for a, b in pairwise(result))


def test_the_target_condition_has_literals_only() -> None:
    assert target_condition({"meta", "entry"}, [IdRange(1, 5)]) == (
        "t.part IN ('entry', 'meta') AND (t.message_id IS NULL OR t.message_id BETWEEN 1 AND 5)"
    )
