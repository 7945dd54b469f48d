from __future__ import annotations

from pathlib import Path

import pytest

from sparkstore.errors import CorruptData, Fenced, InvalidRequest
from sparkstore.replication.replicate_plan import (
    check_apart,
    check_not_ahead,
    check_pair,
    check_reach,
)
from sparkstore.tables.root import Identity

HERE = Path("/replica")
PRIMARY = Identity("a", generation=3)


def replica(**changes: object) -> Identity:
    said = {"role": "replica", "generation": 3, "primary_id": "a", "primary": "/primary"}
    return Identity("b", **(said | changes))  # type: ignore[arg-type]


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


@pytest.mark.parametrize("name", ["root", "link", "root/../root", "root/below", "."])
def test_one_folder_by_two_names_or_one_in_the_other_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "root")
    with pytest.raises(InvalidRequest, match="folder"):
        check_apart(tmp_path / "root", tmp_path / name)
    check_apart(tmp_path / "root", tmp_path / "root2")
