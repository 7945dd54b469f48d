"""What is kept on disk for a while, and never more than it may be."""

from __future__ import annotations

import os
from pathlib import Path

from sparkstore.content.scratch import Scratch


def anything(_byte_count: int) -> bool:
    return True


def test_what_was_written_is_read_back_until_it_is_let_go(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path, 1_000, anything)
    parts = [b"first", b"the second", b"third"]
    places = scratch.write(parts)
    assert [scratch.read(place) for place in places] == parts
    scratch.close()
    assert [scratch.read(place) for place in places] == [None] * 3
    assert scratch.write(parts) == []


def test_the_newest_half_at_least_is_kept_and_never_more_than_all(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path, 1_000, anything)
    parts = [bytes([number]) * 100 for number in range(50)]
    places = [place for part in parts for place in scratch.write([part])]
    kept = [scratch.read(place) for place in places]
    assert kept[45:] == parts[45:]
    assert sum(part is not None for part in kept) <= 10
    assert sum(os.fstat(file.fileno()).st_size for file in scratch._halves) <= 1_000
    scratch.close()


def test_it_has_no_name_and_leaves_nothing(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path, 1_000, anything)
    scratch.write([b"content"])
    assert [*tmp_path.iterdir()] == []
    scratch.close()


def test_what_is_larger_than_a_half_is_not_kept(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path, 1_000, anything)
    assert scratch.write([bytes(400), bytes(101)]) == []
    assert scratch.write([]) == []


def test_a_disk_that_gets_short_of_room_gets_all_of_it_back(tmp_path: Path) -> None:
    free = 600
    scratch = Scratch(tmp_path, 10_000, lambda byte_count: byte_count <= free)
    (place,) = scratch.write([bytes(500)])
    free = 100
    assert scratch.write([bytes(500)]) == []
    assert scratch.read(place) is None
    assert scratch._halves == []


def test_a_folder_that_takes_no_file_keeps_nothing(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path / "gone", 1_000, anything)
    assert scratch.write([b"content"]) == []


def test_bytes_that_a_disk_changed_are_not_given_back(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path, 1_000, anything)
    first, second = scratch.write([b"content", b"other"])
    os.pwrite(first.file.fileno(), b"C", 0)
    assert (scratch.read(first), scratch.read(second)) == (None, b"other")
    os.ftruncate(first.file.fileno(), 9)
    assert scratch.read(second) is None
    scratch.close()
