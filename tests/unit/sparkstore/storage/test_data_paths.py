"""Only a data file within its own table may be named by a Delta log."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkstore.errors import CorruptData
from sparkstore.storage.data_paths import check_within, data_path


@pytest.mark.parametrize(
    ("path", "decoded"),
    [
        ("part-00000-5f.c000.snappy.parquet", "part-00000-5f.c000.snappy.parquet"),
        ("segment=1/part-0.zstd.parquet", "segment=1/part-0.zstd.parquet"),
        ("part=entry/block=__HIVE_DEFAULT_PARTITION__/a.parquet",) * 2,
        ("part%3Dentry/a.parquet", "part=entry/a.parquet"),
    ],
)
def test_a_data_file_of_a_table_may_be_named(path: str, decoded: str) -> None:
    assert data_path(path, "0.json") == decoded


@pytest.mark.parametrize(
    "path",
    [
        "../../authorized_keys",
        "%2e%2e/%2E%2E/authorized_keys",
        "segment=1/../../x.parquet",
        "segment=1/..%2f..%2fx.parquet",
        "./x.parquet",
        "/etc/passwd",
        "%2Fetc/passwd",
        "file:/etc/passwd",
        "s3://lake/other/x.parquet",
        "C:\\x.parquet",
        "a//b.parquet",
        "a/",
        "",
        "_delta_log/00000000000000000000.json",
        "a\x00b.parquet",
        "a\nb.parquet",
        "a.parquet\n",
        ".hidden.parquet",
        None,
        7,
        ["a.parquet"],
    ],
)
def test_anything_else_is_refused_in_one_line(path: object) -> None:
    with pytest.raises(CorruptData) as refused:
        data_path(path, "journal/_delta_log/7.json")
    assert "7.json names" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_link_out_of_a_table_is_refused_and_a_table_on_another_disk_is_not(
    tmp_path: Path,
) -> None:
    folder, disk = tmp_path / "backup", tmp_path / "disk"
    folder.mkdir()
    disk.mkdir()
    (disk / "a.parquet").touch()
    (folder / "history").symlink_to(disk)
    assert check_within(folder, "history/a.parquet").exists()
    (disk / "b.parquet").symlink_to(folder.parent / "secret")
    for name in ("history/b.parquet", "history/../x", "../x", "history/./a.parquet"):
        with pytest.raises(CorruptData, match="leads out of its table"):
            check_within(folder, name)
