"""Whoever serves is killed, frozen or stopped under load: nothing that was accepted is lost.

`make soak-failover` does more of each.
"""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import pytest

from tests.support.system.pair_drill import take_over, under_load

KILLS = int(os.environ.get("SPARKSTORE_FAILOVERS", "10"))
EACH = [signal.SIGSTOP, signal.SIGTERM]


@pytest.mark.system
@pytest.mark.slow
def test_a_standby_takes_over_from_who_was_killed_frozen_or_stopped_and_loses_nothing(
    tmp_path: Path,
) -> None:
    random_ = random.Random(1)
    signals = [signal.SIGKILL] * KILLS + EACH * max(1, KILLS // 10)
    random_.shuffle(signals)
    with under_load(tmp_path) as (pair, load):
        took_s = [take_over(pair, load, number, random_) for number in signals]
        pair.primary_in_step()  # the one that came last is a standby again
        load.stop()
        load.drain()
    assert {*load.accepted} <= load.received
    assert len(load.accepted) > 10 * len(signals)
    print("seconds to the first answer:", *(f"{one:.1f}" for one in sorted(took_s)))
