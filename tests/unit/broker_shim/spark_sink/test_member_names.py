"""Names of members: few, and never two users of one."""

from __future__ import annotations

from pathlib import Path

from broker_shim.spark_sink.member_names import member_name


def test_a_name_has_one_user_at_a_time_and_is_used_again(tmp_path: Path) -> None:
    folder = tmp_path / "names"
    with member_name(folder) as first, member_name(folder) as second:
        assert first != second
    with member_name(folder) as third:
        assert third == first
    assert len([*folder.iterdir()]) == 2
    with member_name(tmp_path / "of another machine") as other:
        assert other not in {first, second}


def test_a_name_that_was_written_by_half_is_drawn_anew(tmp_path: Path) -> None:
    folder = tmp_path / "names"
    with member_name(folder) as first:
        pass
    for torn in (b"", b"abc", b"../../..", b"x" * 50):
        (folder / "0.name").write_bytes(torn)
        with member_name(folder) as found:
            assert found != first
            assert (folder / "0.name").read_text() == found.removeprefix("spark-sink-")
        with member_name(folder) as again:
            assert again == found


def test_a_folder_that_others_may_write_in_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o777)
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to(tmp_path / "open")
    for folder in (tmp_path / "open", tmp_path / "link"):
        with member_name(folder) as first, member_name(folder) as second:
            assert first != second
    assert [*(tmp_path / "open").iterdir()] == []
