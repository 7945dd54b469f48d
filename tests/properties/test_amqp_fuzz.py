"""A connection, its broker and its store are fed with bytes that are nearly AMQP; see `fuzzing`.

`make soak` does so for ten minutes (`jobs.benchmarks.fuzz_amqp`).
"""

from __future__ import annotations

import pytest

from tests.support.amqp.fuzzing import Fuzzed

INPUTS = 500


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_a_peer_writes_breaks_a_broker(seed: int) -> None:
    fuzzed = Fuzzed(seed)
    try:
        for _ in range(INPUTS):
            fuzzed.run()
        assert fuzzed.enqueued_count > 0, "nothing came through: the inputs are too bad"
        assert fuzzed.declared_count > 0, "no transaction was ever begun"
    finally:
        fuzzed.close()


@pytest.mark.slow
def test_one_seed_makes_the_same_inputs() -> None:
    """So that what a long run found is found again."""
    runs = []
    for _ in range(2):
        fuzzed = Fuzzed(7)
        runs.append([fuzzed.run() for _ in range(50)])
        fuzzed.close()
    assert runs[0] == runs[1]
