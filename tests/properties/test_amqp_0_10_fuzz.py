"""A connection of AMQP 0-10 is fed with bytes that are nearly that; see `fuzzing_0_10`.

`make soak` does so for ten minutes (`jobs.benchmarks.fuzz_amqp`).
"""

from __future__ import annotations

import pytest

from tests.support.amqp.fuzzing_0_10 import Fuzzed010

INPUTS = 250


@pytest.mark.slow
def test_nothing_a_peer_writes_breaks_a_broker() -> None:
    fuzzed = Fuzzed010(1)
    try:
        for _ in range(INPUTS):
            fuzzed.run()
        assert fuzzed.enqueued_count > 0, "nothing came through: the inputs are too bad"
    finally:
        fuzzed.close()
