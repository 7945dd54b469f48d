"""The store lets go of journal segments that history and state hold durably (ARCHITECTURE: Rule 5).

What compaction would have written is written here with deltalake; the store under test is real.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import MessageHeader, Queue
from sparkstore.core import fold
from sparkstore.tables.delta_files import newest_version
from sparkstore.tables.lease import jobs_lease
from sparkstore.tables.marks import mark_durable, read_marks
from sparkstore.tables.root import Root, open_root
from sparkstore.tables.rows import to_records
from tests.support.roots.logs import CONFIG, until
from tests.support.roots.roots import state_table
from tests.support.stores.stores import done

pytestmark = pytest.mark.system

KEEP = replace(CONFIG, segment_commits=2, reader_grace_s=3600.0)
"""Segments of two commits; nothing is old enough to go."""
TRIM = replace(KEEP, reader_grace_s=0.0)
MESSAGES = 12


@pytest.fixture
def root(tmp_path: Path) -> Root:
    """Messages 1 to 12 on a queue, one Delta commit each, the even ones acquired."""
    store = DeltaMessageStore(tmp_path / "root", KEEP)
    done(store.create, Queue("q"))
    for number in range(1, MESSAGES + 1):
        message = store.message(MessageHeader(), b"body %d" % number)
        done(store.enqueue, message, "q")
        if number % 2 == 0:
            done(store.acquire, message.message_id, "q", "holder")
        done(store.flush)
    store.close()
    return open_root(tmp_path / "root")


def journal_rows(root: Root) -> pa.Table:
    return DeltaTable(str(root.journal)).to_pyarrow_table()


def positions_in(root: Root) -> list[int]:
    return sorted(journal_rows(root)["position"].to_pylist())


def compact(
    root: Root,
    *,
    missing: int = 0,
    up_to: int | None = None,
    marked: Collection[str] = ("history", "state"),
) -> int:
    """What the job would do, up to a position; `missing` is a position it leaves out. P."""
    position = up_to or max(positions_in(root))
    rows = journal_rows(root)
    rows = rows.filter(pc.less_equal(rows["position"], position))
    state = fold.State()
    for at, epoch, record in sorted(to_records(rows), key=lambda row: row[0]):
        fold.apply(state, at, record, epoch)
    write_deltalake(
        str(root.history), rows.filter(pc.not_equal(rows["position"], missing)), mode="append"
    )
    write_deltalake(str(root.state), state_table(state), mode="append")
    mark_durable(root, {table: newest_version(root.table(table)) for table in marked})
    return position


def run_trimmer(root: Root, config: Any = TRIM) -> DeltaMessageStore:
    """Open the store and wait until the trimmer has run once."""
    store = DeltaMessageStore(root.path, config)
    trimmer = store._log._committer._trimmer
    until(lambda: trimmer._ran_at_s > 0)
    done(store.create, Queue("other"))
    done(store.flush)
    return store


def test_segments_that_history_holds_are_dropped_and_content_is_still_read(root: Root) -> None:
    position = compact(root)
    store = run_trimmer(root)
    until(lambda: min(positions_in(root)) > position)
    entries = store.recover().entries["q"]
    assert [*entries] == [*range(1, MESSAGES + 1)]
    assert [entry.acquired_by for entry in entries.values()] == [None, "holder"] * (MESSAGES // 2)
    for number in range(1, MESSAGES + 1):
        assert store.load(number).body == b"body %d" % number
    store.close()
    store = DeltaMessageStore(root.path, TRIM)
    assert [*store.recover().entries["q"]] == [*range(1, MESSAGES + 1)]
    assert store.load(1).body == b"body 1"
    store.close()


def test_nothing_goes_while_history_misses_a_position(
    root: Root, caplog: pytest.LogCaptureFixture
) -> None:
    before = positions_in(root)
    compact(root, missing=5)
    run_trimmer(root).close()
    assert "history holds" in caplog.text
    assert positions_in(root)[: len(before)] == before


def test_nothing_goes_before_the_grace_of_readers_is_over(root: Root) -> None:
    before = positions_in(root)
    compact(root)
    run_trimmer(root, KEEP).close()
    assert positions_in(root)[: len(before)] == before


def test_nothing_goes_before_a_first_compaction(root: Root) -> None:
    before = positions_in(root)
    run_trimmer(root).close()
    assert positions_in(root)[: len(before)] == before


def test_only_segments_up_to_the_folded_position_go(root: Root) -> None:
    rows = journal_rows(root)
    segments = sorted(set(rows["segment"].to_pylist()))
    kept = segments[3]
    first = pc.min(rows.filter(pc.equal(rows["segment"], kept))["position"]).as_py()
    compact(root, up_to=first)
    store = DeltaMessageStore(root.path, TRIM)
    until(lambda: min(positions_in(root)) == first)
    store.close()
    assert positions_in(root)[: MESSAGES // 2] == [*range(first, first + MESSAGES // 2)]


@pytest.mark.parametrize("table", ["history", "state"])
def test_nothing_goes_that_only_an_unmarked_version_of_history_or_state_holds(
    root: Root, table: str
) -> None:
    """Its fsync may have failed, and a second one may lie: the trimmer asks for none."""
    before = positions_in(root)
    compact(root, marked={"history", "state"} - {table})
    with opened_unhealed(root) as store:
        trimmer = store._log._committer._trimmer
        until(lambda: trimmer._ran_at_s > 0)
        done(store.create, Queue("other"))
        done(store.flush)
        assert read_marks(root).versions[table] < newest_version(root.table(table))
    assert positions_in(root)[: len(before)] == before


@contextmanager
def opened_unhealed(root: Root) -> Iterator[DeltaMessageStore]:
    """A store on a root whose history and state are in a job's hands while it starts."""
    with jobs_lease(root.path):
        store = DeltaMessageStore(root.path, TRIM)
        try:
            yield store
        finally:
            store.close()
