"""A root that a test may break."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sparkstore.delta_files import (
    newest_version,
)
from sparkstore.marks import mark_durable
from sparkstore.root import Root, open_root
from tests.damage import (
    ALL,
    HISTORY,
    append,
)
from tests.roots import build_root
from tests.strategies import Layers


@pytest.fixture(scope="session")
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
