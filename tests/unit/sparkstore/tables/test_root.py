from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake

from sparkstore.core.records import opened
from sparkstore.errors import CorruptData, InvalidRequest
from sparkstore.tables.root import TABLES, Root, open_or_create_root, open_root, path_of
from sparkstore.tables.rows import to_table
from sparkstore.tables.schema import SCHEMA_VERSION

FIRST_VERSION = f"_delta_log/{0:020}.json"
FIRST = Path(FIRST_VERSION)


@pytest.fixture(scope="module")
def new_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new root with empty tables, for reading only: it takes a while to make."""
    return open_or_create_root(tmp_path_factory.mktemp("new") / "root").path


@pytest.fixture
def root(new_root: Path, tmp_path: Path) -> Path:
    """A root of one's own, just created."""
    return Path(shutil.copytree(new_root, tmp_path / "root"))


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(file): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def change_identity(root: Path, **changes: object) -> None:
    file = root / "root.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_a_new_root_has_three_empty_tables_that_both_engines_can_read(root: Path) -> None:
    for name, (_, partitions) in TABLES.items():
        table = DeltaTable(str(root / name))
        assert table.to_pyarrow_table().num_rows == 0
        assert table.metadata().partition_columns == list(partitions)
        protocol = table.protocol()
        assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)


def test_a_new_root_is_on_disk_up_to_its_own_name_before_it_is_one(
    tmp_path: Path, calls: list[str]
) -> None:
    """What is acknowledged in it would go with any of these names."""
    path = tmp_path / "root"
    open_or_create_root(path)
    linked = calls.index("link root.json")
    for name in TABLES:
        made = ["_delta_log", name, "root", tmp_path.name]
        at = calls.index(f"fsync {name}")
        assert calls[at - 2 : at + 3] == [f"fsync {each}" for each in (FIRST.name, *made)]
        assert at < linked
    assert calls[linked + 1 :][-1:] == ["fsync root"]


def test_an_existing_root_is_opened_as_it_is(root: Path) -> None:
    before = snapshot(root)
    again = open_or_create_root(root)
    assert again == open_root(f"file://{root}")
    assert again.identity.role == "primary"
    assert snapshot(root) == before


def test_nothing_but_its_files_is_left_in_a_new_root(root: Path) -> None:
    assert {child.name for child in root.iterdir()} == {"root.json", *TABLES}


def test_an_empty_folder_with_a_writers_lock_becomes_a_root(tmp_path: Path) -> None:
    (tmp_path / "writer.lock").touch()
    assert open_or_create_root(tmp_path) == open_root(tmp_path)


def test_a_folder_that_is_not_ours_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(InvalidRequest, match=r"thesis\.tex"):
        open_or_create_root(tmp_path)
    assert [*snapshot(tmp_path)] == [str(tmp_path / "thesis.tex")]


def test_a_file_or_another_kind_of_uri_cannot_be_a_root(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidRequest, match="is a file"):
        open_or_create_root(tmp_path / "file")
    with pytest.raises(InvalidRequest, match="s3://"):
        path_of("s3://bucket/root")


def test_opening_a_folder_without_root_json_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="not a sparkstore root"):
        open_root(tmp_path)


def test_an_older_schema_version_is_refused(root: Path) -> None:
    (root / "root.json").write_text(json.dumps({"schema_version": SCHEMA_VERSION - 1}))
    with pytest.raises(CorruptData, match="no release wrote that"):
        open_root(root)


def test_a_newer_schema_version_is_refused_whatever_else_the_file_says(root: Path) -> None:
    (root / "root.json").write_text(json.dumps({"schema_version": SCHEMA_VERSION + 1}))
    with pytest.raises(CorruptData, match="install a newer sparkstore"):
        open_or_create_root(root)


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 200, b'{"root_id": "a', b"[]", b"{}", b"\xff\xfe"]
)
def test_an_unreadable_root_json_is_refused_and_left_as_it_is(root: Path, content: bytes) -> None:
    (root / "root.json").write_bytes(content)
    before = snapshot(root)
    with pytest.raises(CorruptData, match="cannot be read"):
        open_or_create_root(root)
    assert snapshot(root) == before


def test_what_a_newer_writer_added_to_root_json_is_passed_over(root: Path) -> None:
    change_identity(root, colour="blue", generation=3)
    assert open_root(root).identity.generation == 3


