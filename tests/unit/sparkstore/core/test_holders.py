"""Since when holders are there."""

from __future__ import annotations

from sparkstore.core.fold import State
from sparkstore.core.holders import MEMBER_CATEGORY, since_by_holder, since_of


def test_members_and_branches_in_doubt_have_a_time_and_nobody_else_has() -> None:
    state = State()
    state.configured[MEMBER_CATEGORY, "m"] = '{"incarnations": ["a"], "since_us": 5}'
    state.configured[MEMBER_CATEGORY, "old"] = '{"incarnations": ["a"]}'
    state.configured["other", "n"] = '{"since_us": 6}'
    state.prepared["1:67:"] = '{"operations": [], "since_us": 7}'
    since = since_by_holder(state)
    holders = ("m", "m/link", "xid:1:67:", "old/link", "n/link", "mm/link", "xid:1:68:")
    assert [since_of(each, since) for each in holders] == [5, 5, 7, None, None, None, None]
