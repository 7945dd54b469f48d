"""Damage that only people can mend is found and named; a store at work is never accused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from sparkstore.cli.command_line import main
from sparkstore.compaction import compact
from sparkstore.core.records import (
    ExchangeBindingKey,
    Kind,
    MessageHeader,
    Record,
    bound,
    message_enqueued,
    opened,
    queue_created,
)
from sparkstore.errors import CorruptData
from sparkstore.reconcile import fold_checks, reconcile, record_checks, repair_history
from sparkstore.reconcile.catalogue import ERROR
from sparkstore.reconcile.findings import DONE, PROPOSED
from sparkstore.reconcile.inspection import look
from sparkstore.reconcile.invariants import CHECKS
from sparkstore.reconcile.invariants import check as verify
from sparkstore.reconcile.reconcile import ReconcileReport
from sparkstore.tables.delta_files import newest_version
from sparkstore.tables.lease import jobs_lease
from sparkstore.tables.marks import MARKS_FILE
from sparkstore.tables.root import Root, open_root
from tests.support.checkout import CHECKOUT
from tests.support.histories.histories import Layers, Row, fold_rows
from tests.support.histories.history_builder import STEPS, build_history
from tests.support.roots.damage import files
from tests.support.roots.replicas import replica_of
from tests.support.roots.roots import append_journal, build_root, rows_table, state_table
from tests.support.spark.tables import trim
from tests.support.stores.stores import TIMEOUT_S

pytestmark = pytest.mark.slow

HISTORY = build_history([(step % len(STEPS), step, 3 * step) for step in range(40)])
END = HISTORY.last_position
EPOCH = HISTORY.rows[-1].epoch
NEXT_ID = fold_rows(HISTORY.rows).next_message_id
P, H = END - 6, END - 2
QUEUE = "planted"
BROUGHT = [
    row.position
    for row in HISTORY.rows[: P - 1]
    if row.record.kind is Kind.ENQUEUED and row.record.body
]
IN_HISTORY, IN_REPLICA = BROUGHT[0], BROUGHT[1]


def enqueued(message_id: int, transaction: int | None = None) -> Record:
    header = MessageHeader("raw", body_bytes=3)
    return message_enqueued(0, QUEUE, message_id, header, b"abc", transaction)


TAIL = [
    Row(END + 1, EPOCH, queue_created(0, QUEUE, "{}")),
    Row(END + 2, EPOCH, enqueued(NEXT_ID + 500, transaction=78)),
    Row(END + 3, EPOCH, enqueued(NEXT_ID + 501, transaction=78)),
    Row(END + 3, EPOCH + 1, opened(0, "heir")),
    Row(END + 4, EPOCH + 1, opened(0, "twin")),
    Row(END + 5, EPOCH + 1, bound(0, ExchangeBindingKey("nowhere", QUEUE, "#"), "{}")),
]


class Told(NamedTuple):
    root: Root
    report: ReconcileReport


def evidence(rows: list[dict[str, object]], check: str, subject: str) -> dict[str, object]:
    """Of the error that one check found; it was not repaired."""
    (row,) = (row for row in rows if (row["check"], row["subject"]) == (check, subject))
    assert row["severity"] == ERROR
    assert row["repair"] != DONE
    told: dict[str, object] = json.loads(str(row["evidence"]))
    return told


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Root, Root]:
    """A root and a replica of all that it holds, as a replication leaves it."""
    folder = tmp_path_factory.mktemp("two")
    root = build_root(folder / "ro`ot 'n' ü", Layers(HISTORY, P, H, 1, 1000), commit_records=64)
    replica = replica_of(root, folder / "replica")
    write_deltalake(str(replica.history), rows_table(HISTORY.rows, 0), mode="overwrite")
    write_deltalake(str(replica.state), state_table(fold_rows(HISTORY.rows)), mode="append")
    return open_root(root.path), replica


@pytest.fixture(scope="module")
def told(
    spark: SparkSession, two: tuple[Root, Root], tmp_path_factory: pytest.TempPathFactory
) -> Told:
    """Two writers at once, a record that changed, and a replica that went another way."""
    folder = tmp_path_factory.mktemp("told")
    for root in two:
        shutil.copytree(root.path, folder / root.path.name)
    primary, replica = (open_root(folder / root.path.name) for root in two)
    append_journal(primary, TAIL, 99, 99)
    changed = {"subject": "'changed'"}
    DeltaTable(str(primary.history)).update(changed, predicate=f"position = {IN_HISTORY}")
    DeltaTable(str(replica.history)).update(changed, predicate=f"position = {IN_REPLICA}")
    DeltaTable(str(replica.state)).update({"delivery_count": "7"}, predicate="part = 'entry'")
    lost = DeltaTable(str(primary.state)).to_pyarrow_table(filters=[("part", "=", "entry")])
    lost = lost.slice(0, 1).set_column(
        lost.schema.get_field_index("queue"), lost.schema.field("queue"), [["nowhere"]]
    )
    write_deltalake(str(primary.state), lost, mode="append")
    return Told(primary, reconcile.run(spark, primary, replica=replica))


def test_what_is_found_and_not_repaired_ends_the_job_with_1(told: Told) -> None:
    assert told.report.exit_code == 1


def test_verify_finds_what_reconcile_found_by_the_same_names(told: Told) -> None:
    both = {one.name for one in {*CHECKS} & {*reconcile.CHECKS}}
    rows = [row for row in told.report.findings if row["severity"] == ERROR]
    found = {row["check"] for row in rows if not str(row["subject"]).startswith("replica ")}
    assert {"epochs_rise", "message_ids_were_reserved", "entries_have_queues"} < found & both
    assert found & both <= {one.name for one in verify(told.root, deep=True) if not one.holds}


def test_an_epoch_that_was_opened_twice_is_found(told: Told) -> None:
    assert evidence(told.report.findings, "epochs_rise", f"epoch {EPOCH + 1}")["opened_count"] == 2


def test_a_message_id_that_was_never_reserved_is_found_and_a_fenced_one_is_not(told: Told) -> None:
    subject = f"message {NEXT_ID + 500}"
    assert evidence(told.report.findings, "message_ids_were_reserved", subject)["next"] == NEXT_ID


def test_a_transaction_of_which_only_half_was_fenced_is_found(told: Told) -> None:
    subject = f"transaction 78 of epoch {EPOCH}"
    found = evidence(told.report.findings, "transactions_are_whole", subject)
    assert (found["record_count"], found["fenced_count"]) == (1, 1)


def test_a_binding_to_no_exchange_is_found(told: Told) -> None:
    evidence(
        told.report.findings, "bindings_join_what_is_there", f"binding 'nowhere' {QUEUE!r} '#'"
    )


def test_an_entry_on_no_queue_is_found_and_a_broker_would_not_start(told: Told) -> None:
    evidence(told.report.findings, "entries_have_queues", "queue 'nowhere': no such queue")
    assert "nowhere" in str(evidence(told.report.findings, "recovery_agrees", "recovery")["reason"])


def test_a_record_that_history_has_otherwise_than_the_journal_is_found(told: Told) -> None:
    evidence(told.report.findings, "layers_agree", f"position {IN_HISTORY}")


def test_a_diverged_replica_is_found_by_the_content_of_a_record(told: Told) -> None:
    evidence(told.report.findings, "replica_agrees", f"position {IN_REPLICA}")


def test_a_replica_whose_state_is_another_is_found_by_both_comparisons(told: Told) -> None:
    found = [row for row in told.report.findings if row["check"] == "replica_folds_agree"]
    assert any('"delivery_count\\":7' in str(row["evidence"]) for row in found)
    own = [
        row
        for row in told.report.findings
        if row["check"] == "state_is_the_fold_of_history"
        and str(row["subject"]).startswith("replica ")
    ]
    assert {row["repair"] for row in own} == {PROPOSED}


def test_what_is_missing_is_copied_back_from_a_replica_and_only_whole(
    spark: SparkSession, two: tuple[Root, Root], tmp_path: Path
) -> None:
    for root in two:
        shutil.copytree(root.path, tmp_path / root.path.name)
    primary, replica = (open_root(tmp_path / root.path.name) for root in two)
    trim(primary, H + 1)
    before = records(primary)
    DeltaTable(str(primary.history)).delete("position IN (3, 9, 10)")
    version = newest_version(primary.history)
    with look(spark, primary) as seen:
        with pytest.raises(CorruptData, match="3 are not in the journal: restore"):
            repair_history.mend(seen, None)
        assert newest_version(primary.history) == version
        with look(spark, replica) as other:
            assert "3 records copied back" in repair_history.mend(seen, other)
    assert records(primary) == before


def records(root: Root) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = DeltaTable(str(root.history)).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: int(str(row["position"])))


@pytest.mark.thorough
def test_the_end_of_history_that_a_power_cut_took_is_brought_again_from_the_journal(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = build_root(tmp_path / "root", Layers(HISTORY, P, H, 1, 1000), commit_records=64)
    before = records(root)
    (file,) = root.history.rglob("*.parquet")
    file.write_bytes(bytes(file.stat().st_size))
    report = reconcile.run(spark, root, repair=True)
    (row,) = (row for row in report.findings if row["check"] == "tables_are_whole")
    assert (row["subject"], row["repair"]) == ("history", DONE)
    assert records(root) == before[:P]
    assert report.errors == 0


def test_a_gap_in_the_journal_is_found_and_the_views_refuse(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = build_root(tmp_path / "root", Layers(HISTORY, P, P + 1, 1, 1000), commit_records=64)
    DeltaTable(str(root.journal)).delete(f"position = {END - 1}")
    with look(spark, root) as seen:
        found = [*record_checks.positions_are_gapless(seen), *fold_checks.views_answer(seen)]
    rows = [finding.as_row() for finding in found]
    subject = f"positions {END - 1} to {END - 1} are missing"
    assert evidence(rows, "positions_are_gapless", subject)["in"] == "journal"
    assert "missing after position" in str(evidence(rows, "views_answer", "views")["reason"])


def test_a_mark_of_a_version_that_is_not_there_is_found_and_the_command_ends_with_1(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = build_root(tmp_path / "root", Layers(HISTORY, P, H, 1, 1000), commit_records=64)
    (root.path / MARKS_FILE).write_text('{"versions": {"state": 99}, "last_position": 0}')
    assert main(["reconcile", "--json", "--nice", "0", str(root.path)]) == 1
    (row,) = json.loads(capsys.readouterr().out)["findings"]
    assert (row["check"], row["subject"], row["severity"]) == (
        "marks_are_not_ahead",
        "state",
        ERROR,
    )
    assert json.loads(row["evidence"])["marked"] == 99
    assert main(["reconcile", "--nice", "0", str(root.path)]) == 1
    heading, _line, shown = capsys.readouterr().out.splitlines()[:3]
    assert heading.split() == ["severity", "check", "subject", "repair", "advice"]
    assert shown.split()[:3] == ["error", "marks_are_not_ahead", "state"]


@pytest.mark.thorough
def test_a_serving_store_is_never_accused(spark: SparkSession, tmp_path: Path) -> None:
    with serving(tmp_path / "root"):
        compact.run(spark, tmp_path / "root")
        report = reconcile.run(spark, tmp_path / "root")
        assert report.position > 100
        assert report.findings == []
        assert (report.exit_code, report.outcome) == (0, "done")
    assert not (tmp_path / "root" / "findings").exists()


SERVE = """
import sys, threading
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import Queue
from tests.support.spark.tables import HEADER
from tests.support.stores.stores import DELTA_CONFIG, done

