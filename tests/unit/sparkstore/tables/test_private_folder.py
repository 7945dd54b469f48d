"""Nobody but its owner gets into a folder that we made for messages, whatever the umask."""

from __future__ import annotations

import argparse
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker_shim.serve.stores import open_stores
from broker_shim.store.delta import DeltaMessageStore
from sparkstore.config import StoreConfig
from sparkstore.replication.replicas import paired
from sparkstore.tables.private_folder import private_folder
from sparkstore.tables.root import open_or_create_root


@pytest.fixture(autouse=True)
def _careless_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def open_store(folder: Path) -> None:
    DeltaMessageStore(folder).close()


def open_store_with_its_log_there(folder: Path) -> None:
    root = folder.with_name("root")
    DeltaMessageStore(root, StoreConfig(wal_dir=str(folder))).close()


def open_configuration(folder: Path) -> None:
    options = argparse.Namespace(memory=False, configuration=folder, root=None, store=None)
    open_stores(options, StoreConfig()).close()


def make_replica(folder: Path) -> None:
    primary = open_or_create_root(folder.with_name("primary")).path
    with paired(primary, folder):
        pass


CREATORS = [
    private_folder,
    open_store,
    open_store_with_its_log_there,
    open_configuration,
    make_replica,
]


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("create", [*CREATORS, open_or_create_root])
def test_a_folder_that_is_made_is_its_owners(
    tmp_path: Path, create: Callable[[Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    create(tmp_path / "new")
    assert mode_of(tmp_path / "new") == 0o700
    assert "is open to others" not in caplog.text


@pytest.mark.parametrize(
    ("create", "mode"),
    [*((create, 0o755) for create in CREATORS), (private_folder, 0o750), (private_folder, 0o701)],
)
def test_one_that_was_there_and_is_open_is_told_and_left_as_it_is(
    tmp_path: Path, create: Callable[[Path], object], mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "there").mkdir(mode=mode)
    create(tmp_path / "there")
    assert mode_of(tmp_path / "there") == mode
    assert f"there is open to others (mode {mode:04o})" in caplog.text
