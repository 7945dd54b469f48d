"""A root that a test may break, and what its process asks of the disk."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from sparkstore.tables.delta_files import (
    newest_version,
)
from sparkstore.tables.marks import mark_durable
from sparkstore.tables.root import Root, open_root
from tests.support.histories.strategies import Layers
from tests.support.roots.damage import (
    ALL,
    HISTORY,
    append,
)
from tests.support.roots.roots import build_root


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


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What reaches the disk, by name and in order. Only the call shows an fsync."""
    seen: list[str] = []
    real_fsync, real_link = os.fsync, os.link
    real_replace, real_rename, real_unlink = Path.replace, Path.rename, Path.unlink

    def fsync(descriptor: int) -> None:
        seen.append(f"fsync {Path(f'/proc/self/fd/{descriptor}').readlink().name}")
        real_fsync(descriptor)

    def link(source: Path, target: Path) -> None:
        seen.append(f"link {Path(target).name}")
        real_link(source, target)

    def replace(path: Path, target: Path) -> Path:
        seen.append(f"rename {path.name} {target.name}")
        return real_replace(path, target)

    def rename(path: Path, target: Path) -> Path:
        seen.append(f"rename {path.name} {target.name}")
        return real_rename(path, target)

    def unlink(path: Path, missing_ok: bool = False) -> None:
        seen.append(f"unlink {path.name}")
        real_unlink(path, missing_ok)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "link", link)
    monkeypatch.setattr(Path, "replace", replace)
    monkeypatch.setattr(Path, "rename", rename)
    monkeypatch.setattr(Path, "unlink", unlink)
    return seen
