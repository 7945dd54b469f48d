"""What a power cut breaks at the end of a table is set aside, and nothing else."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from deltalake import DeltaTable

from sparkstore.errors import CorruptData
from sparkstore.tables.delta_files import (
    checkpoints,
    log_file,
    log_folder,
    newest_version,
    read_version,
    versions,
)
from sparkstore.tables.healing import check, heal
from sparkstore.tables.marks import MARKS_FILE, read_marks
from sparkstore.tables.root import Root
from tests.support.roots.damage import (
    ALL,
    DAMAGES,
    Damage,
    append,
    cut_at_a_line,
    cut_short,
    data_file,
    files,
    lost,
    one_data_file,
    read_rows,
    rows,
    zeroed,
)


@pytest.mark.parametrize("damage", [*DAMAGES, cut_at_a_line])
@pytest.mark.parametrize("table", ["journal", "history", "state"])
def test_a_broken_newest_commit_is_set_aside_and_nothing_before_it(
    root: Root, table: str, damage: Damage
) -> None:
    before = rows(root, table)
    last = append(root, table)
    damage(log_file(root.table(table), last))
    healed = heal(root, ALL)
    assert [(one.table, one.first_broken) for one in healed] == (
        [] if damage is lost else [(table, last)]
    )
    assert rows(root, table) == before
    assert check(root, table) is None


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("table", ["journal", "history", "state"])
def test_a_commit_whose_data_file_is_broken_is_set_aside(
    root: Root, table: str, damage: Damage
) -> None:
    last = one_data_file(root, table)
    expected = rows(root, table) - read_rows(data_file(root, table, last))
    damage(data_file(root, table, last))
    assert check(root, table) == last
    (healed,) = heal(root, ALL)
    assert (healed.table, healed.first_broken, healed.was_durable) == (table, last, False)
    assert rows(root, table) == expected


def test_zeroes_in_the_middle_of_a_data_file_are_found(root: Root) -> None:
    last = append(root, "journal")
    path = data_file(root, "journal", last)
    content = bytearray(path.read_bytes())
    content[8:200] = bytes(192)
    path.write_bytes(content)
    assert check(root, "journal") == last


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("table", ["journal", "history", "state"])
def test_a_broken_checkpoint_is_set_aside_and_the_versions_stay(
    root: Root, table: str, damage: Damage
) -> None:
    before = rows(root, table)
    DeltaTable(str(root.table(table))).create_checkpoint()
    (file,) = checkpoints(root.table(table))[newest_version(root.table(table))]
    damage(file)
    healed = heal(root, ALL)
    names = {path.name for one in healed for path in one.set_aside}
    assert names == {"_last_checkpoint", *([] if damage is lost else [file.name])}
    assert rows(root, table) == before
    assert heal(root, ALL) == []


def test_a_checkpoint_without_the_versions_before_it_is_left_to_the_operator(root: Root) -> None:
    DeltaTable(str(root.journal)).create_checkpoint()
    last = newest_version(root.journal)
    for version in versions(root.journal)[:-1]:
        log_file(root.journal, version).unlink()
    zeroed(checkpoints(root.journal)[last][0])
    before = files(root.path)
    with pytest.raises(CorruptData, match="cannot be healed"):
        heal(root, ["journal"])
    assert files(root.path) == before


def test_everything_after_the_first_broken_version_goes_with_it(root: Root) -> None:
    before = rows(root, "journal")
    first = append(root, "journal")
    append(root, "journal")
    DeltaTable(str(root.journal)).create_checkpoint()
    last = append(root, "journal")
    broken = log_file(root.journal, first)
    later = {path.name for path in log_folder(root.journal).iterdir()} - {
        log_file(root.journal, version).name for version in range(first)
    }
    zeroed(broken)
    (healed,) = heal(root, ["journal"])
    assert {path.name for path in healed.set_aside} == later
    assert len(later) == last - first + 1 + 2  # a checkpoint and the pointer to it
    assert rows(root, "journal") == before
    assert append(root, "journal") == first


def test_a_version_that_is_missing_breaks_those_after_it(root: Root) -> None:
    first = append(root, "journal")
    append(root, "journal")
    log_file(root.journal, first).unlink()
    (healed,) = heal(root, ["journal"])
    assert healed.first_broken == first
    assert newest_version(root.journal) == first - 1


def test_a_file_that_a_later_version_merged_away_is_not_missed(root: Root) -> None:
    for _ in range(3):
        last = append(root, "journal")
    DeltaTable(str(root.journal)).optimize.compact()
    data_file(root, "journal", last).unlink()
    before = rows(root, "journal")
    assert heal(root, ["journal"]) == []
    assert rows(root, "journal") == before


def test_commits_of_every_kind_that_the_store_makes_are_whole(root: Root) -> None:
    journal = DeltaTable(str(root.journal))
    journal.optimize.compact()
    journal.delete("segment = 0")
    journal.vacuum(0, dry_run=False, enforce_retention_duration=False)
    append(root, "journal")
    assert check(root, "journal") is None
    assert heal(root, ["journal"]) == []


def test_healing_twice_is_harmless_and_what_it_left_is_marked(root: Root) -> None:
    last = append(root, "state")
    cut_short(log_file(root.state, last))
    assert len(heal(root, ALL)) == 1
    before = files(root.path)
    assert heal(root, ALL) == []
    assert files(root.path) == before
    assert read_marks(root).versions["state"] == last - 1


def test_without_marks_everything_is_checked(root: Root) -> None:
    (root.path / MARKS_FILE).unlink()
    zeroed(data_file(root, "history", 1))
    assert check(root, "history") == 1
    (healed,) = heal(root, ALL)
    assert (healed.table, healed.first_broken) == ("history", 1)
    assert read_marks(root).versions.keys() == {*ALL}


def test_marks_that_cannot_be_read_are_no_marks(root: Root) -> None:
    zeroed(root.path / MARKS_FILE)
    assert read_marks(root).versions == {}
    assert heal(root, ALL) == []
    assert read_marks(root).versions == {t: newest_version(root.table(t)) for t in ALL}


def test_the_version_at_the_mark_is_looked_at_too(root: Root) -> None:
    """A disk broke it, not a power cut: it is set aside, and recovery will miss its records."""
    last = newest_version(root.journal)
    zeroed(log_file(root.journal, last))
    (healed,) = heal(root, ["journal"])
    assert (healed.first_broken, healed.was_durable) == (last, True)
    assert read_marks(root).versions["journal"] == last - 1
    assert heal(root, ["journal"]) == []


def test_a_whole_commit_whose_file_was_removed_is_left_where_it_is(root: Root) -> None:
    """Whoever removed the file may put it back: the commit names it."""
    last = newest_version(root.journal)
    (file, *_) = read_version(root.journal, last).adds
    (root.journal / file.path).rename(root.path / "kept")
    with pytest.raises(CorruptData, match=r"is gone, though it was on disk: put it back"):
        heal(root, ["journal"])
    assert not (root.path / "set-aside").exists()
    (root.path / "kept").rename(root.journal / file.path)
    assert heal(root, ["journal"]) == []


def test_a_table_that_lost_versions_from_before_the_mark_is_not_touched(root: Root) -> None:
    last = newest_version(root.journal)
    log_file(root.journal, last).unlink()
    with pytest.raises(CorruptData, match=f"ends at version {last - 1}, but version {last} was"):
        heal(root, ["journal"])


class Killed(Exception):
    """The process ended here."""


@pytest.mark.parametrize("step", range(8))
def test_a_kill_between_two_steps_of_setting_aside_is_harmless(
    root: Root, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    before = rows(root, "journal")
    first = append(root, "journal")
    append(root, "journal")
    DeltaTable(str(root.journal)).create_checkpoint()
    append(root, "journal")
    zeroed(log_file(root.journal, first))
    unlink, left = Path.unlink, step

    def unlink_some(path: Path) -> None:
        nonlocal left
        if not left:
            raise Killed
        left -= 1
        unlink(path)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", unlink_some)
        if step < 5:
            with pytest.raises(Killed):
                heal(root, ["journal"])
        else:
            heal(root, ["journal"])
    heal(root, ["journal"])
    assert rows(root, "journal") == before
    assert versions(root.journal) == [*range(first)]
    kept = {path.name for path in (root.path / "set-aside").rglob("*") if path.is_file()}
    assert log_file(root.journal, first).name in kept


def test_what_is_set_aside_is_on_disk_there_before_it_goes_and_gone_before_the_table_is_used(
    root: Root, calls: list[str]
) -> None:
    first = append(root, "journal")
    append(root, "journal")
    zeroed(log_file(root.journal, first))
    calls.clear()
    heal(root, ["journal"])
    names = [log_file(root.journal, version).name for version in (first + 1, first)]
    moved = calls[calls.index(f"link {names[0]}") :]
    assert moved == [
        *(f"link {name}" for name in names),
        *("fsync 000001", "fsync journal", "fsync set-aside", f"fsync {root.path.name}"),
        *(f"unlink {name}" for name in names),
        "fsync _delta_log",
    ]


def test_each_file_that_is_set_aside_has_a_line_in_the_log(
    root: Root, caplog: pytest.LogCaptureFixture
) -> None:
    last = append(root, "journal")
    zeroed(log_file(root.journal, last))
    with caplog.at_level(logging.WARNING):
        (healed,) = heal(root, ["journal"])
    assert [str(path) in caplog.text for path in healed.set_aside] == [True]
    assert len(healed.reason.replace(str(root.path), "")) < 200  # zeroes are not repeated
