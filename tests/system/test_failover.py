"""Whatever happens to two machines and their witness, what was confirmed is there, once.

`make soak-failover` does more of each row.
"""

from __future__ import annotations

import os
from pathlib import Path
from statistics import median

import pytest

from tests.support.objects import s3_server
from tests.support.system.pair_drill import OF_A_BUCKET, Drill, plan
from tests.support.system.pair_ledger import Verdict

KILLS = int(os.environ.get("SPARKSTORE_FAILOVERS", "2"))
"""Of the primary; of each other row three for ten of these."""
OTHERS = max(1, KILLS * 3 // 10)
ONLY = os.environ.get("SPARKSTORE_FAILOVER_ROWS", "")
LEASE_S = 3.0 if KILLS >= 10 else 1.5
_ROWS_A_PAIR = 20
"""After so many there is a verdict, and another pair: what is cut off has proved something, too."""


def rounds() -> list[list[str]]:
    """Return the rows of each pair."""
    names = ONLY.split(",") * OTHERS if ONLY else plan(KILLS, OTHERS, seed=1)
    return [names[first : first + _ROWS_A_PAIR] for first in range(0, len(names), _ROWS_A_PAIR)]


ROUNDS = rounds()


@pytest.mark.system
@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(ROUNDS)))
def test_a_pair_keeps_what_it_confirmed_whatever_happens_to_it(tmp_path: Path, number: int) -> None:
    run(Drill(tmp_path, LEASE_S, seed=number + 1), ROUNDS[number])


@pytest.mark.system
@pytest.mark.slow
def test_so_does_one_whose_witness_is_a_bucket_beyond_a_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with s3_server.served(monkeypatch) as server:
        names = [*OF_A_BUCKET] * OTHERS if OTHERS > 1 else [*OF_A_BUCKET[:2]]
        port = int(server.endpoint.rpartition(":")[2])
        run(Drill(tmp_path, LEASE_S, seed=1, bucket=port), names)


def run(drill: Drill, names: list[str]) -> None:
    """Do what the rows say, and judge."""
    try:
        drill.run(names)
        verdict = drill.end()
    finally:
        drill.load.stop()
        drill.pair.end()
    assert verdict == Verdict([], [], [], [], [], [])
    assert len(drill.load.accepted) > 10 * len(names)
    assert len(drill.load.moved) > 10 * len(names)
    assert len(drill.load.branches.prepared) > 2 * len(names)
    if drill.took_s:
        took = f"p50 {median(drill.took_s):.1f} s, worst {max(drill.took_s):.1f} s"
        print(f"{len(drill.took_s)} kills, to the first answer with a lease of {LEASE_S} s: {took}")
    print("planned switches, seconds:", *(f"{one:.2f}" for one in sorted(drill.switched_s)))
    print(f"{len(drill.load.accepted)} sends and {len(drill.load.moved)} transactions confirmed")
    print(f"{len(drill.load.branches.prepared)} branches prepared")
    print(f"no offence in {len(names)} events")
