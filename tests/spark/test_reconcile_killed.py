"""A repair that ends anywhere has changed nothing, or all of a step; the next run does the rest."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sparkstore.reconcile import reconcile
from sparkstore.reconcile.catalogue import ERROR
from sparkstore.reconcile.findings import DONE
from sparkstore.reconcile.reconcile import ReconcileReport
from sparkstore.recovery.recovery import recover
from sparkstore.tables.delta_files import log_file
from sparkstore.tables.root import Root
from sparkstore.views import views
from tests.support.histories.histories import fold_rows
from tests.support.roots.damage import append, zeroed
from tests.support.spark.killing import KILLS, Stopped, kill_a_job, stop_at
from tests.support.spark.planted import CONFIG, HISTORY, REPAIRED_TAIL, H, planted, rows_of
from tests.support.spark.tables import VIEWED, expected, stored, viewed

CALL = """
config = StoreConfig(wal_file_bytes=1 << 20)
reconcile.run(spark, root, repair=True, purge_lost=True, config=config, at=at)
"""
PLACES = ("looked", "history", "state", "looked", "store")


def repaired(spark: SparkSession, root: Root, boundary: str = "") -> ReconcileReport:
    """One repair of everything; stopped at a boundary if there is one."""
    return reconcile.run(
        spark, root, repair=True, purge_lost=True, config=CONFIG, at=stop_at(boundary)
    )


def assert_is_repaired(spark: SparkSession, root: Root, before: list[dict[str, object]]) -> None:
    """One run more finds only what nobody can repair; views and recovery say the same."""
    report = repaired(spark, root)
    left = [row for row in report.findings if row["severity"] == ERROR and row["repair"] != DONE]
    assert {row["check"] for row in left} == {"transactions_are_whole", "requests_rise"}
    assert rows_of(root) == before
    assert stored(root) == (H, *expected(fold_rows(HISTORY.rows[:H])))
    views.register(spark, root, VIEWED)
    assert viewed(spark) == expected(recover(root).state)


def assert_nothing_is_lost(root: Root, before: list[dict[str, object]]) -> None:
    """Whatever a kill left: history as it was damaged, or as it was before; the journal whole."""
    table = DeltaTable(str(root.history))
    lost = [uri for uri in table.file_uris() if not Path(uri).exists()]
    assert lost or rows_of(root) == before
    journal = DeltaTable(str(root.journal)).to_pyarrow_table(columns=["position"])["position"]
    assert {row.position for row in REPAIRED_TAIL} <= {*journal.to_pylist()}


@pytest.mark.slow
@pytest.mark.thorough
def test_a_repair_stopped_at_any_boundary_is_finished_by_the_next(
    spark: SparkSession, tmp_path: Path
) -> None:
    root, before = planted(tmp_path / "root")
    zeroed(log_file(root.state, append(root, "state")))
    for boundary in reconcile.BOUNDARIES:
        with pytest.raises(Stopped):
            repaired(spark, root, boundary)
        assert_nothing_is_lost(root, before)
    assert_is_repaired(spark, root, before)


@pytest.mark.slow
@pytest.mark.skipif(KILLS < 2, reason="CI has no time for it: five kills in make test, 50 in soak")
def test_a_repair_killed_again_and_again_is_finished_by_the_next(
    spark: SparkSession, tmp_path: Path
) -> None:
    dice = random.Random(7)
    for first in range(0, KILLS, len(PLACES)):
        root, before = planted(tmp_path / str(first))
        for place in PLACES[: KILLS - first]:
            kill_a_job(CALL, [str(root.path)], place, dice.random())
            assert_nothing_is_lost(root, before)
        assert_is_repaired(spark, root, before)
