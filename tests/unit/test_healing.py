"""What a power cut breaks at the end of a table is set aside, and nothing else."""

from __future__ import annotations

import json
import logging
import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from sparkstore import marks
from sparkstore.delta_files import (
    checkpoints,
    log_file,
    log_folder,
    newest_version,
    read_version,
    versions,
)
from sparkstore.durable_files import fsync_with_folders
from sparkstore.errors import CorruptData
from sparkstore.healing import check, heal
from sparkstore.marks import MARKS_FILE, mark_durable, read_marks
from sparkstore.root import TABLES, Root, open_root
from tests.roots import append_journal, build_root, rows_table, state_table
from tests.strategies import Layers, Row, build_history, fold_rows

HISTORY = build_history([(step % 20, step, 3 * step) for step in range(20)])
ALL = [*TABLES]


def zeroed(path: Path) -> None:
    path.write_bytes(b"\0" * path.stat().st_size)


def cut_short(path: Path) -> None:
    os.truncate(path, path.stat().st_size * 2 // 3)


def emptied(path: Path) -> None:
    os.truncate(path, 0)


def cut_at_a_line(path: Path) -> None:
    path.write_bytes(path.read_bytes().rsplit(b"\n", 1)[0] + b"\n")


def lost(path: Path) -> None:
    path.unlink()


Damage = Callable[[Path], None]
DAMAGES: list[Damage] = [zeroed, cut_short, emptied, lost]


def append(root: Root, table: str) -> int:
    """One more version of a table, some row in it; its number."""
    if table == "journal":
        append_journal(root, [HISTORY.rows[-1]], 0, 77)
    elif table == "history":
        write_deltalake(str(root.history), rows_table(HISTORY.rows[-1:], 0), mode="append")
    else:
        write_deltalake(str(root.state), state_table(fold_rows(HISTORY.rows)), mode="append")
    return newest_version(root.table(table))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each table has three versions or more, all marked durable."""
    path = tmp_path_factory.mktemp("template") / "root"
    built = build_root(path, Layers(HISTORY, 9, 12, 1, 7), commit_records=5)
    for table in ALL:
        append(built, table)
    mark_durable(built, {table: newest_version(built.table(table)) for table in ALL})
    return path


@pytest.fixture
def root(tmp_path: Path, template: Path) -> Root:
    """A copy of the template that a test may break."""
    shutil.copytree(template, tmp_path / "root")
    return open_root(tmp_path / "root")


def files(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def rows(root: Root, table: str) -> int:
    """Rows of a table as Delta sees it."""
    count: int = DeltaTable(str(root.table(table))).to_pyarrow_table().num_rows
    return count


def data_file(root: Root, table: str, version: int) -> Path:
    (file,) = read_version(root.table(table), version).adds
    return root.table(table) / file.path


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


def one_data_file(root: Root, table: str) -> int:
    """One more version with a single data file."""
    last = append(root, table)
    while len(read_version(root.table(table), last).adds) != 1:
        write_deltalake(
            str(root.state),
            state_table(fold_rows(HISTORY.rows)).slice(0, 1),
            mode="append",
        )
        last = newest_version(root.table(table))
    return last


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


def read_rows(path: Path) -> int:
    count: int = pq.read_metadata(path).num_rows
    return count


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


def test_without_marks_and_with_a_short_log_all_that_is_active_is_synced(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root.path / MARKS_FILE).unlink()
    DeltaTable(str(root.journal)).create_checkpoint()
    active = DeltaTable(str(root.journal)).file_uris()
    for version in versions(root.journal)[:-1]:
        log_file(root.journal, version).unlink()
    synced: list[Path] = []
    monkeypatch.setattr(marks, "fsync_with_folders", lambda paths, **_: synced.extend(paths))
    assert heal(root, ["journal"]) == []
    assert {*map(Path, active)} <= {*synced}


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


def test_each_file_that_is_set_aside_has_a_line_in_the_log(
    root: Root, caplog: pytest.LogCaptureFixture
) -> None:
    last = append(root, "journal")
    zeroed(log_file(root.journal, last))
    with caplog.at_level(logging.WARNING):
        (healed,) = heal(root, ["journal"])
    assert [str(path) in caplog.text for path in healed.set_aside] == [True]
    assert len(healed.reason.replace(str(root.path), "")) < 200  # zeroes are not repeated


def test_two_tables_can_be_marked_by_two_processes(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, state = append(root, "journal"), append(root, "state")
    sync = fsync_with_folders

    def sync_while_a_job_marks(paths: list[Path], *, up_to: Path) -> None:
        sync(paths, up_to=up_to)
        monkeypatch.setattr(marks, "fsync_with_folders", sync)
        mark_durable(root, {"state": state})

    monkeypatch.setattr(marks, "fsync_with_folders", sync_while_a_job_marks)
    mark_durable(root, {"journal": journal})
    assert read_marks(root).versions.items() >= {"journal": journal, "state": state}.items()


def hadoop_sums(path: Path) -> Path:
    """The check sums that Spark would have written beside a file."""
    content = path.read_bytes()
    chunks = (content[start : start + 512] for start in range(0, len(content), 512))
    sums = path.with_name(f".{path.name}.crc")
    sums.write_bytes(
        b"crc\0\0\0\x02\0" + b"".join(zlib.crc32(chunk).to_bytes(4, "big") for chunk in chunks)
    )
    return sums


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


def test_a_mark_is_set_only_after_everything_it_names_was_synced(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = append(root, "journal")
    synced: list[Path] = []

    def record(paths: list[Path], *, up_to: Path) -> None:
        assert read_marks(root).versions["journal"] == last - 1
        synced.extend([*paths, up_to])

    monkeypatch.setattr(marks, "fsync_with_folders", record)
    (marked,) = mark_durable(root, {"journal": last})
    assert {*synced} >= {
        log_file(root.journal, last),
        data_file(root, "journal", last),
        root.journal,
    }
    assert (marked.first, marked.last) == (last, last)
    assert json.loads((root.path / MARKS_FILE).read_bytes())["versions"]["journal"] == last


def test_a_failed_fsync_marks_nothing(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    last = append(root, "journal")

    def fail(_paths: list[Path], *, up_to: Path) -> None:
        raise OSError(5, "Input/output error", str(up_to))

    monkeypatch.setattr(marks, "fsync_with_folders", fail)
    with pytest.raises(OSError, match="Input/output error"):
        mark_durable(root, {"journal": last})
    assert read_marks(root).versions["journal"] == last - 1


def test_a_mark_knows_the_last_position_of_the_journal(root: Root) -> None:
    append_journal(root, [Row(1_000, 9, HISTORY.rows[0].record)], 0, 78)
    mark_durable(root, {"journal": newest_version(root.journal)})
    assert read_marks(root).last_position == 1_000


def test_a_mark_does_not_go_back(root: Root) -> None:
    before = read_marks(root)
    assert mark_durable(root, {"journal": 0}) == []
    assert read_marks(root) == before
