"""Every kind of damage is found, named and, where that is possible, repaired; health is believed.

A run takes many queries, so damages that do not hide each other are planted in one root.
"""

from __future__ import annotations

import json
from typing import NamedTuple

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sparkstore.errors import Fenced
from sparkstore.reconcile import reconcile
from sparkstore.reconcile.catalogue import ERROR, WARNING
from sparkstore.reconcile.findings import DONE, NONE
from sparkstore.reconcile.invariants import CHECKS
from sparkstore.reconcile.invariants import check as verify
from sparkstore.reconcile.reconcile import ReconcileReport
from sparkstore.tables.root import Root
from tests.support.histories.histories import fold_rows
from tests.support.spark.links import expected_links, stored_links
from tests.support.spark.planted import (
    CONFIG,
    EPOCH,
    HISTORY,
    NEXT_ID,
    RESUMABLE,
    SEGMENT,
    UNKNOWN,
    H,
    planted,
    rows_of,
)
from tests.support.spark.tables import expected, stored


def found(report: ReconcileReport, check: str) -> list[dict[str, object]]:
    return [row for row in report.findings if row["check"] == check]


class Told(NamedTuple):
    """A root that was damaged and repaired.

    Attributes:
        root: Of it.
        report: What was found, and what became of that.
        history: Its history, as it was before the damage.
        verified: What `verify` found, before the repair.
    """

    root: Root
    report: ReconcileReport
    history: list[dict[str, object]]
    verified: set[str]


