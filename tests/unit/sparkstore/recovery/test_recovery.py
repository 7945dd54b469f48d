"""Reading a root back."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable
from hypothesis import example, given, settings

from sparkstore.core import fold
from sparkstore.core.records import Kind, queue_created
from sparkstore.errors import CorruptData
from sparkstore.recovery.recovery import Tail, journal_tail, recover
from sparkstore.tables.delta_files import log_file, newest_version
from sparkstore.tables.healing import heal
from sparkstore.tables.marks import mark_durable
from sparkstore.tables.root import Root, open_or_create_root
from tests.support.histories.history_builder import STEPS, HistoryBuilder
from tests.support.histories.strategies import Layers, Row, build_history, fold_rows, layers
from tests.support.roots.damage import Damage, cut_short, emptied, zeroed
from tests.support.roots.roots import append_journal, build_root

HISTORY = build_history([(step % 20, step, 3 * step) for step in range(60)])
END = HISTORY.last_position

_PUBLISH, _OPEN = STEPS.index(HistoryBuilder.publish), STEPS.index(HistoryBuilder.open)
FENCED = build_history([(_PUBLISH, 0, 0), (_OPEN, 1, 2)])
OPENED_AGAIN = max(row.position for row in FENCED.rows if row.record.kind is Kind.OPENED)


def fenced(state_position: int) -> Layers:
    """A writer wrote on from the place of the `opened` that fences it to beyond the last record.

    Random histories have this in a few of a hundred, and rarely beyond the end.
    """
    assert FENCED.ghosts[0].position == OPENED_AGAIN
    assert FENCED.ghosts[-1].position > FENCED.last_position
    return Layers(FENCED, state_position, state_position, 1, 1_000)


@settings(max_examples=6, deadline=None)
@given(layers(max_steps=30))
@example(fenced(state_position=0))
@example(fenced(state_position=OPENED_AGAIN))
def test_whatever_layer_a_record_is_in_it_comes_back_once(drawn: Layers) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = recover(build_root(Path(folder) / "root", drawn))
    assert found.state == fold_rows(drawn.history.rows)
    assert found.last_position == drawn.history.last_position
    # A fenced writer may have written on into segments after that of the last record.
    written = [found.last_position, *(row.position for row in drawn.journal_rows)]
    assert found.segment == drawn.segment(max(written))
    assert found.state_position == drawn.state_position
    assert found.history_position == drawn.history_position


@settings(max_examples=6, deadline=None)
@given(layers(max_steps=30))
@example(fenced(state_position=0))
@example(fenced(state_position=OPENED_AGAIN))
def test_the_tail_is_where_the_fold_ends_whoever_wrote_on_after_it_was_fenced(
    drawn: Layers,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = journal_tail(build_root(Path(folder) / "root", drawn))
    newest = [row for row in drawn.history.rows if row.record.kind is Kind.OPENED][-1]
    assert found.last_position == drawn.history.last_position
    assert (found.epoch, found.opened_position) == (newest.epoch, newest.position)
    assert found.segment >= drawn.segment(found.last_position)


def test_a_new_root_has_no_records(tmp_path: Path) -> None:
    root = open_or_create_root(tmp_path / "root")
    assert recover(root).state == fold.State()
    assert journal_tail(root) == Tail(0, 0, 0, 0)


def all_in_journal() -> Layers:
    return Layers(HISTORY, 0, 0, 1, 1_000)


def test_a_position_that_is_missing_is_named(tmp_path: Path) -> None:
    root = build_root(tmp_path / "root", all_in_journal())
    append_journal(root, [Row(END + 3, 99, queue_created(0, "late", "{}"))], 0, 99)
    with pytest.raises(CorruptData, match=f"positions {END + 1} to {END + 2} are missing"):
        recover(root)


def test_a_position_that_is_there_twice_is_named(tmp_path: Path) -> None:
    root = build_root(tmp_path / "root", all_in_journal())
    append_journal(root, HISTORY.rows[-1:], 0, 99)
    with pytest.raises(CorruptData, match=f"journal has position {END} more than once"):
        recover(root)


def test_layers_that_disagree_about_a_position_are_not_believed(tmp_path: Path) -> None:
    root = build_root(tmp_path / "root", Layers(HISTORY, 0, 2, 3, 1_000))
    epoch = HISTORY.rows[1].epoch
    append_journal(root, [Row(2, epoch, queue_created(0, "not that", "{}"))], 0, 99)
    with pytest.raises(CorruptData, match="position 2 differs between history and journal"):
        recover(root)


def test_the_same_record_in_two_layers_counts_once(tmp_path: Path) -> None:
    root = build_root(tmp_path / "root", Layers(HISTORY, 2, END - 1, 1, 1_000))
    assert recover(root).state == fold_rows(HISTORY.rows)


def test_records_that_neither_history_nor_journal_has_are_missed(tmp_path: Path) -> None:
    root = build_root(tmp_path / "root", Layers(HISTORY, 6, 3, 7, 3))
    with pytest.raises(CorruptData, match="positions 4 to 6 are neither in history nor"):
        recover(root)


def test_an_end_that_was_durable_and_is_gone_is_missed(tmp_path: Path) -> None:
    root = build_root(tmp_path / "root", all_in_journal())
    mark_durable(root, {"journal": newest_version(root.journal)})
    last = newest_version(root.journal)
    log_file(root.journal, last).write_bytes(b"")
    (healed,) = heal(root, ["journal"])
    assert healed.was_durable
    with pytest.raises(CorruptData, match=f"but {END} was on disk"):
        recover(root)


def test_a_late_commit_of_a_fenced_writer_that_was_marked_durable_keeps_no_root_from_opening(
    tmp_path: Path,
) -> None:
    """The mark counts its positions, which are beyond those of the records that count."""
    fenced = build_history([(24, 1, 2)])
    assert fenced.ghosts[-1].position > fenced.last_position
    root = build_root(tmp_path / "root", Layers(fenced, 0, 0, 1, 1_000))
    mark_durable(root, {"journal": newest_version(root.journal)})
    assert recover(root).last_position == fenced.last_position


@pytest.mark.parametrize("read", [recover, journal_tail])
@pytest.mark.parametrize("damage", [zeroed, emptied, cut_short])
def test_a_file_that_was_durable_and_cannot_be_decoded_is_corrupt_data(
    tmp_path: Path, read: Callable[[Root], object], damage: Damage
) -> None:
    root = build_root(tmp_path / "root", all_in_journal())
    mark_durable(root, {"journal": newest_version(root.journal)})
    damage(Path(DeltaTable(str(root.journal)).file_uris()[0]))
    with pytest.raises(CorruptData, match=r"cannot be read: .* restore it from a replica"):
        read(root)
