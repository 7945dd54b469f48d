"""Durable links of a client written by others, resumed after each kill -9: once each, none lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.system.link_kill_loop import LinkKillLoop

pytestmark = [pytest.mark.system, pytest.mark.slow]

KILLS = int(os.environ.get("SPARKSTORE_LINK_KILLS", "2"))


@pytest.mark.parametrize(
    ("sends_second", "takes_second"),
    [
        pytest.param(False, True, id="first-second"),
        pytest.param(True, False, id="second-first"),
        pytest.param(True, True, id="second-second", marks=pytest.mark.thorough),
    ],
)
def test_what_is_sent_and_taken_through_kills_is_there_exactly_once(
    tmp_path: Path, *, sends_second: bool, takes_second: bool
) -> None:
    """But for a taker that settles first: what it settled just before a kill can come again."""
    loop = LinkKillLoop(tmp_path, seed=1)
    try:
        told = loop.run(KILLS, sends_second=sends_second, takes_second=takes_second)
    finally:
        loop.end()
    assert told.kills == KILLS
    assert told.sent > KILLS
    numbers = list(range(told.sent))
    assert told.other == {}
    assert sorted(told.accepted) == numbers
    assert sorted(told.taken) == numbers
    if takes_second:
        assert told.twice == []
