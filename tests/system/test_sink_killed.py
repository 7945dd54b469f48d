"""Batches that a query writes while the query and the store are killed (SIGKILL), again and again.

`SPARKSTORE_SINK_KILLS` is how many kills there are.
"""

from __future__ import annotations

import os
import random
import tempfile
from pathlib import Path

import pytest

from broker_shim.store.interface import Queue
from broker_shim.store.remote.remote_store import RemoteMessageStore
from tests.support.stores.services import ServiceProcess
from tests.support.stores.stores import done
from tests.support.system.killed_query import KilledQuery
from tests.support.system.sink_query import PARTITIONS, all_rows, done_batches

pytestmark = pytest.mark.system

KILLS = int(os.environ.get("SPARKSTORE_SINK_KILLS", "8"))
_MODULE = "tests.support.system.sink_query"
_STEPS = PARTITIONS + 2
"""Lines that a query says for a batch."""


def says(query: KilledQuery, steps: int) -> bool:
    """Read so many of its lines; False if it has ended before."""
    return all(query.line() not in {"", "end"} for _ in range(steps))


def test_each_batch_is_there_once_whoever_is_killed_and_when(tmp_path: Path) -> None:
    chance, seed = random.Random(), random.randrange(1 << 32)
    print(f"seed {seed}")
    chance.seed(seed)
    checkpoint, batches = tmp_path / "checkpoint", KILLS + 2
    checkpoint.mkdir()
    with tempfile.TemporaryDirectory(prefix="sink-") as folder:
        service = ServiceProcess(tmp_path / "root", Path(folder) / "s")
        service.start()
        store = RemoteMessageStore(service.path)
        done(store.create, Queue("q"))
        query = KilledQuery(_MODULE, str(service.path), str(checkpoint), str(batches))
        for _ in range(KILLS):
            if not says(query, chance.randint(1, _STEPS)):
                break
            if chance.random() < 0.5:
                service.kill()
                service.start()
            else:
                query.kill()
                query.start()
        while says(query, 1):
            pass
        query.kill()
        assert done_batches(checkpoint) == batches
        entries = store.recover().entries["q"]
        assert [store.load(each).body for each in entries] == all_rows(batches)
        assert store.prepared() == []
        store.close()
        service.close()
