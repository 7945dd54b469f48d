"""A replication that ends anywhere leaves a valid replica, and running it again is right."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from sparkstore.compaction import compact
from sparkstore.compaction.plans.compact_plan import Limits
from sparkstore.errors import CorruptData, InvalidRequest, Locked, Unavailable
from sparkstore.recovery.recovery import recover
from sparkstore.replication import replicate
from sparkstore.replication.promote import promote
from sparkstore.replication.replicate import ReplicateReport
from sparkstore.tables.lease import jobs_lease
from sparkstore.tables.root import Root, open_or_create_root, open_root
from tests.support.histories.histories import Row, fold_rows
from tests.support.roots.replicas import files_below
from tests.support.roots.roots import rows_table, state_table
from tests.support.spark.killing import Stopped, stop_at
from tests.support.spark.links import expected_links, stored_links
from tests.support.spark.replicated import assert_is_fold_of, history, positions
from tests.support.spark.tables import assert_views_are, expected, journal_rows, stored, trim

pytestmark = pytest.mark.slow


ALL = history(12)
ROWS = ALL.history.rows
GHOSTS = ALL.history.ghosts
HALF = max(ghost.position for ghost in GHOSTS) + 3
assert len(ROWS) > HALF + 20


@pytest.fixture
def primary(tmp_path: Path) -> Root:
    return open_or_create_root(tmp_path / "pri`mary 'p' ü")


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """Where the replica will be."""
    return tmp_path / "re`plica 'r' ü"


class Told(NamedTuple):
    """A replica whose replications stopped at each boundary in turn, then went to the end."""

    stops: dict[str, tuple[list[int], int, bool]]
    first: ReplicateReport
    second: ReplicateReport
    third: ReplicateReport
    replica: Root


@pytest.fixture(scope="module")
def told(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Told:
    folder = tmp_path_factory.mktemp("told")
    primary, there = open_or_create_root(folder / "primary"), folder / "replica"
    journal_rows(primary, [*ROWS[:HALF], *GHOSTS])
    limits = Limits(HALF // 2 + 1)
    stops = {}
    for boundary in replicate.BOUNDARIES:
        with pytest.raises(Stopped):
            replicate.run(spark, primary.path, there, limits=limits, at=stop_at(boundary))
        replica = open_root(there)
        position, *folded = stored(replica)
        is_right = tuple(folded) == expected(fold_rows(ROWS[:position]))
        stops[boundary] = (positions(replica), position, is_right)
    first = replicate.run(spark, primary.path, there)
    second = replicate.run(spark, primary.path, there)
    # What comes next is half in the primary's history, half in its journal.
    journal_rows(primary, ROWS[HALF : HALF + 10])
    compact.run(spark, primary)
    trim(primary, HALF + 1)
    journal_rows(primary, ROWS[HALF + 10 :])
    third = replicate.run(spark, primary.path, there)
    return Told(stops, first, second, third, open_root(there))


@pytest.mark.parametrize("boundary", replicate.BOUNDARIES)
def test_a_job_stopped_at_any_boundary_leaves_records_and_state_that_are_right(
    told: Told, boundary: str
) -> None:
    found, position, is_right = told.stops[boundary]
    has_records = boundary in {"appended", "state copied", "fold started", "folded"}
    assert found == ([*range(1, HALF + 1)] if has_records else [])
    assert position == (HALF // 2 + 1 if boundary == "folded" else 0)
    assert is_right


def test_the_next_run_goes_on_where_those_that_stopped_ended(told: Told) -> None:
    first = told.first
    assert (first.position_before, first.position_after, first.records_copied) == (HALF, HALF, 0)
    assert (first.fold_count, first.lag_records, first.lag_seconds) == (1, 0, 0.0)


def test_a_run_without_anything_new_commits_nothing(told: Told) -> None:
    second = told.second
    assert (second.records_copied, second.fold_count, second.entries_changed) == (0, 0, 0)


def test_records_of_the_primarys_history_and_journal_come_once_and_ghosts_never(
    told: Told,
) -> None:
    assert told.third.position_after == len(ROWS)
    assert told.third.records_copied == len(ROWS) - HALF
    assert_is_fold_of(told.replica, ROWS)
    columns = ["position", "epoch"]
    found = DeltaTable(str(told.replica.history)).to_pyarrow_table(columns=columns).to_pylist()
    assert {(row["position"], row["epoch"]) for row in found} == {row[:2] for row in ROWS}


def test_the_replica_is_asked_recovered_and_promoted_like_any_root(
    spark: SparkSession, told: Told
) -> None:
    assert_views_are(spark, told.replica, ALL.state)
    assert recover(told.replica).state == ALL.state
    promotion = promote(told.replica.path)
    assert promotion.last_position == len(ROWS)


def test_a_primary_whose_history_begins_late_is_bootstrapped_by_its_state(
    spark: SparkSession, primary: Root, there: Path
) -> None:
    """History keeps of the first third only what the state needs."""
    start, state_at = len(ROWS) // 3, HALF
    needed = [row for row in ROWS[: start - 1] if row.record.message_id is not None][::2]
    write_deltalake(str(primary.history), rows_table(needed, 0), mode="append")
    write_deltalake(
        str(primary.history), rows_table(ROWS[start - 1 : state_at + 3], 1), mode="append"
    )
    journal_rows(primary, ROWS[state_at:])
    state = state_table(fold_rows(ROWS[:state_at]), segment=1, history_start=start)
    write_deltalake(str(primary.state), state, mode="append")

    for boundary in ("appended", "state copied"):
        with pytest.raises(Stopped):
            replicate.run(spark, primary.path, there, at=stop_at(boundary))
        if boundary == "appended":
            # Half a bootstrap is no store, and must not become one.
            with pytest.raises(CorruptData):
                promote(there)
            assert open_root(there).identity.role == "replica"
    report = replicate.run(spark, primary.path, there)
    replica = open_root(there)
    assert stored(replica) == (len(ROWS), *expected(fold_rows(ROWS)))
    assert stored_links(replica) == expected_links(fold_rows(ROWS))
    assert positions(replica) == sorted(
        [row.position for row in needed] + [*range(start, len(ROWS) + 1)]
    )
    assert recover(replica).history_start == start
    assert (report.is_bootstrap, report.records_copied) == (False, 0)

    # One that ends before the primary's history begins cannot go on.
    late = state_table(fold_rows(ROWS), segment=2, history_start=len(ROWS) + 5)
    write_deltalake(str(primary.state), late, mode="overwrite")
    before = files_below(there)
    with pytest.raises(InvalidRequest, match="replicate into it anew"):
        replicate.run(spark, primary.path, there)
    assert files_below(there) == before


def test_a_gap_a_divergence_and_a_primary_that_lost_records_are_told_and_nothing_is_copied(
    spark: SparkSession, primary: Root, there: Path
) -> None:
    journal_rows(primary, ROWS[:18])
    journal_rows(primary, ROWS[18:20])
    replicate.run(spark, primary.path, there)
    replica = open_root(there)
    write_deltalake(str(primary.journal), rows_table(ROWS[22:30], 0), mode="append")
    before = files_below(there)
    with pytest.raises(Unavailable, match="8 records after position 20 up to 30: some are missing"):
        replicate.run(spark, primary.path, there)
    DeltaTable(str(primary.journal)).delete("position > 18")
    with pytest.raises(CorruptData, match="at position 20, its primary at 18: the primary lost"):
        replicate.run(spark, primary.path, there)
    other = [Row(row.position, row.epoch, ROWS[1].record) for row in ROWS[18:25]]
    journal_rows(primary, other)
    with pytest.raises(CorruptData, match="another record at position 20"):
        replicate.run(spark, primary.path, there)
    assert files_below(there) == before
    assert_is_fold_of(replica, ROWS[:20])
    newest = max((primary.journal / "_delta_log").glob("*.json"))
    newest.write_bytes(bytes(newest.stat().st_size))
    with pytest.raises(Unavailable, match="start the store"):
        replicate.run(spark, primary.path, there)
    with jobs_lease(there), pytest.raises(Locked):
        replicate.run(spark, primary.path, there)


def test_a_replica_whose_end_is_broken_is_healed_and_copied_again(
    spark: SparkSession, primary: Root, there: Path
) -> None:
    journal_rows(primary, ROWS[:20])
    replicate.run(spark, primary.path, there)
    journal_rows(primary, ROWS[20:40])
    with pytest.raises(Stopped):
        replicate.run(spark, primary.path, there, at=stop_at("appended"))
    replica = open_root(there)
    newest = max((replica.history / "_delta_log").glob("*.json"))
    newest.write_bytes(bytes(newest.stat().st_size))
    report = replicate.run(spark, primary.path, there)
    assert report.tables_healed == ["history"]
    assert (report.position_before, report.position_after) == (20, 40)
    assert_is_fold_of(replica, ROWS[:40])


def test_a_trim_between_two_looks_changes_nothing(
    spark: SparkSession, primary: Root, there: Path
) -> None:
    """What was looked at is what is copied, whatever the primary does meanwhile."""
    journal_rows(primary, ROWS[:40])

    def compact_and_trim(boundary: str) -> None:
        if boundary == "append checked":
            compact.run(spark, primary)
            trim(primary, 41)
            journal_rows(primary, ROWS[40:50])

    report = replicate.run(spark, primary.path, there, at=compact_and_trim)
    assert report.position_after == 40
    assert report.lag_records == 10
    assert report.lag_seconds > 0
    assert_is_fold_of(open_root(there), ROWS[:40])
    assert replicate.run(spark, primary.path, there).position_after == 50
    assert_is_fold_of(open_root(there), ROWS[:50])
