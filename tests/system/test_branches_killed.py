"""Two-phase commit at a service that is killed between any two steps, or while one is decided.

`SPARKSTORE_BRANCH_KILLS` is how many rounds are made, each with one kill.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker_shim.completion import Completion
from broker_shim.errors import InvalidRequest
from broker_shim.store.branch_store import Xid
from broker_shim.store.interface import MessageHeader, Queue
from broker_shim.store.remote.greeting import MemberIdentity
from broker_shim.store.remote.remote_store import RemoteMessageStore
from tests.support.roots.logs import until
from tests.support.stores.services import ServiceProcess
from tests.support.stores.stores import TIMEOUT_S, done

pytestmark = pytest.mark.system

KILLS = int(os.environ.get("SPARKSTORE_BRANCH_KILLS", "5"))
HEADER = MessageHeader("raw", b"h")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceProcess]:
    """A service that may be killed."""
    with tempfile.TemporaryDirectory(prefix="branches-") as folder:
        process = ServiceProcess(tmp_path / "root", Path(folder) / "s")
        with (tmp_path / "service.toml").open("a") as config:
            config.write("member_grace_s = 0.1\n")
        process.start()
        yield process
        process.close()


def test_a_branch_is_decided_once_whenever_the_service_is_killed(service: ServiceProcess) -> None:
    store: Any = RemoteMessageStore(service.path, MemberIdentity("m", "1"))
    done(store.create, Queue("q"))
    chance = random.Random(1)
    for turn in range(KILLS):
        xid, committed = Xid(1, turn.to_bytes(4, "big"), b"b"), chance.random() < 0.5
        old = store.message(HEADER, b"old")
        done(store.enqueue, old, "q")
        new = store.message(HEADER, b"new")
        transaction = store.begin()
        steps: list[tuple[Any, ...]] = [
            (store.enqueue, new, "q"),
            (store.dequeue, old.message_id, "q", "c"),
            (store.prepare, transaction, xid),
            (store.commit_prepared if committed else store.rollback_prepared, xid),
        ]
        killed_at, is_asked_before = turn % len(steps), chance.random() < 0.5
        outcomes = []
        for number, (call, *args) in enumerate(steps):
            named = {"transaction": transaction} if number < 2 else {}
            completion = Completion()
            if number == killed_at and not is_asked_before:
                service.kill()
                service.start()
            call(*args, on_complete=completion.finish, **named)
            if number == killed_at and is_asked_before:
                service.kill()
                service.start()
            outcomes.append(refusal_of(completion))
        left = {store.load(each).body for each in store.recover().entries["q"]}
        assert store.prepared() == []
        assert left == ({b"new"} if committed and outcomes[2] is None else {b"old"})
        if outcomes[2] is None:  # who was told that it is prepared can decide it
            assert outcomes[3] is None
        for message_id in [*store.recover().entries["q"]]:
            done(store.dequeue, message_id, "q", None)
    store.close()


def test_a_branch_outlives_its_member_and_anybody_decides_it(service: ServiceProcess) -> None:
    first: Any = RemoteMessageStore(service.path, MemberIdentity("first", "1"))
    done(first.create, Queue("q"))
    taken, acquired = (first.message(HEADER, body) for body in (b"taken", b"acquired"))
    for message in (taken, acquired):
        done(first.enqueue, message, "q")
    transaction = first.begin()
    done(first.dequeue, taken.message_id, "q", "c", transaction=transaction)
    done(first.acquire, acquired.message_id, "q", "c", transaction=transaction)
    done(first.prepare, transaction, Xid(1, b"g", b"b"))
    held = first.message(HEADER, b"held")
    done(first.enqueue, held, "q")
    done(first.acquire, held.message_id, "q", "c")
    first.close()
    second: Any = RemoteMessageStore(service.path, MemberIdentity("second", "1"))
    wait_until_free(second, held.message_id)  # the first one's grace has passed
    assert [branch.xid for branch in second.prepared()] == [Xid(1, b"g", b"b")]
    assert second.recover().entries["q"][taken.message_id].acquired_by == "xid:1:67:62"
    done(second.commit_prepared, Xid(1, b"g", b"b"))
    assert taken.message_id not in second.recover().entries["q"]
    wait_until_free(second, acquired.message_id)  # what it committed for one who is gone
    second.close()


def refusal_of(completion: Completion) -> InvalidRequest | None:
    """What a call was refused with, if it was: an outcome that nobody knows is a failure here."""
    try:
        completion.complete(TIMEOUT_S)
    except InvalidRequest as refusal:
        return refusal
    return None


def wait_until_free(store: Any, message_id: int) -> None:
    """Until nobody holds a message."""
    until(lambda: store.recover().entries["q"][message_id].acquired_by is None)
