"""Views as of a moment say what the views of a store that stopped then would say."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import write_deltalake

import sparkstore
from sparkstore.core.annotations import plain_time
from sparkstore.core.records import (
    message_enqueued,
    opened,
)
from sparkstore.embedded.answers import answer
from sparkstore.errors import InvalidRequest
from sparkstore.jobs import job_runs
from sparkstore.jobs.job_runs import JobRun
from sparkstore.recovery.point_in_time import PointInTime, point_in_time
from sparkstore.sql.queries import VIEWS
from sparkstore.tables.delta_files import newest_version
from sparkstore.tables.root import Root
from sparkstore.tables.snapshot import snapshot
from tests.support.histories.bundles import bundled, drawn_history, drawn_layers
from tests.support.histories.histories import History, Layers, Row, fold_rows
from tests.support.histories.seeds import seed
from tests.support.histories.timed_records import (
    HEADER,
    SECOND_US,
    beginning,
    fold_again,
    put,
    rows_of,
    told,
    took,
)
from tests.support.histories.viewed import rows
from tests.support.roots.roots import build_root, state_table

SEEDS = [1, 2, None]
"""None: one of chance, drawn when the test runs."""
NOT_COMPARED = {
    "queues": {"oldest_age_s", "delayed"},
    **{view: {"position"} for view in ("bindings", "configuration", "transactions")},
}
"""What goes by the clock, and what the oracle's fold does not know of wiring."""


def stopped_at(history: History, position: int) -> History:
    """The records up to a position, and what fenced writers had written by then."""
    return History(
        history.rows[:position], [row for row in history.ghosts if row.position <= position]
    )


def everything(root: Root, as_of: int | None = None) -> dict[str, list[str]]:
    found = {}
    for view in VIEWS:
        kept = rows(root, f"FROM {view}", as_of)
        left_out = NOT_COMPARED.get(view, set())
        told = [{name: row[name] for name in row.keys() - left_out} for row in kept]
        told = [dict(sorted(row.items())) for row in told]
        found[view] = sorted(map(repr, told))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("fixed", SEEDS)
def test_views_as_of_a_position_are_those_of_a_store_that_stopped_there(
    tmp_path: Path, fixed: int | None
) -> None:
    number = seed() if fixed is None else fixed
    print(f"seed {number}")
    chance = random.Random(number)
    history = bundled(chance, [drawn_history(chance, 50) for _ in range(10)])
    layers = drawn_layers(chance, history)
    root = build_root(tmp_path / "root", layers)
    earlier = sorted(chance.sample(range(1, layers.state_position + 1), 3))
    fold_again(root, history.rows, [*earlier, layers.state_position])
    for position in chance.sample(range(1, history.last_position + 1), 3):
        print(f"position {position} of {history.last_position}, folded at {earlier}")
        stopped = stopped_at(history, position)
        same = Layers(stopped, 0, 0, 1, layers.segment_records)
        other = build_root(tmp_path / f"at-{position}", same)
        assert everything(root, position) == everything(other)
        assert delayed(root, position) == waiting_then(root, position)


def delayed(root: Root, position: int) -> dict[str, int]:
    found = rows(root, "SELECT queue, delayed FROM queues WHERE delayed > 0", position)
    return {row["queue"]: row["delayed"] for row in found}


def waiting_then(root: Root, position: int) -> dict[str, int]:
    """Count what was not to be delivered yet when the last record of then was written."""
    statement = "SELECT queue, acquired_by, visible_at FROM queue_messages"
    then = point_in_time(root, f"position={position}").at
    found = rows(root, f"{statement} WHERE visible_at IS NOT NULL", position)
    waits = (row for row in found if row["acquired_by"] is None and row["visible_at"] > then)
    return dict(Counter(row["queue"] for row in waits))


START = beginning()


def test_a_message_is_delayed_as_of_a_time_before_its_own(tmp_path: Path) -> None:
    later = message_enqueued(10 * SECOND_US, "q", 1, HEADER, b"abc", detail=plain_time(30_000))
    root = told(tmp_path / "told", [*START, later, put(2, 20), put(3, 40)])
    found = [
        rows(root, "SELECT delayed FROM queues", datetime.fromtimestamp(second, UTC))[0]["delayed"]
        for second in (9, 10, 29, 30, 40)
    ]
    assert found == [0, 1, 1, 0, 0]


def depth(root: Root, as_of: Any) -> int:
    (row,) = rows(root, "SELECT depth FROM queues", as_of)
    return int(row["depth"])


@pytest.mark.parametrize("moved", [(0, 0), (0, 7), (7, 7), (4, 5), (5, 7)])
def test_a_time_means_the_last_record_of_then(tmp_path: Path, moved: tuple[int, int]) -> None:
    records = [*START, put(1, 10), put(2, 20), put(3, 30), put(4, 40)]
    root = told(tmp_path / "told", records, state=moved[0], history=moved[1])
    for second, expected in [(1, 0), (9, 0), (10, 1), (19, 1), (20, 2), (39, 3), (4000, 4)]:
        if moved[0] and second < 30 and moved[0] == 7:
            continue
        assert depth(root, datetime.fromtimestamp(second, UTC)) == expected


def test_a_clock_that_was_set_back_changes_the_time_and_not_the_order(tmp_path: Path) -> None:
    """Of the records at 10, 50, 20, 60 s the last of 20 s is the third: what is before, was."""
    root = told(tmp_path / "told", [*START, put(1, 10), put(2, 50), put(3, 20), put(4, 60)])
    found = [depth(root, datetime.fromtimestamp(second, UTC)) for second in (10, 19, 20, 50, 60)]
    assert found == [1, 1, 3, 3, 4]


