"""A table is rewritten if a version that was seen is another file now."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sparkstore.cli.sql_server.seen_tables import SeenTables
from sparkstore.core.records import opened, queue_created
from sparkstore.tables.delta_files import log_file, newest_version
from sparkstore.tables.root import Root, open_or_create_root, open_root
from tests.support.spark.tables import journal


@pytest.fixture
def root(tmp_path: Path) -> Root:
    made = open_or_create_root(tmp_path / "root")
    journal(made, [opened(1, "w")])
    return made


def test_what_is_new_and_what_came_since_are_not_rewritten(root: Root) -> None:
    seen = SeenTables()
    assert not seen.is_rewritten(root)
    journal(root, [queue_created(2, "q", "{}")], first=2)
    assert not seen.is_rewritten(root)
    assert not seen.is_rewritten(root)


def test_a_newest_version_that_was_written_anew_is_noticed_once(root: Root) -> None:
    seen = SeenTables()
    seen.is_rewritten(root)
    newest = log_file(root.journal, newest_version(root.journal))
    text = newest.read_bytes()
    newest.unlink()
    newest.write_bytes(text + b"\n")
    assert seen.is_rewritten(root)
    assert not seen.is_rewritten(root)


def test_a_newest_version_that_is_gone_is_noticed(root: Root) -> None:
    seen = SeenTables()
    seen.is_rewritten(root)
    log_file(root.journal, newest_version(root.journal)).unlink()
    assert seen.is_rewritten(root)


def test_another_root_in_the_same_folder_is_noticed(root: Root, tmp_path: Path) -> None:
    seen = SeenTables()
    seen.is_rewritten(root)
    shutil.copytree(root.path, tmp_path / "copy")
    shutil.rmtree(root.path)
    shutil.move(tmp_path / "copy", root.path)
    assert seen.is_rewritten(open_root(root.path))
