"""A run is one record of the log, and as many ordinary records of everything that reads it."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from broker_shim.completion import Completion
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import (
    MessageHeader,
    NewMessageRun,
    Queue,
    StoredMessage,
    StoredRun,
)
from sparkstore.core import codec
from sparkstore.log.wal_format import WalFileReader
from sparkstore.recovery.recovery import recover
from sparkstore.tables.root import open_root
from tests.support.roots.logs import BY_HAND, image_of
from tests.support.stores.stores import done

COUNT = 40
MOVED = {"outcome": "moved"}
ADDED = {"x-opt-why": ("string", "moved")}


def _each(call: Any, *args: Any) -> Any:
    """Make a batch of calls, and wait until it is durable."""
    completion = Completion()
    result = call(*args, lambda outcomes: completion.finish(next(filter(None, outcomes), None)))
    completion.complete()
    return result


def _together(store: DeltaMessageStore) -> list[int]:
    """Enqueue, acquire, dequeue and move messages that follow each other, some of each."""
    done(store.create, Queue("q"))
    done(store.create, Queue("other"))
    headers = [MessageHeader(subject=f"{n % 3}") for n in range(COUNT)]
    new = NewMessageRun(headers, [b"%d" % n for n in range(COUNT)], "q")
    ids = [*_each(store.enqueue_new, new)]
    _each(store.acquire_each, ids[5:35], "q", "me")
    _each(store.dequeue_each, ids[10:30], "q", "me")
    within, stored = store.begin(), StoredRun(ids[35:39], [store.load(1).header])
    _each(partial(store.dequeue_each, outcome=MOVED, transaction=within), ids[35:39], "q", None)
    _each(partial(store.enqueue_each, transaction=within, annotations=ADDED), stored, "other")
    done(store.commit, within)
    return ids


def _one_by_one(store: DeltaMessageStore) -> list[int]:
    """Do what `_together` does by single calls, as each record of earlier releases was made."""
    done(store.create, Queue("q"))
    done(store.create, Queue("other"))
    messages = [store.message(MessageHeader(subject=f"{n % 3}"), b"%d" % n) for n in range(COUNT)]
    ids = [message.message_id for message in messages]
    for message in messages:
        done(store.enqueue, message, "q")
    for message_id in ids[5:35]:
        done(store.acquire, message_id, "q", "me")
    for message_id in ids[10:30]:
        done(store.dequeue, message_id, "q", "me")
    within, stored = store.begin(), store.load(ids[0]).header
    for message_id in ids[35:39]:
        done(store.dequeue, message_id, "q", None, transaction=within, outcome=MOVED)
        moved = StoredMessage(message_id, stored, b"")
        done(store.enqueue, moved, "other", transaction=within, annotations=ADDED)
    done(store.commit, within)
    return ids


def _has_runs(root: Path) -> bool:
    identity = bytes.fromhex(open_root(root).identity.root_id)
    readers = [WalFileReader(path, identity, 1) for path in (root / "wal").glob("*.wal")]
    with_runs = [codec.has_runs(group.payload) for each in readers for group in each.groups()]
    for reader in readers:
        reader.close()
    return any(with_runs)


def _rows(root: Path) -> list[dict[str, Any]]:
    """All rows, those of a message together; within a transaction places may differ."""
    table = DeltaTable(str(root / "journal")).to_pyarrow_table()
    assert sorted(table["position"].to_pylist()) == [*range(1, 1 + len(table))]
    rows: list[dict[str, Any]] = table.sort_by("position").to_pylist()
    for row in rows:
        row["position"] = None if row["transaction"] else row["position"]
    of_store = (row for row in rows if row["kind"] != "opened")  # which says when, and who
    return sorted(of_store, key=lambda row: row["message_id"] or 0)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two stores that were killed before any Delta commit: with runs in the log, and without."""
    images = {}
    for name, use in (("runs", _together), ("records", _one_by_one)):
        folder = tmp_path_factory.mktemp(name)
        with closing(DeltaMessageStore(folder / "root", BY_HAND, lambda: 5)) as store:
            assert use(store) == [*range(1, COUNT + 1)]
            images[name] = image_of(folder / "root", folder / "image")
    return images


def test_messages_that_travel_together_are_runs_in_the_log(killed: dict[str, Path]) -> None:
    assert _has_runs(killed["runs"])
    assert not _has_runs(killed["records"])


def test_a_start_replays_runs_as_it_replays_records(killed: dict[str, Path]) -> None:
    entries, moved, rows = {}, {}, {}
    for name, image in killed.items():
        with closing(DeltaMessageStore(image, BY_HAND, lambda: 5)) as store:
            state = store.recover().entries
            entries[name] = [*state["q"].items()]
            others = state["other"].items()
            moved[name] = [(number, replace(entry, position=0)) for number, entry in others]
            assert (store.load(7).body, store.load(38).body) == (b"6", b"37")
        rows[name] = _rows(image)
        assert recover(open_root(image)).state.queues["other"].entries.keys() == {36, 37, 38, 39}
    assert [message_id for message_id, _ in entries["runs"]] == [*range(1, 11), *range(31, 36), 40]
    assert [entry.acquired_by for _, entry in entries["runs"]] == (
        [None] * 5 + ["me"] * 10 + [None]
    )
    assert entries["runs"] == entries["records"]
    assert moved["runs"] == moved["records"]
    assert [message_id for message_id, _ in moved["runs"]] == [*range(36, 40)]
    assert rows["runs"] == rows["records"]