store, ended = DeltaMessageStore(sys.argv[1], DELTA_CONFIG), threading.Event()
threading.Thread(target=lambda: sys.stdin.read() or ended.set()).start()
done(store.create, Queue("q"))
count = 0
while not ended.is_set():
    message = store.message(HEADER, b"abc")
    done(store.enqueue, message, "q")
    done(store.acquire, message.message_id, "q", "somebody")
    if count % 3 == 0:
        done(store.dequeue, message.message_id, "q", "somebody")
    staged = done(store.stage, store.message(HEADER), [b"ab", b"c"])
    if count % 2:
        done(store.enqueue, staged, "q")
    done(store.flush)  # which also leaves the processors to Spark
    count += 1
    if count == 50:
        print("at work", flush=True)
store.close()
"""


@contextmanager
def serving(path: Path) -> Iterator[None]:
    """A store in a process of its own: it sends, acquires, dequeues and stages all the while."""
    command = [sys.executable, "-c", SERVE, str(path)]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd=CHECKOUT
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"at work\n"
        yield
        process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0


def test_a_busy_lease_ends_with_75_and_changes_nothing(
    spark: SparkSession, two: tuple[Root, Root], capsys: pytest.CaptureFixture[str]
) -> None:
    before = files(two[0].path)
    for busy in two:
        with jobs_lease(busy.path):
            command = ["reconcile", "--nice", "0", "--replica", str(two[1].path), str(two[0].path)]
            assert main(command) == 75
        assert "another job is at work" in capsys.readouterr().err
    assert {
        name for name, content in files(two[0].path).items() if before.get(name) != content
    } <= {"jobs.lock"}
