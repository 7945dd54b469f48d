"""A journal's commits land once each, and only its owner's (ARCHITECTURE: Rule 3). Real Delta."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from sparkstore.core.records import message_acquired, opened, run_of
from sparkstore.errors import CorruptData, Fenced, Unavailable
from sparkstore.log import journal as journal_module
from sparkstore.log.journal import Commit, Journal
from sparkstore.tables import delta_log_cleaning, rows
from sparkstore.tables.delta_files import Version, log_file, read_version
from sparkstore.tables.healing import heal
from sparkstore.tables.marks import mark_durable, read_marks
from sparkstore.tables.root import Root, open_or_create_root
from tests.support.roots.logs import epochs_in, fact, facts_in, unsynced_files, zero

pytestmark = pytest.mark.system

FAILS = CommitFailedError("the storage did not answer")


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return open_or_create_root(tmp_path / "root")


def commit_of(journal: Journal, first: int, count: int = 1, segment: int = 1) -> Commit:
    """Facts numbered by their position."""
    records = [fact(number) for number in range(first, first + count)]
    table = rows.to_table(records, first_position=first, epoch=journal.epoch, segment=segment)
    return Commit(table, first, first + count - 1, segment)


def begin(root: Root, epoch: int, position: int, writer: str = "") -> Journal:
    """Open a journal and start an epoch, as a start does."""
    journal = Journal(root, writer or f"writer of {epoch}")
    journal.begin_epoch(epoch)
    table = rows.to_table(
        [opened(0, journal.writer)], first_position=position, epoch=epoch, segment=0
    )
    journal.append(Commit(table, position, position, 0))
    return journal


class Storage:
    """`write_deltalake` that fails on some calls, before or after the commit has landed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.plan: list[str] = []
        self.calls = 0
        monkeypatch.setattr(journal_module, "write_deltalake", self)

    def __call__(self, *args: Any, **named: Any) -> None:
        self.calls += 1
        what = self.plan.pop(0) if self.plan else "works"
        if what == "fails before":
            raise FAILS
        write_deltalake(*args, **named)
        if what == "fails after":
            raise FAILS


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> Storage:
    return Storage(monkeypatch)


def append_until_known(journal: Journal, commit: Commit) -> None:
    """As the committer: the same commit again until its fate is known."""
    while True:
        try:
            journal.append(commit)
        except Unavailable:
            continue
        return


def test_numbers_that_rise_by_one_take_next_to_no_room(root: Root) -> None:
    """In a file of a commit, and when a merge made one of two; DuckDB reads it."""
    journal, run = begin(root, 1, 1), run_of(message_acquired(0, "q", 1, "c"), 40_000)
    for first in (2, 40_002):
        table = rows.to_table([run], first_position=first, epoch=1, segment=1)
        journal.append(Commit(table, first, first + 39_999, 1))
    sizes = [path.stat().st_size for path in root.journal.rglob("segment=1/*.parquet")]
    assert len(sizes) == 2
    assert max(sizes) < 40_000
    journal.merge(1, 1 << 20)
    merged = DeltaTable(str(root.journal)).file_uris(file_pruning_predicate=[("segment", "=", "1")])
    assert len(merged) == 1
    assert Path(merged[0]).stat().st_size < 60_000
    whole = "SELECT count(*), min(position), max(position), sum(message_id) FROM read_parquet(?)"
    ids = 2 * sum(range(1, 40_001))
    assert duckdb.execute(whole, merged).fetchone() == (80_000, 2, 80_001, ids)


@pytest.mark.parametrize("what", ["fails before", "fails after"])
def test_a_commit_in_doubt_is_in_the_table_once(root: Root, storage: Storage, what: str) -> None:
    journal = begin(root, 1, 1)
    journal.append(commit_of(journal, 2, 3))
    storage.plan = [what, what]
    append_until_known(journal, commit_of(journal, 5, 4))
    append_until_known(journal, commit_of(journal, 9))
    assert facts_in(root.path) == [*range(2, 10)]


