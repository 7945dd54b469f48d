"""The fold of DataFrames and the views equal the oracle, wherever the tables were cut."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from pyspark.sql import SparkSession

from sparkstore import compact, views
from sparkstore.compact_plan import Limits
from sparkstore.root import open_or_create_root
from tests.histories import Layers, fold_rows
from tests.spark.support import assert_views_are, expected, journal_rows, stored, trim, viewed
from tests.strategies import layers


class _Stopped(Exception):
    """The job was stopped by a test."""


def _stop_at(boundary: str) -> Callable[[str], None]:
    def at(reached: str) -> None:
        if reached == boundary:
            raise _Stopped

    return at


@settings(
    max_examples=2,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(layers(max_steps=60))
@pytest.mark.slow
def test_state_at_any_position_and_a_tail_equal_the_oracle(
    spark: SparkSession, found: Layers
) -> None:
    every = [*found.history.rows, *found.history.ghosts]
    with TemporaryDirectory() as folder:
        root = open_or_create_root(Path(folder) / "root")
        for cut in (found.state_position, found.history_position, found.history.last_position):
            done = [row.position for row in every]
            journal_rows(root, [row for row in every if row.position <= cut], found.segment_records)
            every = [row for row in every if row.position > cut]
            assert len(every) <= len(done)
            views.register(spark, root)
            assert viewed(spark) == expected(fold_rows(found.history.rows[:cut]))
            if cut == found.state_position and cut:
                compact.run(spark, root, limits=Limits(max(1, cut // 2)))
                state = fold_rows(found.history.rows[:cut])
                assert stored(root) == (cut, *expected(state))
                trim(root, found.journal_start)
            elif cut == found.history_position:
                with pytest.raises(_Stopped):
                    compact.run(spark, root, at=_stop_at("appended"))
        assert_views_are(spark, root, fold_rows(found.history.rows))
        compact.run(spark, root, limits=Limits(7))
        state = fold_rows(found.history.rows)
        assert stored(root) == (found.history.last_position, *expected(state))
        assert_views_are(spark, root, state)
