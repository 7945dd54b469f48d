"""Kill -9 and power cuts at each step of a run: nothing is lost, doubled or undone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.system.killed_at_step import STEPS
from tests.support.system.run_kill_loop import RunKillLoop

pytestmark = [pytest.mark.system, pytest.mark.slow]


@pytest.mark.parametrize("nth", [1, pytest.param(2, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("is_even", [True, pytest.param(False, marks=pytest.mark.thorough)])
def test_a_broker_that_dies_at_any_step_of_a_run_keeps_what_it_told(
    tmp_path: Path, is_even: bool, nth: int
) -> None:
    """Every second time the power is cut, too; the thorough ones do so the other times."""
    loop = RunKillLoop(tmp_path)
    for number, step in enumerate(STEPS):
        loop.round(step, nth=nth, power_cut=(number % 2 == 0) is is_even)
    loop.end()
    assert loop.kills == len(STEPS)
    assert loop.left > 0
    assert loop.redelivered > 0
