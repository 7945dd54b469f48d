"""What a compaction decides to do."""

from __future__ import annotations

from sparkstore.compaction.plans.compact_plan import Limits, PositionRange, steps, target_condition


def test_steps_cover_every_position_after_p_once_and_none_is_too_long() -> None:
    assert steps(10, 35, Limits(10)) == [
        PositionRange(10, 20),
        PositionRange(20, 30),
        PositionRange(30, 35),
    ]
    assert steps(10, 30, Limits(10)) == [PositionRange(10, 20), PositionRange(20, 30)]


def test_a_small_rest_goes_with_the_step_before() -> None:
    assert steps(0, 21, Limits(10)) == [PositionRange(0, 10), PositionRange(10, 21)]


def test_nothing_is_folded_when_state_is_as_far_as_history_or_farther() -> None:
    assert steps(10, 10, Limits(10)) == []
    assert steps(12, 10, Limits(10)) == []


def test_the_target_condition_has_literals_only() -> None:
    assert target_condition({"meta", "wiring"}, {7, 3}) == (
        "(t.part IN ('meta', 'wiring') OR t.part = 'entry' AND t.block IN (3, 7))"
    )


def test_a_fold_that_only_adds_entries_reads_none() -> None:
    assert target_condition({"meta"}, set()) == "(t.part IN ('meta'))"
