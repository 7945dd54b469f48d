"""A log file that is not whole is never believed; nor are check sums that are not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from deltalake import DeltaTable

from sparkstore.errors import CorruptData
from sparkstore.tables.delta_files import (
    log_file,
    newest_version,
    read_version,
)
from sparkstore.tables.healing import check, heal
from sparkstore.tables.root import Root
from tests.support.roots.damage import (
    Damage,
    append,
    cut_short,
    emptied,
    hadoop_sums,
    rows,
    zeroed,
)


def appended(root: Root) -> None:
    append(root, "journal")


def merged(root: Root) -> None:
    DeltaTable(str(root.journal)).optimize.compact()


def trimmed(root: Root) -> None:
    DeltaTable(str(root.journal)).delete("segment = 0")


def committed_by_spark(root: Root) -> None:
    path = log_file(root.journal, append(root, "journal"))
    path.write_bytes(path.read_bytes() + b"\n")
    hadoop_sums(path)


@pytest.mark.parametrize("commit", [appended, merged, trimmed, committed_by_spark])
def test_a_commit_that_was_cut_anywhere_is_broken(
    root: Root, commit: Callable[[Root], None]
) -> None:
    commit(root)
    last = newest_version(root.journal)
    path = log_file(root.journal, last)
    content = path.read_bytes()
    ends = [index for index, byte in enumerate(content) if byte == ord("\n")]
    near_ends = {end + offset for end in ends for offset in (-1, 0, 1)}
    for size in sorted(
        {*range(0, len(content), 41), *near_ends, len(content) - 1} - {len(content)}
    ):
        path.write_bytes(content[:size])
        with pytest.raises(CorruptData):
            read_version(root.journal, last)
    path.write_bytes(content)
    assert read_version(root.journal, last).version == last


@pytest.mark.parametrize("damage", [zeroed, cut_short, emptied])
def test_broken_check_sums_go_and_the_file_they_are_of_stays(root: Root, damage: Damage) -> None:
    last = append(root, "state")
    before = rows(root, "state")
    sums = hadoop_sums(log_file(root.state, last))
    data_sums = hadoop_sums(root.state / read_version(root.state, last).adds[0].path)
    assert heal(root, ["state"]) == []
    last = append(root, "state")
    sums = hadoop_sums(log_file(root.state, last))
    data_sums = hadoop_sums(root.state / read_version(root.state, last).adds[0].path)
    damage(sums)
    damage(data_sums)
    (healed,) = heal(root, ["state"])
    assert {path.name for path in healed.set_aside} == {sums.name, data_sums.name}
    assert healed.first_broken is None
    assert rows(root, "state") > before


def test_a_commit_that_disagrees_with_its_check_sums_is_broken(root: Root) -> None:
    last = append(root, "state")
    path = log_file(root.state, last)
    hadoop_sums(path)
    actions = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([actions[0].replace(b'"WRITE"', b'"MERGE"'), *actions[1:]]))
    assert check(root, "state") == last
