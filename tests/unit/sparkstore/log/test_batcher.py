"""When a Delta commit is due, what is in it, and when a segment closes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparkstore.log.batcher import (
    ClosedSegment,
    CommitBatcher,
    CommitLimits,
    RecordGroup,
    SegmentLimits,
    Segments,
)

LIMITS = CommitLimits(interval_ms=200, max_bytes=1000)


def group(first: int, size: int) -> RecordGroup:
    return RecordGroup(first, (), size)


def test_nothing_is_due_while_nothing_waits() -> None:
    batcher = CommitBatcher(LIMITS)
    batcher.hurry()
    assert batcher.due_at_ms(now_ms=5) is None
    assert batcher.take() == []


def test_a_commit_is_due_when_its_oldest_group_has_waited_the_interval() -> None:
    batcher = CommitBatcher(LIMITS)
    batcher.add(group(1, 10), now_ms=1_000)
    batcher.add(group(2, 10), now_ms=1_150)
    assert batcher.due_at_ms(now_ms=1_160) == 1_200


def test_a_commit_is_due_at_once_when_enough_bytes_wait() -> None:
    batcher = CommitBatcher(LIMITS)
    batcher.add(group(1, 999), now_ms=1_000)
    assert batcher.due_at_ms(now_ms=1_001) == 1_200
    batcher.add(group(2, 1), now_ms=1_001)
    assert batcher.due_at_ms(now_ms=1_001) == 1_001


def test_a_flush_makes_everything_that_waits_due_and_nothing_after_it() -> None:
    batcher = CommitBatcher(LIMITS)
    batcher.add(group(1, 900), now_ms=0)
    batcher.add(group(2, 900), now_ms=0)
    batcher.add(group(3, 900), now_ms=0)
    batcher.hurry()
    assert batcher.due_at_ms(now_ms=1) == 1
    batcher.take()
    assert batcher.due_at_ms(now_ms=2) == 2
    batcher.take()
    batcher.add(group(4, 10), now_ms=3)
    assert batcher.due_at_ms(now_ms=3) == 203


def test_a_group_is_never_split_however_large() -> None:
    batcher = CommitBatcher(LIMITS)
    batcher.add(group(1, 5000), now_ms=0)
    batcher.add(group(2, 1), now_ms=0)
    assert [taken.first_position for taken in batcher.take()] == [1]
    assert [taken.first_position for taken in batcher.take()] == [2]


@given(st.lists(st.integers(0, 3000), max_size=40))
def test_groups_leave_once_in_the_order_they_came_and_bytes_are_counted(sizes: list[int]) -> None:
    batcher = CommitBatcher(LIMITS)
    for first, size in enumerate(sizes):
        batcher.add(group(first, size), now_ms=first)
    assert batcher.waiting_bytes == sum(sizes)
    taken: list[RecordGroup] = []
    while commit := batcher.take():
        assert sum(g.packed_bytes for g in commit[:-1]) < LIMITS.max_bytes
        taken += commit
    assert [g.first_position for g in taken] == [*range(len(sizes))]
    assert batcher.waiting_bytes == 0


SEGMENT = SegmentLimits(records=100, commits=4, age_ms=60_000)


def test_an_empty_segment_never_closes() -> None:
    segments = Segments(SEGMENT, first=7)
    assert segments.roll(now_ms=10**9) is None
    assert segments.current == 7


def test_a_segment_closes_at_its_records_or_commits_or_age() -> None:
    for adds, at in ([(100, 0)], 0), ([(1, 0)] * 4, 0), ([(1, 5_000)], 65_000):
        segments = Segments(SEGMENT, first=7)
        for records, now_ms in adds:
            segments.add(records, 50, now_ms=now_ms)
        closed = segments.roll(now_ms=at)
        assert closed == ClosedSegment(7, len(adds), 50 * len(adds))
        assert segments.current == 8
        assert segments.roll(now_ms=at) is None


def test_a_segment_under_every_limit_stays_open() -> None:
    segments = Segments(SEGMENT, first=1)
    for _ in range(3):
        segments.add(33, 50, now_ms=5_000)
    assert segments.roll(now_ms=64_999) is None


def test_only_several_small_files_are_worth_merging() -> None:
    assert ClosedSegment(1, 200, 200 * 1000).is_worth_merging
    assert not ClosedSegment(1, 1, 1000).is_worth_merging
    assert not ClosedSegment(1, 4, 4 << 20).is_worth_merging
