"""Four folds say the same of any history: the oracle, recovery, the job's and the SQL views'.

Histories are generated, wherever the tables were cut; dozens of them in one root (`bundles`),
so that each query checks all of them. `SPARKSTORE_FOLD_SECONDS` (of `make soak`) goes on for so
long with other ones; `SPARKSTORE_FOLD_SEED` tries one again that a failure named.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from pyspark.sql import SparkSession

from sparkstore.compaction import compact
from sparkstore.recovery.recovery import recover
from sparkstore.tables.root import Root, open_or_create_root
from tests.support.histories.bundles import bundled, drawn_history, drawn_layers
from tests.support.histories.histories import Layers, fold_rows
from tests.support.histories.seeds import seed
from tests.support.spark.killing import Stopped, stop_at
from tests.support.spark.links import expected_links, stored_links, viewed_links
from tests.support.spark.tables import (
    assert_views_are,
    expected,
    journal_rows,
    stored,
    stored_staged,
    trim,
)

MANY, MOST_STEPS = 40, 50
"""Histories in a bundle, and steps of the longest."""


@pytest.mark.slow
@pytest.mark.usefixtures("many_tasks")
def test_oracle_recovery_job_and_views_agree_on_forty_histories_in_one_root(
    spark: SparkSession,
) -> None:
    _check(spark, seed(), MANY)


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.usefixtures("many_tasks")
def test_they_agree_for_as_long_as_it_was_asked_for(spark: SparkSession) -> None:
    until = time.monotonic() + float(os.environ.get("SPARKSTORE_FOLD_SECONDS", "0"))
    number = 0
    while time.monotonic() < until:
        number += 1
        # One alone lacks most kinds of records, as the roots of most other tests do.
        _check(spark, seed(), 1 if number % 4 == 0 else MANY)


def _check(spark: SparkSession, seed: int, count: int) -> None:
    """Tell so many histories to one root, and ask all four at each moment of its life."""
    chance = random.Random(seed)
    history = bundled(chance, [drawn_history(chance, MOST_STEPS) for _ in range(count)])
    try:
        _tell(spark, drawn_layers(chance, history))
    except BaseException as reason:
        reason.add_note(f"SPARKSTORE_FOLD_SEED={seed} is this one, of {count} histories")
        raise


def _tell(spark: SparkSession, found: Layers) -> None:
    rows, last = found.history.rows, found.history.last_position
    with TemporaryDirectory() as folder:
        root = open_or_create_root(Path(folder) / "root")
        _commit(root, found, 0, found.state_position)
        compact.run(spark, root)
        _assert_folded(root, found, found.state_position)
        trim(root, found.journal_start)
        _commit(root, found, found.state_position, found.history_position)
        with pytest.raises(Stopped):
            compact.run(spark, root, at=stop_at("appended"))
        _commit(root, found, found.history_position, last)
        assert_views_are(spark, root, fold_rows(rows))
        assert viewed_links(spark) == expected_links(fold_rows(rows))
        assert recover(root).state == fold_rows(rows)
        compact.run(spark, root)
        _assert_folded(root, found, last)


def _assert_folded(root: Root, found: Layers, position: int) -> None:
    """`state` is the oracle's fold up to a position, and recovery reads it so."""
    state = fold_rows(found.history.rows[:position])
    assert stored(root) == (position, *expected(state))
    assert stored_staged(root) == state.staged
    assert stored_links(root) == expected_links(state)
    assert recover(root).state == state


def _commit(root: Root, found: Layers, after: int, last: int) -> None:
    every = [*found.history.rows, *found.history.ghosts]
    part = [row for row in every if after < row.position <= last]
    journal_rows(root, part, found.segment_records)