@pytest.mark.parametrize(
    ("broken", "content"),
    [("journal", b"\0" * 700), ("history", b""), ("state", b'{"protocol":{"minRead')],
)
def test_a_creation_that_was_cut_off_is_made_anew(root: Path, broken: str, content: bytes) -> None:
    (root / "root.json").rename(root / "root.json.new")
    (root / broken / FIRST_VERSION).write_bytes(content)
    (root / "wal").mkdir()
    identity = open_or_create_root(root).identity
    assert open_root(root).identity == identity
    for name in TABLES:
        assert DeltaTable(str(root / name)).version() == 0


@pytest.mark.parametrize("made", range(3))
def test_a_creation_that_made_only_some_tables_is_completed(
    root: Path, tmp_path: Path, made: int
) -> None:
    (root / "root.json").unlink()
    for name in [*TABLES][made:]:
        (root / name).rename(tmp_path / f"gone-{name}")
    (root / [*TABLES][made] / "_delta_log").mkdir(parents=True)
    open_or_create_root(root)
    for name in TABLES:
        assert DeltaTable(str(root / name)).version() == 0


def test_what_another_creator_has_begun_is_left_to_it(root: Path) -> None:
    """Else the folder of its first version goes while it is being written."""
    (root / "root.json").unlink()
    first = root / "journal" / FIRST_VERSION
    first.rename(scratch := first.with_name(f"{first.name}.tmp#1"))
    open_or_create_root(root)
    assert scratch.is_file()
    assert DeltaTable(str(root / "journal")).version() == 0


def test_tables_with_records_and_no_root_json_are_refused_and_left_as_they_are(root: Path) -> None:
    rows = to_table([opened(1, "w")], first_position=1, epoch=1, segment=1)
    write_deltalake(str(root / "journal"), rows, mode="append")
    (root / "root.json").unlink()
    before = snapshot(root)
    with pytest.raises(CorruptData, match=r"journal but no root\.json: restore"):
        open_or_create_root(root)
    assert snapshot(root) == before


@pytest.mark.parametrize(
    "file", ["wal/1.wal", f"state/_delta_log/{1:020}.json", "history/segment=1/part-0.parquet"]
)
def test_any_trace_of_records_without_root_json_is_refused(root: Path, file: str) -> None:
    (root / "root.json").unlink()
    (root / file).parent.mkdir(parents=True, exist_ok=True)
    (root / file).write_bytes(b"\0" * 100)
    before = snapshot(root)
    with pytest.raises(CorruptData, match="from a backup"):
        open_or_create_root(root)
    assert snapshot(root) == before


def test_of_two_who_create_a_root_the_first_root_json_counts(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second looked before the first was done."""
    first = open_root(root)
    monkeypatch.setattr("sparkstore.tables.root.is_root", lambda _path: False)
    assert open_or_create_root(root) == first


@pytest.mark.parametrize("name", ["a%20b", "a[x]b", "a\\b", "a^b", "a|b", "a\nb"])
def test_a_path_that_the_engines_misread_is_refused_before_anything_is_made(
    name: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidRequest, match="choose another folder") as refused:
        open_or_create_root(tmp_path / name)
    assert str(refused.value).isprintable()
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("take", [open_root, open_or_create_root])
def test_a_link_to_nothing_is_told_as_that(take: Callable[[Path], Root], tmp_path: Path) -> None:
    (link := tmp_path / "root").symlink_to(tmp_path / "gone")
    with pytest.raises(InvalidRequest, match=r"is a link to .*gone, which is not there"):
        take(link)
    assert [*tmp_path.iterdir()] == [link]


@pytest.mark.parametrize(
    ("where", "told"),
    [
        (Path("s3://lake/queues"), "write a bucket as a text, s3://lake/queues"),
        ("s3:/lake/queues", "write a bucket as a text, s3://lake/queues"),
        ("GS:/lake", "write a bucket as a text, gs://lake"),
        ("s3//lake/queues", "write a bucket as a text, s3://lake/queues"),
        ("s3///lake/queues", "write a bucket as a text, s3://lake/queues"),
        ("s3:lake/queues", "write a bucket as a text, s3://lake/queues"),
        ("s3a//lake/queues", "is no folder"),
        ("hdfs://name/queues", "only a folder"),
        ("file:queues", "is no folder"),
        ("nfs:/server/queues", "is no folder"),
        (None, "a root cannot be NoneType"),
        (5, "a root cannot be int"),
        (b"root", "a root cannot be bytes"),
    ],
)
def test_what_is_no_folder_is_not_made_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: Any, told: str
) -> None:
    """`Path` makes one slash of two, so a bucket would become a folder named s3: here."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidRequest, match=re.escape(told)):
        open_or_create_root(where)
    assert [*tmp_path.iterdir()] == []
