"""Kill -9 in the middle of replications: the next one goes on; `make soak` does more."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sparkstore import replicate
from sparkstore.root import Root, is_root, open_or_create_root, open_root
from tests.histories import Row, fold_rows
from tests.spark.support import expected, journal_rows, stored
from tests.spark.test_replicate import assert_is_fold_of, history, positions

TOP = Path(__file__).parents[2]
KILLS = int(os.environ.get("SPARKSTORE_JOB_KILLS", "5"))
PLACES = ("append checked", "fold started", "created", "appended", "folded")
JOB = (
    "import sys\n"
    "from sparkstore.session import local_session\n"
    "from sparkstore.replicate import run\n"
    "def at(boundary):\n"
    "    print(boundary, flush=True)\n"
    "spark = local_session('killed', heap='1g', java_options='-XX:TieredStopAtLevel=1')\n"
    "run(spark, sys.argv[1], sys.argv[2], at=at)\n"
)


def kill_a_job(primary: Root, replica: Path, place: str, delay_s: float) -> None:
    """Start a replication in a process of its own; kill that some time after a boundary."""
    job = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", JOB, str(primary.path), str(replica)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=TOP,
        env={**os.environ, "PYTHONPATH": str(TOP)},
    )
    assert job.stdout is not None
    assert place in (line.strip() for line in job.stdout)
    threading.Event().wait(delay_s)
    os.killpg(job.pid, signal.SIGKILL)
    job.wait(timeout=60)
    job.stdout.close()


def assert_is_valid(replica: Path, rows: list[Row]) -> None:
    """Whatever a kill left: records without a gap, and a state that is the fold up to P."""
    if is_root(replica):
        root = open_root(replica)
        assert positions(root) in ([*range(1, end + 1)] for end in range(len(rows) + 1))
        position, *folded = stored(root)
        assert tuple(folded) == expected(fold_rows(rows[:position]))


@pytest.mark.slow
def test_a_replication_killed_again_and_again_copies_each_record_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = history(12 + KILLS).history.rows
    primary, replica = open_or_create_root(tmp_path / "primary"), tmp_path / "replica"
    dice, size, end = random.Random(7), len(rows) // KILLS, 0
    for number in range(KILLS):
        begin, end = end, len(rows) if number == KILLS - 1 else end + size
        journal_rows(primary, rows[begin:end])
        kill_a_job(primary, replica, PLACES[number % len(PLACES)], dice.random())
        assert_is_valid(replica, rows[:end])
    replicate.run(spark, primary.path, replica)
    assert_is_fold_of(open_root(replica), rows)
