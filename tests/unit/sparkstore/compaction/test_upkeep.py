"""What of history has passed, what is worth rewriting, which files must stay."""

from __future__ import annotations

from typing import Any

from sparkstore.compaction.retention import HistorySegment, passed, worth_rewriting
from sparkstore.compaction.upkeep import MOST_FILES, SMALL_BYTES, crowded, kept_s

DAY_US = 86_400_000_000
NOW = 100 * DAY_US


def _segment(number: int, *, days_old: float) -> HistorySegment:
    """Ten positions for each segment."""
    return HistorySegment(
        number, 10 * number + 1, 10 * number + 10, 10, int(NOW - days_old * DAY_US)
    )


def _passed(segments: list[HistorySegment], *, start: int = 1, folded: int = 1000) -> int:
    return passed(segments, start=start, folded=folded, history_days=30, now=NOW)


def test_segments_pass_from_the_oldest_on() -> None:
    segments = [_segment(1, days_old=35), _segment(0, days_old=40), _segment(2, days_old=3)]
    assert _passed(segments) == 21


def test_a_segment_behind_a_young_one_waits_for_it() -> None:
    assert _passed([_segment(0, days_old=1), _segment(1, days_old=40)]) == 1


def test_what_is_not_folded_has_not_passed() -> None:
    segments = [_segment(0, days_old=40), _segment(1, days_old=40)]
    assert _passed([*segments, _segment(2, days_old=0)], folded=19) == 11


def test_a_clock_that_went_back_makes_nothing_old() -> None:
    assert _passed([_segment(0, days_old=-5), _segment(1, days_old=-5)]) == 1


def test_history_does_not_pass_beyond_a_gap() -> None:
    segments = [_segment(number, days_old=40) for number in (0, 2, 3)]
    assert _passed(segments) == 11


def test_what_passed_before_does_not_pass_again() -> None:
    segments = [_segment(number, days_old=40) for number in (0, 1, 2)]
    assert _passed(segments, start=11) == 21


def test_the_newest_segment_never_passes_so_that_history_ends_at_or_after_p() -> None:
    assert _passed([_segment(0, days_old=50)]) == 1
    assert _passed([_segment(0, days_old=50), _segment(1, days_old=40)]) == 11


def test_a_segment_is_rewritten_when_half_of_it_can_go() -> None:
    segment = _segment(0, days_old=40)
    assert worth_rewriting(segment, 5)
    assert not worth_rewriting(segment, 6)


def test_a_place_is_crowded_when_it_has_more_small_files_than_it_may() -> None:
    places = [1] * (MOST_FILES + 1) + [2] * MOST_FILES + [None] * 100
    large = [(3, SMALL_BYTES)] * (MOST_FILES + 1)
    assert crowded([*((place, 1) for place in places), *large]) == {1}


def _commits(*seconds_ago: int) -> list[dict[str, Any]]:
    return [{"operation": "MERGE", "timestamp": 1_000_000 - 1000 * ago} for ago in seconds_ago]


def test_files_that_the_last_fold_removed_stay() -> None:
    assert kept_s(_commits(5, 60, 600), 1.0, 1_000_000) == 120.0


def test_files_that_a_query_may_read_stay() -> None:
    assert kept_s(_commits(5, 60, 600), 3600.0, 1_000_000) == 3600.0


def test_everything_stays_that_the_first_two_folds_removed() -> None:
    assert kept_s(_commits(5), 1.0, 1_000_000) == 1060.0
