"""A run is one record of the log, and as many ordinary records of everything that reads it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from broker_shim.completion import Completion
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import MessageHeader, NewMessageRun, Queue
from sparkstore.core import codec
from sparkstore.log.wal_format import WalFileReader
from sparkstore.tables.root import open_root
from tests.support.roots.logs import BY_HAND, image_of
from tests.support.stores.stores import done

COUNT = 40


def _each(call: Any, *args: Any) -> Any:
    """Make a batch of calls, and wait until it is durable."""
    completion = Completion()
    result = call(*args, lambda outcomes: completion.finish(next(filter(None, outcomes), None)))
    completion.complete()
    return result


def _together(store: DeltaMessageStore) -> list[int]:
    """Enqueue, acquire and dequeue messages that follow each other, some of each."""
    done(store.create, Queue("q"))
    headers = [MessageHeader(subject=f"{n % 3}") for n in range(COUNT)]
    new = NewMessageRun(headers, [b"%d" % n for n in range(COUNT)], "q")
    ids = [*_each(store.enqueue_new, new)]
    _each(store.acquire_each, ids[5:35], "q", "me")
    _each(store.dequeue_each, ids[10:30], "q", "me")
    return ids


def _one_by_one(store: DeltaMessageStore) -> list[int]:
    """Do what `_together` does by single calls, as each record of earlier releases was made."""
    done(store.create, Queue("q"))
    messages = [store.message(MessageHeader(subject=f"{n % 3}"), b"%d" % n) for n in range(COUNT)]
    ids = [message.message_id for message in messages]
    for message in messages:
        done(store.enqueue, message, "q")
    for message_id in ids[5:35]:
        done(store.acquire, message_id, "q", "me")
    for message_id in ids[10:30]:
        done(store.dequeue, message_id, "q", "me")
    return ids


def _has_runs(root: Path) -> bool:
    identity = bytes.fromhex(open_root(root).identity.root_id)
    readers = [WalFileReader(path, identity, 1) for path in (root / "wal").glob("*.wal")]
    with_runs = [codec.has_runs(group.payload) for each in readers for group in each.groups()]
    for reader in readers:
        reader.close()
    return any(with_runs)


def _rows(root: Path, names: Sequence[str]) -> list[dict[str, Any]]:
    table = DeltaTable(str(root / "journal")).to_pyarrow_table()
    rows: list[dict[str, Any]] = table.select(names).sort_by("position").to_pylist()
    return rows


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
    entries, rows = {}, {}
    for name, image in killed.items():
        with closing(DeltaMessageStore(image, BY_HAND, lambda: 5)) as store:
            entries[name] = [*store.recover().entries["q"].items()]
            assert store.load(7).body == b"6"
        names = ("kind", "position", "queue", "message_id", "holder", "subject", "body")
        rows[name] = _rows(image, names)
    assert [message_id for message_id, _ in entries["runs"]] == [*range(1, 11), *range(31, 41)]
    assert [entry.acquired_by for _, entry in entries["runs"]] == (
        [None] * 5 + ["me"] * 10 + [None] * 5
    )
    assert entries["runs"] == entries["records"]
    assert rows["runs"] == rows["records"]