def test_a_row_of_a_fenced_writer_is_no_last_record(tmp_path: Path) -> None:
    history = History(rows_of([*START, put(1, 10)]))
    history.rows.append(Row(5, 2, opened(30 * SECOND_US, "x")))
    history.ghosts = [Row(n, 1, put(n, 20)) for n in (5, 6)]
    root = build_root(tmp_path / "root", Layers(history, 0, 0, 1, 1000))
    assert point_in_time(root, "1970-01-01 00:00:25").position == 4
    assert depth(root, "1970-01-01T00:00:25Z") == 1


def test_the_age_of_the_oldest_message_is_its_age_then(tmp_path: Path) -> None:
    root = told(tmp_path / "told", [*START, put(1, 10)])
    (row,) = rows(root, "SELECT oldest_age_s FROM queues", "1970-01-01 00:01:10")
    assert row["oldest_age_s"] == 60


def test_a_consumed_message_is_back_on_its_queue_with_its_content(tmp_path: Path) -> None:
    root = told(tmp_path / "told", [*START, put(1, 10), took(1, 20)], state=5, history=5)
    assert rows(root, "FROM queue_messages") == []
    found = sparkstore.query(root.path, "SELECT body FROM queue_messages", as_of=4)
    assert found.to_pylist() == [{"body": b"abc"}]
    ends = rows(root, "SELECT outcome FROM messages", "1970-01-01 00:00:19")
    assert ends == [{"outcome": None}]


def test_the_newest_fold_that_is_not_later_is_started_from(tmp_path: Path) -> None:
    records = [*START, put(1, 10), put(2, 20), put(3, 30)]
    layers = Layers(History([Row(n, 1, r) for n, r in enumerate(records, 1)]), 3, 6, 1, 1000)
    root = build_root(tmp_path / "root", layers)
    fold_again(root, layers.history.rows, [4, 5])
    first = newest_version(root.state) - 2
    starts = [point_in_time(root, position)[2:4] for position in (2, 3, 4, 6)]
    assert starts == [(None, 0), (first, 3), (first + 1, 4), (first + 2, 5)]
    for file in root.state.rglob("*.parquet"):
        if file.stat().st_ino not in _inodes(root):
            file.unlink()
    assert point_in_time(root, 4) == PointInTime(4, 10 * SECOND_US, None, 0, is_in_history=True)
    assert depth(root, 4) == 1


def _inodes(root: Root) -> set[int]:
    return {file.path.stat().st_ino for file in snapshot(root.state)}


def test_what_is_before_history_is_refused_with_how_far_back_it_goes(tmp_path: Path) -> None:
    records = [*START, put(1, 10), put(2, 20), put(3, 30)]
    root = told(tmp_path / "told", records, state=5, history=6)
    state = state_table(fold_rows(rows_of(records[:5])))
    for start in (1, 6):
        shortened = state.set_column(
            state.schema.get_field_index("history_start"),
            state.schema.field("history_start"),
            [[start if row else None for row in state["history_start"].to_pylist()]],
        )
        write_deltalake(str(root.state), shortened, mode="overwrite")
    assert depth(root, "1970-01-01 00:00:20") == 2
    back = "before what is kept whole: answers go back to position 5, of 1970-01-01 00:00:20 UTC"
    with pytest.raises(InvalidRequest, match=back):
        depth(root, "1970-01-01 00:00:19")


@pytest.mark.parametrize(
    ("as_of", "message"),
    [
        ("yesterday", "'yesterday' is no time: give a time as '2026-11-22 10:00'"),
        ("2026-13-01", "is no time"),
        ("", "'' is no time"),
        ("1970-01-01", "is before the first record of this root, of 1970-01-01 00:00:10 UTC"),
        ("0001-01-01T00:00:00+00:00", "is before the first record"),
        ("9999-12-31T23:59:59-14:00", "is in the future: it is 20"),
        ("position=0", "is before the first record"),
        ("position=-1", "is no position"),
        ("position=9999", "position 9999 is in the future: the last record is 4"),
        ("position=x'; --", "is no position"),
        (datetime(9998, 1, 1, tzinfo=UTC), "is in the future"),
        (-1, "-1 is before the first record"),
    ],
    ids=str,
)
def test_a_moment_that_is_not_there_is_told(tmp_path: Path, as_of: Any, message: str) -> None:
    later = [each._replace(at=10 * SECOND_US) for each in START]
    root = told(tmp_path / "told", [*later, put(1, 20)])
    with pytest.raises(InvalidRequest, match=message):
        answer(root, "SELECT count(*) FROM queues", as_of=as_of)


def test_a_time_zone_counts_and_without_one_it_is_utc(tmp_path: Path) -> None:
    root = told(tmp_path / "told", [*START, put(1, 3600), put(2, 7200)])
    for text, expected in [
        ("1970-01-01 01:00", 1),
        ("1970-01-01T01:00:00Z", 1),
        ("1970-01-01T03:00+02:00", 1),
        ("1970-01-01T01:00-01:00", 2),
        (" position=5 ", 2),
    ]:
        assert depth(root, text) == expected
    assert depth(root, datetime(1970, 1, 1, 1)) == 1  # noqa: DTZ001


def test_runs_of_jobs_are_those_that_had_ended(tmp_path: Path) -> None:
    root = told(tmp_path / "told", [*START, put(1, 10)])
    for second in (10, 20):
        began = datetime.fromtimestamp(second, UTC)
        job_runs.record(root, JobRun(str(second), "compact", began, 5.0, "done", {}))
    query = "SELECT run_id FROM job_runs ORDER BY 1"
    found = [
        [row["run_id"] for row in rows(root, query, f"1970-01-01 00:00:{second}")]
        for second in (14, 15, 25)
    ]
    assert found == [[], ["10"], ["10", "20"]]
