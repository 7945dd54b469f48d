"""Kill -9 at random points of a mixed load: what was told stays true. `make soak` does more."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.system.kill_loop import run

ROUNDS = int(os.environ.get("SPARKSTORE_KILLS", "10"))


@pytest.mark.system
@pytest.mark.slow
def test_a_store_killed_again_and_again_keeps_what_it_told(tmp_path: Path) -> None:
    loop = run(tmp_path, ROUNDS, seed=1)
    assert loop.rounds == ROUNDS
    assert loop.known.answered > 100


@pytest.mark.system
@pytest.mark.slow
def test_a_mirror_that_takes_the_first_stores_place_has_all_that_was_told(tmp_path: Path) -> None:
    loop = run(tmp_path, max(6, ROUNDS // 2), seed=2, is_mirrored=True)
    assert loop.promoted >= 1
    assert loop.branches >= 1
    assert loop.known.answered > 100
