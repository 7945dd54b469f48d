"""What a primary confirms without a standby, and when a standby may take over."""

from __future__ import annotations

import pytest

from sparkstore.shipping.steps import (
    Sighting,
    Standing,
    Synchrony,
    is_due_alone,
    may_confirm,
    may_join,
    may_take_over,
    next_look_s,
    seen_again,
)
from sparkstore.witness.holder import Holder

WHEN_THERE, ALWAYS = Synchrony(grace_s=5.0), Synchrony(is_always=True, grace_s=5.0)


def test_without_a_standby_a_primary_confirms_unless_it_never_may() -> None:
    assert may_confirm(Standing(), 7, WHEN_THERE)
    assert not may_confirm(Standing(), 7, ALWAYS)


@pytest.mark.parametrize("synchrony", [WHEN_THERE, ALWAYS])
def test_a_standby_that_counts_must_have_the_record(synchrony: Synchrony) -> None:
    assert not may_confirm(Standing("s", 6), 7, synchrony)
    assert may_confirm(Standing("s", 7), 7, synchrony)


def test_a_primary_is_alone_after_the_grace_of_a_silent_standby() -> None:
    silent = Standing("s", 6, silent_since_s=100.0)
    assert not is_due_alone(silent, 104.9, WHEN_THERE)
    assert is_due_alone(silent, 105.0, WHEN_THERE)
    assert not is_due_alone(silent, 1_000.0, ALWAYS)
    assert not is_due_alone(Standing("s", 6), 1_000.0, WHEN_THERE)
    assert not is_due_alone(Standing(), 1_000.0, WHEN_THERE)


def test_a_standby_joins_when_few_and_short_records_are_left() -> None:
    assert may_join(20_000, 1 << 20)
    assert not may_join(20_001, 1 << 20)
    assert not may_join(40, 40 << 20)


def test_a_standby_takes_over_in_step_and_after_the_lease() -> None:
    lease = Holder("p", 1, "w", 10.0, in_step="s")
    assert not may_take_over(lease, "s", 10.5)  # clocks may differ in speed by 5 %
    assert may_take_over(lease, "s", 10.6)
    assert not may_take_over(lease, "another", 1_000.0)
    assert not may_take_over(Holder("p", 1, "w", 10.0), "s", 1_000.0)


def test_a_closed_lease_is_not_waited_for_and_a_pause_is_kept() -> None:
    assert may_take_over(Holder("p", 1, "w", 10.0, is_closed=True, in_step="s"), "s", 0.0)
    paused = Holder("p", 1, "w", 10.0, is_closed=True, in_step="s", is_paused=True)
    assert not may_take_over(paused, "s", 1_000.0)


def test_an_object_that_names_the_standby_itself_is_a_take_over_to_be_finished() -> None:
    assert may_take_over(Holder("s", 2, "w", 10.0, is_closed=True), "s", 0.0)
    assert may_take_over(Holder("s", 2, "w", 10.0, is_paused=True), "s", 0.0)


def test_an_object_counts_as_unchanged_from_its_first_answer_on() -> None:
    first = seen_again(Sighting(), "t", 100.0, 100.5, 10.0)
    assert first == Sighting("t", 100.5, 100.5)
    later = seen_again(first, "t", 110.0, 110.1, 10.0)
    assert later == Sighting("t", 100.5, 110.1)
    assert seen_again(later, "u", 111.0, 111.1, 10.0) == Sighting("u", 111.1, 111.1)


def test_after_a_silence_of_the_witness_the_primary_has_a_lease_s_time_to_renew() -> None:
    before = Sighting("t", 100.0, 105.0)
    after = seen_again(before, "t", 115.1, 115.2, 10.0)
    assert after.since_s == 115.2
    assert seen_again(before, "t", 115.0, 115.2, 10.0).since_s == 100.0


def test_a_standby_looks_often_and_once_more_when_the_lease_has_just_run_out() -> None:
    lease = Holder("p", 1, "w", 3.0, in_step="s")
    assert next_look_s(lease, 0.0) == next_look_s(lease, 100.0) == 0.25
    assert 0.05 < next_look_s(lease, 3.1) < 0.06
    assert may_take_over(lease, "s", 3.1 + next_look_s(lease, 3.1))
    assert next_look_s(Holder("p", 1, "w", 3_600.0), 0.0) == 1.0
