"""Kill -9 in the middle of replications: the next one goes on; `make soak` does more."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sparkstore.replication import replicate
from sparkstore.tables.root import is_root, open_or_create_root, open_root
from tests.support.histories.histories import Row, fold_rows
from tests.support.spark.killing import KILLS, kill_a_job
from tests.support.spark.replicated import assert_is_fold_of, history, positions
from tests.support.spark.tables import expected, journal_rows, stored

PLACES = ("append checked", "fold started", "created", "appended", "folded")
CALL = "replicate.run(spark, root, sys.argv[2], at=at)"


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
        arguments, place = [str(primary.path), str(replica)], PLACES[number % len(PLACES)]
        kill_a_job(CALL, arguments, place, dice.random())
        assert_is_valid(replica, rows[:end])
    replicate.run(spark, primary.path, replica)
    assert_is_fold_of(open_root(replica), rows)
