"""Each invariant holds of a root that is right, and its check notices one that is not."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings

from sparkstore.core.link_records import LinkKey, link_text
from sparkstore.core.records import (
    ExchangeBindingKey,
    MessageHeader,
    bound,
    exchange_created,
    message_enqueued,
    opened,
    queue_created,
    refused,
)
from sparkstore.reconcile import catalogue, reconcile
from sparkstore.reconcile.catalogue import (
    CONTENT_IS_THERE,
    REPLICA_AGREES,
    REPLICA_FOLDS_AGREE,
    Invariant,
)
from sparkstore.reconcile.invariants import CHECKS, InvariantResult, check
from sparkstore.tables.delta_files import log_file, newest_version
from sparkstore.tables.marks import MARKS_FILE, mark_durable
from sparkstore.tables.root import Root
from sparkstore.tables.schema import STATE
from tests.support.histories.history_builder import STEPS
from tests.support.histories.strategies import Layers, Row, build_history, fold_rows, layers
from tests.support.roots.roots import append_journal, build_root

HISTORY = build_history([(step % len(STEPS), step, 3 * step) for step in range(40)])
END = HISTORY.last_position
EPOCH = HISTORY.rows[-1].epoch
P = END - 6


@settings(max_examples=5, deadline=None)
@given(layers(max_steps=25))
def test_a_root_as_the_store_and_its_jobs_leave_it_breaks_none(drawn: Layers) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = build_root(Path(folder) / "root", drawn)
        mark_durable(root, {"journal": newest_version(root.journal)})
        findings = check(root, deep=True)
    assert [finding for finding in findings if not finding.holds] == []
    assert [finding.name for finding in findings] == [one.name for one in CHECKS]


def test_each_invariant_that_is_declared_is_computed_and_named_once() -> None:
    declared = [one for one in vars(catalogue).values() if isinstance(one, Invariant)]
    of_replicas = {REPLICA_AGREES, REPLICA_FOLDS_AGREE}
    assert {*declared} == {*CHECKS, *reconcile.CHECKS} | of_replicas
    assert len({one.name for one in declared}) == len(declared)


@pytest.fixture
def root(tmp_path: Path) -> Root:
    """State at P, history to its end, everything in the journal too."""
    return build_root(tmp_path / "root", Layers(HISTORY, P, P + 2, 1, 1_000), commit_records=64)


def broken(root: Root, name: str) -> InvariantResult:
    """The finding of one check, which must be that its invariant is broken."""
    (finding,) = (
        one for one in check(root, deep=name == CONTENT_IS_THERE.name) if one.name == name
    )
    assert not finding.holds, finding
    return finding


def add(root: Root, *records: Row) -> None:
    append_journal(root, records, 5, 99)


def add_state(root: Root, **values: object) -> None:
    row = pa.Table.from_pylist([values], STATE)
    write_deltalake(str(root.state), row, mode="append")


def header(body_bytes: int = 0) -> MessageHeader:
    return MessageHeader("raw", body_bytes=body_bytes)


def test_a_table_that_does_not_open_is_found(root: Root) -> None:
    log_file(root.history, newest_version(root.history)).write_bytes(b"")
    assert "history is broken from version 1 on" in broken(root, "tables_are_whole").evidence


def test_a_data_file_that_is_lost_is_found(root: Root) -> None:
    rows = DeltaTable(str(root.history)).to_pyarrow_table()
    write_deltalake(str(root.history), rows.slice(0, 0), mode="append")
    mark_durable(root, {"history": newest_version(root.history)})
    file = next(root.history.glob("**/*.parquet"))
    file.unlink()
    assert f"{file} cannot be read" in broken(root, "tables_are_whole").evidence


def test_a_mark_of_a_version_that_is_not_there_is_found(root: Root) -> None:
    (root.path / MARKS_FILE).write_text('{"versions": {"state": 99}, "last_position": 0}')
    assert "state is marked durable at version 99" in broken(root, "marks_are_not_ahead").evidence


def test_a_position_that_is_twice_in_history_is_found(root: Root) -> None:
    rows = DeltaTable(str(root.history)).to_pyarrow_table().slice(3, 1)
    write_deltalake(str(root.history), rows, mode="append")
    assert (
        "history has 1 positions more than once" in broken(root, "positions_are_gapless").evidence
    )


def test_a_position_that_history_lacks_is_found_before_the_state_too(root: Root) -> None:
    DeltaTable(str(root.history)).delete("position = 4")
    assert "position 4 is missing" in broken(root, "positions_are_gapless").evidence


def test_an_epoch_that_was_opened_twice_is_found(root: Root) -> None:
    add(root, Row(END + 1, EPOCH, opened(0, "twin")))
    evidence = broken(root, "epochs_rise").evidence
    assert f"epoch {EPOCH} was opened after epoch {EPOCH}; two writers wrote at once" in evidence


def test_a_message_id_that_was_never_reserved_is_found(root: Root) -> None:
    queue = next(iter(fold_rows(HISTORY.rows).queues))
    add(root, Row(END + 1, EPOCH, message_enqueued(0, queue, 10_000, header(), b"")))
    evidence = broken(root, "message_ids_were_reserved").evidence
    assert "message id 10000 is in use" in evidence


@pytest.mark.parametrize("second", [2, 3])
def test_a_request_that_was_decided_twice_or_too_late_is_found(root: Root, second: int) -> None:
    requests = [("a", 1), ("b", 1), ("a", 3), ("b", 2), ("a", second)]
    refusals = [refused(0, f"new {member}", number, "{}") for member, number in requests]
    add(root, *(Row(END + 1 + place, EPOCH, one) for place, one in enumerate(refusals)))
    assert f"new a asked {second} after 3" in broken(root, "requests_rise").evidence


def test_an_entry_on_no_queue_is_found(root: Root) -> None:
    add_state(root, part="entry", queue="nowhere", message_id=1, position=1)
    assert "entries on 'nowhere', no such queue" in broken(root, "entries_have_queues").evidence


def test_an_entry_that_is_there_twice_is_found(root: Root) -> None:
    state = DeltaTable(str(root.state)).to_pyarrow_table()
    entries = [row for row in state.to_pylist() if row["part"] == "entry"]
    add_state(root, **entries[0])
    assert "1 entries more than once" in broken(root, "entries_have_queues").evidence


def test_a_binding_to_no_queue_is_found(root: Root) -> None:
    key = ExchangeBindingKey("new", "nowhere", "#")
    add(
        root,
        Row(END + 1, EPOCH, exchange_created(0, "new", "{}")),
        Row(END + 2, EPOCH, bound(0, key, "{}")),
    )
    assert "nowhere" in broken(root, "bindings_join_what_is_there").evidence


def test_a_delivery_of_no_link_is_found(root: Root) -> None:
    link = link_text(LinkKey("c", "nowhere", "receiver"))
    add_state(root, part="delivery", exchange=link, binding_key="00")
    assert f"deliveries of link {link}" in broken(root, "deliveries_have_links").evidence


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda state: state.delete("part = 'entry'"), "queues differ"),
        (lambda state: state.update({"epoch": "7"}, predicate="part = 'meta'"), "epoch differ"),
    ],
)
def test_a_state_that_is_not_the_fold_of_history_is_found(
    root: Root, change: Callable[[DeltaTable], object], what: str
) -> None:
    change(DeltaTable(str(root.state)))
    assert what in broken(root, "state_is_the_fold_of_history").evidence


def test_content_that_is_missing_is_found_only_when_it_is_read(root: Root) -> None:
    next_id = fold_rows(HISTORY.rows).next_message_id
    add(
        root,
        Row(END + 1, EPOCH, queue_created(0, "new", "{}")),
        Row(END + 2, EPOCH, message_enqueued(0, "new", next_id - 1, header(9), None)),
    )
    assert all(finding.holds for finding in check(root))
    assert f"message {next_id - 1}" in broken(root, CONTENT_IS_THERE.name).evidence
