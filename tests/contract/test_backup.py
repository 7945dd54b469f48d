"""What a copy of a root is: whole, or refused; never opened with less than it should hold."""

from __future__ import annotations

from pathlib import Path
from shutil import copy2, copytree

import pytest

from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import MessageHeader, Queue
from sparkstore.errors import CorruptData
from tests.support.stores.stores import DELTA_CONFIG, done


def put(store: DeltaMessageStore, count: int) -> None:
    for number in range(count):
        done(store.enqueue, store.message(MessageHeader(), b"body %d" % number), "q")


def copy(root: Path, to: Path, *names: str) -> None:
    for name in names:
        if (root / name).is_dir():
            copytree(root / name, to / name)
        else:
            copy2(root / name, to / name)


def test_a_copy_of_a_root_whose_store_has_ended_is_whole(tmp_path: Path) -> None:
    store = DeltaMessageStore(tmp_path / "root", DELTA_CONFIG)
    done(store.create, Queue("q"))
    put(store, 3)
    store.close()
    copytree(tmp_path / "root", tmp_path / "copy")
    again = DeltaMessageStore(tmp_path / "copy", DELTA_CONFIG)
    assert len(again.recover().entries["q"]) == 3
    again.close()


def test_a_copy_of_two_moments_is_refused(tmp_path: Path) -> None:
    """The tables first, the rest when the store has gone on: as `cp -r` may read them."""
    root, to = tmp_path / "root", tmp_path / "copy"
    to.mkdir(mode=0o700)
    store = DeltaMessageStore(root, DELTA_CONFIG)
    done(store.create, Queue("q"))
    put(store, 3)
    copy(root, to, "history", "journal", "state")
    put(store, 3)
    store.close()
    copy(root, to, "durable.json", "root.json", "wal")
    with pytest.raises(CorruptData, match="restore the root from a replica or a backup"):
        DeltaMessageStore(to, DELTA_CONFIG)
