"""The fold of DataFrames and the views equal the oracle, wherever the tables were cut."""

from __future__ import annotations

import os
import random
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from pyspark.sql import SparkSession

from sparkstore import compact
from sparkstore.compact_plan import Limits
from sparkstore.root import Root, open_or_create_root
from tests.histories import Layers, fold_rows
from tests.history_builder import STEPS, build_history
from tests.spark.killing import Stopped, stop_at
from tests.spark.links import expected_links, stored_links, viewed_links
from tests.spark.support import (
    assert_views_are,
    expected,
    journal_rows,
    stored,
    stored_staged,
    trim,
    viewed,
)
from tests.strategies import layers


def _drawn(seed: int, state_part: float, history_part: float, steps: int = 150) -> Layers:
    """A long history of chance, cut so that state and history hold these parts of it."""
    chance = random.Random(seed)
    history = build_history(
        [
            (chance.randrange(len(STEPS)), chance.randrange(60), chance.randrange(60))
            for _ in range(steps)
        ]
    )
    state_position = int(history.last_position * state_part)
    history_position = int(history.last_position * history_part)
    return Layers(history, state_position, history_position, state_position // 7 * 7 + 1, 7)


SOAK = os.environ.get("HYPOTHESIS_PROFILE") == "soak" or "SPARKSTORE_SOAK" in os.environ
"""An example takes half a minute: without soak, only those that are named run."""


@settings(
    max_examples=50,
    deadline=None,
    phases=[Phase.explicit, Phase.generate, Phase.shrink] if SOAK else [Phase.explicit],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@example(_drawn(1, 0.4, 0.7))
@example(_drawn(2, 0.0, 0.5))
@given(layers(max_steps=200))
@pytest.mark.slow
@pytest.mark.thorough
def test_state_at_any_position_and_a_tail_equal_the_oracle(
    spark: SparkSession, found: Layers
) -> None:
    rows, last = found.history.rows, found.history.last_position
    with TemporaryDirectory() as folder:
        root = open_or_create_root(Path(folder) / "root")
        _commit(root, found, 0, found.state_position)
        compact.run(spark, root, limits=Limits(found.state_position // 2 + 1))
        assert stored(root) == (
            found.state_position,
            *expected(fold_rows(rows[: found.state_position])),
        )
        assert stored_staged(root) == fold_rows(rows[: found.state_position]).staged
        assert stored_links(root) == expected_links(fold_rows(rows[: found.state_position]))
        trim(root, found.journal_start)
        _commit(root, found, found.state_position, found.history_position)
        with pytest.raises(Stopped):
            compact.run(spark, root, at=stop_at("appended"))
        _commit(root, found, found.history_position, last)
        assert_views_are(spark, root, fold_rows(rows))
        assert viewed_links(spark) == expected_links(fold_rows(rows))
        compact.run(spark, root, limits=Limits((last - found.state_position) // 2 + 1))
        assert stored(root) == (last, *expected(fold_rows(rows)))
        assert stored_staged(root) == fold_rows(rows).staged
        assert stored_links(root) == expected_links(fold_rows(rows))
        assert viewed(spark) == expected(fold_rows(rows))


def _commit(root: Root, found: Layers, after: int, last: int) -> None:
    every = [*found.history.rows, *found.history.ghosts]
    part = [row for row in every if after < row.position <= last]
    journal_rows(root, part, found.segment_records)