def test_commits_whose_fate_is_in_doubt_over_and_over_are_in_the_table_once(
    root: Root, storage: Storage
) -> None:
    journal = begin(root, 1, 1)
    for position in range(2, 80):
        storage.plan = [["fails before"], ["fails after"], [], ["fails before", "fails after"]][
            position % 4
        ]
        append_until_known(journal, commit_of(journal, position, segment=position // 10))
    assert facts_in(root.path) == [*range(2, 80)]


def test_an_opening_in_doubt_is_in_the_table_once(root: Root, storage: Storage) -> None:
    storage.plan = ["fails after"]
    journal = Journal(root, "writer")
    journal.begin_epoch(1)
    record = rows.to_table([opened(0, "writer")], first_position=1, epoch=1, segment=0)
    append_until_known(journal, Commit(record, 1, 1, 0))
    journal.append(commit_of(journal, 2))
    assert epochs_in(root.path) == [1]
    assert facts_in(root.path) == [2]


@pytest.mark.parametrize("landed", [False, True])
def test_a_drop_in_doubt_is_not_taken_for_the_commit_after_it(
    root: Root, monkeypatch: pytest.MonkeyPatch, landed: bool
) -> None:
    journal = begin(root, 1, 1)
    journal.append(commit_of(journal, 2, segment=5))
    journal.append(commit_of(journal, 3, segment=6))
    delete = DeltaTable.delete

    def fails(table: DeltaTable, *args: Any, **named: Any) -> object:
        if landed:
            delete(table, *args, **named)
        raise FAILS

    monkeypatch.setattr(DeltaTable, "delete", fails)
    with pytest.raises(Unavailable):
        journal.drop_segments([5])
    journal.append(commit_of(journal, 4, segment=6))
    table = DeltaTable(str(root.journal)).to_pyarrow_table(columns=["position"])
    found = sorted(table["position"].to_pylist())
    assert found == ([1, 3, 4] if landed else [1, 2, 3, 4])


def test_a_writer_that_was_taken_over_is_fenced_with_its_old_handle(root: Root) -> None:
    old = begin(root, 1, 1)
    old.append(commit_of(old, 2))
    new = begin(root, 2, 3)
    with pytest.raises((Fenced, Unavailable)):
        old.append(commit_of(old, 3))
    with pytest.raises(Fenced, match="owned by writer writer o of epoch 2"):
        old.append(commit_of(old, 3))
    new.append(commit_of(new, 4))
    assert facts_in(root.path) == [2, 4]


@pytest.mark.parametrize("act", ["append", "drop", "merge", "vacuum"])
def test_a_fresh_handle_of_a_writer_that_was_taken_over_commits_nothing(
    root: Root, act: str
) -> None:
    old = begin(root, 1, 1)
    old.append(commit_of(old, 2, segment=5))
    old.append(commit_of(old, 3, segment=5))
    begin(root, 2, 4)
    old._table = None
    version = old.version
    acts: dict[str, Callable[[], object]] = {
        "append": lambda: old.append(commit_of(old, 4)),
        "drop": lambda: old.drop_segments([5]),
        "merge": lambda: old.merge(5, 1 << 20),
        "vacuum": lambda: old.vacuum(0),
    }
    with pytest.raises(Fenced):
        acts[act]()
    assert old.version == version


def test_an_opener_that_read_the_table_before_the_other_writers_last_commit_is_fenced(
    root: Root,
) -> None:
    """Its `opened` would take the position of a record that was acknowledged."""
    serving = begin(root, 1, 1)
    late = Journal(root, "the other")
    serving.append(commit_of(serving, 2))
    late.begin_epoch(2)
    record = rows.to_table([opened(0, "the other")], first_position=2, epoch=2, segment=0)
    with pytest.raises(Fenced):
        late.append(Commit(record, 2, 2, 0))
    assert facts_in(root.path) == [2]


def test_two_openers_with_handles_at_the_same_version_make_one_epoch(root: Root) -> None:
    first, second = Journal(root, "a" * 32), Journal(root, "b" * 32)
    for journal in (first, second):
        journal.begin_epoch(1)
        journal._open()
    record = rows.to_table([opened(0, "w")], first_position=1, epoch=1, segment=0)
    first.append(Commit(record, 1, 1, 0))
    with pytest.raises((Fenced, Unavailable)):
        second.append(Commit(record, 1, 1, 0))
    with pytest.raises(Fenced):
        second.append(Commit(record, 1, 1, 0))
    assert epochs_in(root.path) == [1]


def test_a_merge_keeps_rows_and_positions_and_makes_files_few(root: Root) -> None:
    journal = begin(root, 1, 1)
    for position in range(2, 22):
        journal.append(commit_of(journal, position, segment=7))
    journal.merge(7, 1 << 20)
    journal.append(commit_of(journal, 22, segment=8))
    assert facts_in(root.path) == [*range(2, 23)]
    table = DeltaTable(str(root.journal))
    assert len(table.file_uris(file_pruning_predicate=[("segment", "=", "7")])) == 1


def test_a_handle_is_opened_anew_now_and_then_and_nothing_changes(root: Root) -> None:
    journal = begin(root, 1, 1)
    for position in range(2, 160):
        journal.append(commit_of(journal, position))
    assert facts_in(root.path) == [*range(2, 160)]
    assert journal.checkpoint_is_due
    journal.checkpoint()
    assert not journal.checkpoint_is_due
    journal.append(commit_of(journal, 160))
    assert facts_in(root.path) == [*range(2, 161)]


def test_only_versions_after_the_last_commit_are_read_to_find_the_owner(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = begin(root, 1, 1)
    for position in range(2, 30):
        journal.append(commit_of(journal, position))
    read: list[int] = []
    real = journal_module.read_version

    def spy(table: Path, version: int) -> object:
        read.append(version)
        return real(table, version)

    monkeypatch.setattr(journal_module, "read_version", spy)
    begin(root, 2, 30)
    assert min(read) >= journal.version - 2


def test_a_commit_that_another_opener_has_half_written_is_read_again(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name is there before its bytes. What stays broken is not read for ever."""
    journal = begin(root, 1, 1)
    path = log_file(root.journal, journal.version)
    content, looks = path.read_bytes(), 0

    def look(table: Path, version: int) -> Version:
        nonlocal looks
        looks += 1
        if looks == 3:
            path.write_bytes(content)
        return read_version(table, version)

    monkeypatch.setattr(journal_module, "read_version", look)
    path.write_bytes(content[:100])
    assert Journal(root, "another").epoch == 1
    path.write_bytes(content[:100])
    with pytest.raises(CorruptData):
        Journal(root, "a third")


def test_log_files_stay_until_a_mark_is_past_the_checkpoint_that_stands_for_them(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut that takes the versions after the mark would take the table with it."""
    monkeypatch.setattr(delta_log_cleaning, "READER_S", -1.0)
    journal = begin(root, 1, 1)
    for position in range(2, 11):
        journal.append(commit_of(journal, position))
        if position == 4:
            mark_durable(root, {"journal": journal.version})
        if position % 3 == 0:
            journal.checkpoint()
    marked = read_marks(root).versions["journal"]
    for path in unsynced_files(root):
        zero(path)
    heal(root, ["journal"])
    assert DeltaTable(str(root.journal)).version() == marked
    assert facts_in(root.path) == [2, 3, 4]


def test_a_version_can_be_read_for_as_long_as_the_grace_of_readers(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compaction reads the version that it began with, minutes later."""
    monkeypatch.setattr(delta_log_cleaning, "READER_S", -1.0)
    journal = begin(root, 1, 1)
    log = root.journal / "_delta_log"
    for position in range(2, 11):
        journal.append(commit_of(journal, position))
        if position % 3 == 0:
            mark_durable(root, {"journal": journal.version})
            journal.checkpoint(grace_s=3600.0)
    oldest, between, *_ = sorted(log.glob("*.checkpoint.parquet"))
    began = int(between.name[:20])
    for version in range(began + 1):
        DeltaTable(str(root.journal), version=version)
    long_ago = time.time() - 7200
    for path in (oldest, between):
        os.utime(path, (long_ago, long_ago))
    journal.checkpoint(grace_s=3600.0)
    assert min(int(path.name[:20]) for path in log.glob("0*.json")) == began
    for version in range(began, journal.version + 1):
        DeltaTable(str(root.journal), version=version)


def test_no_more_versions_stay_than_a_commit_can_bear(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_log_cleaning, "READER_S", -1.0)
    monkeypatch.setattr(delta_log_cleaning, "MOST_VERSIONS", 3)
    journal = begin(root, 1, 1)
    for position in range(2, 14):
        journal.append(commit_of(journal, position))
        mark_durable(root, {"journal": journal.version})
        journal.checkpoint(grace_s=3600.0)
    kept = [*(root.journal / "_delta_log").glob("0*[0-9].json")]
    assert len(kept) == 4