@pytest.fixture(scope="module")
def told(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Told:
    """Everything that was planted, repaired as far as can be."""
    folder = tmp_path_factory.mktemp("repaired")
    root, before = planted(folder / "ro`ot 'n' ü")
    verified = {one.name for one in verify(root, deep=True) if not one.holds}
    report = reconcile.run(spark, root, repair=True, purge_lost=True, config=CONFIG)
    return Told(root, report, before, verified)


@pytest.mark.slow
def test_verify_finds_what_was_planted_by_the_same_names(told: Told) -> None:
    both = {one.name for one in {*CHECKS} & {*reconcile.CHECKS}}
    found = {row["check"] for row in told.report.findings if row["severity"] == ERROR} & both
    assert {"positions_are_gapless", "requests_rise", "deliveries_have_links"} < found
    assert found <= told.verified


@pytest.mark.slow
def test_what_is_repaired_at_a_root_at_rest_is_in_its_audit_log(told: Told) -> None:
    lines = [json.loads(each) for each in (told.root.path / "audit.log").read_text().splitlines()]
    assert {line["act"] for line in lines} == {"release", "purge"}


@pytest.mark.slow
def test_a_gap_in_history_is_found_and_copied_back(told: Told) -> None:
    subjects = {
        row["subject"]: row["repair"] for row in found(told.report, "positions_are_gapless")
    }
    assert subjects["positions 4 to 4 are missing"] == DONE
    assert rows_of(told.root) == told.history


@pytest.mark.slow
def test_a_position_that_is_twice_in_history_is_found_and_the_right_one_kept(told: Told) -> None:
    subjects = {
        row["subject"]: row["repair"] for row in found(told.report, "positions_are_gapless")
    }
    assert subjects["positions 10 to 10 are repeated"] == DONE
    assert subjects["positions 12 to 12 are repeated"] == DONE
    assert rows_of(told.root) == told.history


@pytest.mark.slow
def test_a_lost_file_of_history_is_found_and_its_records_copied_back(told: Told) -> None:
    (lost,) = found(told.report, "tables_are_whole")
    assert str(lost["subject"]).startswith("history/segment=3/")
    assert lost["repair"] == DONE
    first, last = 3 * SEGMENT + 1, 4 * SEGMENT
    subjects = {row["subject"] for row in found(told.report, "positions_are_gapless")}
    assert f"positions {first} to {last} are missing" in subjects
    assert rows_of(told.root) == told.history


@pytest.mark.slow
def test_a_state_that_is_not_the_fold_is_found_and_rebuilt(told: Told) -> None:
    rows = found(told.report, "state_is_the_fold_of_history")
    assert {"member 'brokerj'"} < {row["subject"] for row in rows}
    assert {row["repair"] for row in rows} == {DONE}
    assert stored(told.root) == (H, *expected(fold_rows(HISTORY.rows[:H])))


@pytest.mark.slow
def test_an_acquisition_of_a_dead_member_is_found_and_given_back(told: Told) -> None:
    rows = {row["subject"]: row["repair"] for row in found(told.report, "acquisitions_are_alive")}
    assert rows["holder 'gone'"] == DONE
    journal = DeltaTable(str(told.root.journal)).to_pyarrow_table().to_pylist()
    released = [row["message_id"] for row in journal if row["kind"] == "released"]
    assert NEXT_ID in released


@pytest.mark.slow
def test_what_a_link_acquired_that_may_come_back_is_left_to_it(told: Told) -> None:
    subjects = {row["subject"] for row in found(told.report, "acquisitions_are_alive")}
    assert f"holder {RESUMABLE!r}" not in subjects
    journal = DeltaTable(str(told.root.journal)).to_pyarrow_table().to_pylist()
    released = [row["message_id"] for row in journal if row["kind"] == "released"]
    assert NEXT_ID + 5 not in released


@pytest.mark.slow
def test_a_delivery_of_no_link_is_found_and_gone_from_the_rebuilt_state(told: Told) -> None:
    (row,) = found(told.report, "deliveries_have_links")
    assert (row["subject"], row["repair"]) == (f"link {UNKNOWN}", DONE)
    assert stored_links(told.root) == expected_links(fold_rows(HISTORY.rows[:H]))


@pytest.mark.slow
def test_orphan_content_is_told_and_left_alone(told: Told) -> None:
    rows = {row["subject"]: row for row in found(told.report, "staged_content_is_used")}
    row = rows[f"message {NEXT_ID + 1}"]
    assert (row["severity"], row["repair"]) == (WARNING, NONE)
    assert json.loads(str(row["evidence"]))["piece_bytes"] == 6


@pytest.mark.slow
def test_half_a_transaction_is_found_and_left_to_people(told: Told) -> None:
    rows = {row["subject"]: row for row in found(told.report, "transactions_are_whole")}
    row = rows[f"transaction 77 of epoch {EPOCH}"]
    assert (row["severity"], row["repair"]) == (ERROR, NONE)


@pytest.mark.slow
def test_a_request_that_was_done_twice_is_found_and_left_to_people(told: Told) -> None:
    (row,) = found(told.report, "requests_rise")
    assert (row["subject"], row["severity"], row["repair"]) == ("member 'doubled'", ERROR, NONE)


@pytest.mark.slow
def test_lost_content_is_found_and_given_up_only_because_it_was_asked_for(told: Told) -> None:
    rows = {row["subject"]: row["repair"] for row in found(told.report, "content_is_there")}
    assert rows[f"message {NEXT_ID + 2}"] == DONE
    journal = DeltaTable(str(told.root.journal)).to_pyarrow_table().to_pylist()
    purged = [row["message_id"] for row in journal if "purge" in str(row["detail"])]
    assert purged == [NEXT_ID + 2]


@pytest.mark.slow
def test_the_findings_are_rows_of_a_table_and_what_is_left_ends_the_job_with_1(
    spark: SparkSession, told: Told
) -> None:
    rows = spark.read.format("delta").load(str(told.root.path / "findings")).collect()
    assert {row.run for row in rows} == {told.report.run}
    assert sorted((row.check, row.subject) for row in rows) == sorted(
        (str(row["check"]), str(row["subject"])) for row in told.report.findings
    )
    left = {
        row["check"]
        for row in told.report.findings
        if row["severity"] == ERROR and row["repair"] != DONE
    }
    assert left == {"transactions_are_whole", "requests_rise"}
    assert (told.report.exit_code, told.report.outcome) == (1, "findings")


def test_a_fenced_root_is_not_repaired(spark: SparkSession, root: Root) -> None:
    file = root.path / "root.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"role": "fenced"}))
    with pytest.raises(Fenced, match="took over"):
        reconcile.run(spark, root.path, repair=True)
    assert not (root.path / "findings").exists()
