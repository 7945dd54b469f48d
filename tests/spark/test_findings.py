"""Findings are few, tell what became of them, and are rows that SQL can ask."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sparkstore.reconcile import findings
from sparkstore.reconcile.catalogue import ERROR, INFO
from sparkstore.reconcile.findings import DONE, MAX_SHOWN, NONE, PROPOSED, Finding, capped
from sparkstore.reconcile.repair import Mended, with_repairs
from sparkstore.tables.delta_files import log_file, newest_version
from sparkstore.tables.root import Root, open_or_create_root
from sparkstore.views import views


def of(subject: str) -> Finding:
    return Finding("positions_are_gapless", ERROR, subject, {"first": 1}, "advice", PROPOSED)


def test_what_was_found_is_capped_and_the_last_one_counts_the_rest() -> None:
    every = [of(str(number)) for number in range(MAX_SHOWN + 1)]
    assert capped(every[:MAX_SHOWN], MAX_SHOWN) == every[:MAX_SHOWN]
    shown = capped(every, 1_000_000)
    assert len(shown) == MAX_SHOWN
    assert shown[-1].subject == f"{1_000_000 - MAX_SHOWN + 1} more"


def test_what_is_gone_after_a_repair_is_done_and_what_is_left_says_why() -> None:
    mended = Mended({"history": "3 records copied back"}, {"state": "history is not whole"})
    gone, left = with_repairs([of("gone"), of("left")], [of("left")], mended)
    assert (gone.subject, gone.repair, gone.advice) == ("gone", DONE, "3 records copied back")
    assert (left.subject, left.repair) == ("left", PROPOSED)
    assert left.advice == "advice (not repaired: history is not whole)"
    assert left.severity == ERROR


@pytest.mark.slow
def test_the_newest_run_in_the_table_tells_how_things_are(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = open_or_create_root(tmp_path / "root")
    findings.write(spark, root, "run 1", [])
    assert not (root.path / "findings").exists()
    findings.write(spark, root, "run 2", [of("positions 4 to 4 are missing")])
    assert shown(spark, root) == [("run 2", "positions_are_gapless", ERROR, PROPOSED)]
    for run in ("run 3", "run 4"):
        findings.write(spark, root, run, [])
        assert shown(spark, root) == [("run 3", "all", INFO, NONE)]


@pytest.mark.slow
def test_a_table_that_does_not_open_is_set_aside_and_begun_anew(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = open_or_create_root(tmp_path / "root")
    for run in ("run 1", "run 2"):
        findings.write(spark, root, run, [of(run)])
    for version in range(newest_version(root.path / "findings") + 1):
        log_file(root.path / "findings", version).write_bytes(b"\0" * 64)
    findings.write(spark, root, "run 3", [of("found anew")])
    assert shown(spark, root) == [("run 3", "positions_are_gapless", ERROR, PROPOSED)]
    assert [*(root.path / "set-aside" / "findings").iterdir()]


def shown(spark: SparkSession, root: Root) -> list[tuple[str, ...]]:
    """The newest run, by the view."""
    query = "SELECT run, check, severity, repair FROM findings WHERE is_newest"
    return [tuple(row) for row in views.sql(spark, root, query).collect()]
