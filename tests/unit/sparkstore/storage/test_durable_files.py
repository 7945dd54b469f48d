from __future__ import annotations

from pathlib import Path

import pytest

from sparkstore.storage.durable_files import (
    fsync_path,
    fsync_with_folders,
    make_folders,
    replace_durably,
)


def test_a_file_is_replaced_whole_and_leaves_nothing_behind(tmp_path: Path) -> None:
    file = tmp_path / "small.json"
    replace_durably(file, b"old content")
    replace_durably(file, b"new")
    assert file.read_bytes() == b"new"
    assert [*tmp_path.iterdir()] == [file]


def test_the_new_content_is_on_disk_before_it_gets_the_name_and_the_name_after(
    tmp_path: Path, calls: list[str]
) -> None:
    replace_durably(tmp_path / "f", b"new")
    assert calls == ["fsync f.new", "rename f.new f", f"fsync {tmp_path.name}"]


def test_a_replacement_that_fails_leaves_the_old_content(tmp_path: Path) -> None:
    file = tmp_path / "f"
    replace_durably(file, b"old")
    (tmp_path / "f.new").mkdir()
    with pytest.raises(IsADirectoryError):
        replace_durably(file, b"new")
    assert file.read_bytes() == b"old"


def test_a_scratch_file_that_a_crash_left_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "f.new").write_bytes(b"half a longer content")
    replace_durably(tmp_path / "f", b"new")
    assert (tmp_path / "f").read_bytes() == b"new"


def test_files_are_synced_before_their_folders_and_inner_folders_before_outer_ones(
    tmp_path: Path, calls: list[str]
) -> None:
    inner = tmp_path / "table" / "part"
    inner.mkdir(parents=True)
    for name in ("a", "b"):
        (inner / name).write_text(name)
    fsync_with_folders([inner / "a", inner / "b"], up_to=tmp_path)
    assert calls == [f"fsync {name}" for name in ("a", "b", "part", "table", tmp_path.name)]


def test_the_names_of_new_folders_are_synced_and_those_of_old_ones_are_not(
    tmp_path: Path, calls: list[str]
) -> None:
    make_folders(tmp_path / "table" / "part")
    assert sorted(calls) == sorted([f"fsync {tmp_path.name}", "fsync table"])
    make_folders(tmp_path / "table" / "part")
    assert len(calls) == 2


def test_no_files_still_sync_the_folder(tmp_path: Path, calls: list[str]) -> None:
    fsync_with_folders([], up_to=tmp_path)
    assert calls == [f"fsync {tmp_path.name}"]


def test_a_file_that_is_not_there_raises(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        fsync_path(tmp_path / "none")
