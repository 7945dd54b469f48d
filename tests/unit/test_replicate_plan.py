from __future__ import annotations

from pathlib import Path

import pytest

from sparkstore.errors import CorruptData, Fenced, InvalidRequest
from sparkstore.replicate_plan import (
    FILE_BYTES,
    LEAST_FILE_BYTES,
    Extent,
    Found,
    Opening,
    check_apart,
    check_not_ahead,
    check_pair,
    check_reach,
    counts,
    cuts,
    end_of,
)
from sparkstore.root import Identity

HERE = Path("/replica")
PRIMARY = Identity("a", generation=3)


def replica(**changes: object) -> Identity:
    said = {"role": "replica", "generation": 3, "primary_id": "a", "primary": "/primary"}
    return Identity("b", **(said | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "after", "last"),
    [
        (Found(0, 0, None), 7, 7),
        (Found(3, 8 + 9 + 10, 10), 7, 10),
        (Found(2, 8 + 10, 10), 7, None),
        (Found(3, 8 + 10 + 10, 10), 7, None),
        (Found(3, 8 + 8 + 10, 10), 7, None),
        (Found(4, 8 + 9 + 10 + 10, 10), 7, None),
        (Found(2, 9 + 10, 10), 7, None),
        (Found(0, 0, 5), 7, 7),  # a sparse history ends before it is gapless
    ],
)
def test_records_go_on_only_without_a_gap_and_each_once(
    found: Found, after: int, last: int | None
) -> None:
    assert end_of(found, after) == last


def test_a_replica_of_this_primary_and_generation_may_go_on() -> None:
    check_pair(HERE, replica(), PRIMARY)


@pytest.mark.parametrize(
    ("identity", "error", "said"),
    [
        (replica(primary_id="x"), InvalidRequest, "another store's data"),
        (replica(role="primary", primary_id=""), InvalidRequest, "is a primary, not a replica"),
        (replica(role="fenced"), InvalidRequest, "is a fenced, not a replica"),
        (replica(generation=2), InvalidRequest, "has generation 2, its primary has 3: empty"),
        (replica(generation=4), Fenced, "it was promoted; use it"),
        (replica(generation=4, role="primary"), Fenced, "it was promoted; use it"),
        (replica(generation=4, role="primary", primary_id=""), InvalidRequest, "is a primary"),
    ],
)
def test_any_other_root_is_refused(identity: Identity, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        check_pair(HERE, identity, PRIMARY)


@pytest.mark.parametrize(("last", "start"), [(0, 1), (0, 500), (1, 1), (500, 500), (600, 500)])
def test_a_replica_within_the_primarys_history_may_go_on(last: int, start: int) -> None:
    check_reach(HERE, last, start)


@pytest.mark.parametrize(("last", "start"), [(499, 500), (1, 2)])
def test_a_replica_behind_the_primarys_history_must_begin_anew(last: int, start: int) -> None:
    with pytest.raises(InvalidRequest, match=f"every record only from {start} on: empty"):
        check_reach(HERE, last, start)


def test_a_replica_that_knows_more_than_its_primary_is_refused() -> None:
    check_not_ahead(HERE, 7, 7)
    with pytest.raises(CorruptData, match="ends at position 8, its primary at 7"):
        check_not_ahead(HERE, 8, 7)


@pytest.mark.parametrize(
    ("openings", "expected"),
    [
        ([], "epoch >= 0"),
        ([(10, 3), (4, 2)], "epoch >= 3"),
        ([(10, 3), (12, 4)], "epoch >= CASE WHEN position >= 12 THEN 4 ELSE 3 END"),
        ([(12, 4)], "epoch >= CASE WHEN position >= 12 THEN 4 ELSE 0 END"),
        # One of a lower epoch is a ghost itself; of two at one position the higher counts.
        ([(9, 3), (12, 2), (14, 3)], "epoch >= 3"),
        (
            [(15, 7), (9, 3), (12, 4), (12, 5), (13, 4)],
            "epoch >= CASE WHEN position >= 15 THEN 7 WHEN position >= 12 THEN 5"
            " WHEN position >= 12 THEN 4 ELSE 3 END",
        ),
    ],
)
def test_a_row_counts_if_no_higher_epoch_was_opened_before_it(
    openings: list[tuple[int, int]], expected: str
) -> None:
    assert counts([Opening(*opening) for opening in openings], after=10) == expected


HALF = FILE_BYTES // 2


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([], [(10, 40)]),
        ([Extent(40, 9 * HALF)], [(10, 40)]),
        ([Extent(20, HALF), Extent(30, HALF), Extent(40, HALF)], [(10, 30), (30, 40)]),
        ([Extent(40, HALF), Extent(20, 2 * HALF), Extent(30, HALF)], [(10, 20), (20, 40)]),
        ([Extent(20, 2 * HALF), Extent(20, 2 * HALF), Extent(99, 2 * HALF)], [(10, 20), (20, 40)]),
    ],
)
def test_records_are_cut_where_files_end_and_some_size_is_reached(
    files: list[Extent], expected: list[tuple[int, int]]
) -> None:
    assert cuts(10, 40, files, cores=1) == expected


def test_a_task_for_each_core_is_cut_if_it_is_worth_a_file() -> None:
    files = [Extent(last, LEAST_FILE_BYTES) for last in (20, 30, 40)]
    assert cuts(10, 40, files, cores=3) == [(10, 20), (20, 30), (30, 40)]
    assert cuts(10, 40, files, cores=99) == [(10, 20), (20, 30), (30, 40)]
    small = [Extent(last, LEAST_FILE_BYTES // 3) for last in (20, 30, 40)]
    assert cuts(10, 40, small, cores=3) == [(10, 40)]


@pytest.mark.parametrize("name", ["root", "link", "root/../root", "root/below", "."])
def test_one_folder_by_two_names_or_one_in_the_other_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "root")
    with pytest.raises(InvalidRequest, match="folder"):
        check_apart(tmp_path / "root", tmp_path / name)
    check_apart(tmp_path / "root", tmp_path / "root2")
