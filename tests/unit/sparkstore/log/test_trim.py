"""Which journal segments may go."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparkstore.log.trim import SegmentFacts, plan

FACTS = [SegmentFacts(1, 100, 10.0), SegmentFacts(2, 200, 20.0), SegmentFacts(3, 300, 30.0)]


def trimmed(open_segment: int = 4, folded: int = 300, now_s: float = 1000.0) -> list[int]:
    return plan(
        FACTS, open_segment=open_segment, folded_position=folded, now_s=now_s, grace_s=100.0
    )


def test_closed_folded_and_old_segments_go() -> None:
    assert trimmed() == [1, 2, 3]


def test_the_open_segment_stays() -> None:
    assert trimmed(open_segment=3) == [1, 2]


def test_a_segment_with_one_position_after_the_fold_stays() -> None:
    assert trimmed(folded=299) == [1, 2]
    assert trimmed(folded=200) == [1, 2]
    assert trimmed(folded=0) == []


def test_a_segment_that_a_query_may_be_reading_stays() -> None:
    assert trimmed(now_s=119.9) == [1]
    assert trimmed(now_s=120.0) == [1, 2]


@given(
    st.lists(st.builds(SegmentFacts, st.integers(0, 9), st.integers(0, 99), st.floats(0, 99))),
    st.integers(0, 9),
    st.integers(0, 99),
    st.floats(0, 300),
)
def test_nothing_goes_that_any_rule_holds_back(
    facts: list[SegmentFacts], open_segment: int, folded: int, now_s: float
) -> None:
    gone = plan(facts, open_segment=open_segment, folded_position=folded, now_s=now_s, grace_s=100)
    assert all(segment < open_segment for segment in gone)
    for segment in gone:
        assert any(
            f.segment == segment and f.last_position <= folded and now_s - f.changed_at_s >= 100
            for f in facts
        )
