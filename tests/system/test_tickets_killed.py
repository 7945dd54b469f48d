"""A query that takes messages, and its store, killed (SIGKILL) again and again at any moment.

`SPARKSTORE_TICKET_KILLS` is how many kills there are.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from broker_shim.store.interface import MessageHeader, Queue
from broker_shim.store.remote.remote_store import RemoteMessageStore
from tests.support.stores.services import ServiceProcess
from tests.support.stores.stores import done
from tests.support.system.killed_query import KilledQuery
from tests.support.system.ticket_query import BATCH, taken

pytestmark = pytest.mark.system

KILLS = int(os.environ.get("SPARKSTORE_TICKET_KILLS", "12"))
_FIRST = 2
"""Batches before the first kill: a run without a checkpoint is known to nobody after its end."""
_MOST_LINES = 12
_MODULE = "tests.support.system.ticket_query"


def test_each_message_is_taken_once_whoever_is_killed_and_when(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    folder = tmp_path / "query"
    folder.mkdir()
    with tempfile.TemporaryDirectory(prefix="tickets-") as sockets:
        service = ServiceProcess(tmp_path / "root", Path(sockets) / "s")
        service.start()
        store = RemoteMessageStore(service.path)
        done(store.create, Queue("q"))
        bodies = [str(number) for number in range(BATCH * (KILLS + _FIRST))]
        for body in bodies:
            message = store.message(MessageHeader("t", body_bytes=len(body)), body.encode())
            done(store.enqueue, message, "q")
        query = KilledQuery(_MODULE, f"unix:{service.path}", str(folder))
        for _ in range(_FIRST * 5):
            assert query.line() not in {"", "idle"}
        for _ in range(KILLS):
            for _ in range(chance.randrange(_MOST_LINES)):
                if query.line() in {"", "idle"}:
                    break
            if chance.random() < 0.4:
                service.kill()
                service.start()
            else:
                query.kill()
                query.start()
        while (line := query.line()) != "idle":
            assert line
        query.kill()
        assert {body: times for body, times in Counter(taken(folder)).items() if times > 1} == {}
        assert sorted(taken(folder)) == sorted(bodies)
        assert len(store.recover().entries["q"]) == 0
        store.close()
        service.close()
