"""Members, and two-phase branches, go on at whichever machine of a pair serves."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest
from proton import Message
from proton.utils import BlockingConnection

from broker_shim.store.branch_store import Xid
from broker_shim.store.interface import MessageHeader, Queue
from broker_shim.store.remote.greeting import MemberIdentity
from broker_shim.store.remote.remote_store import RemoteMessageStore
from tests.support.stores.services import short_folder
from tests.support.stores.stores import done
from tests.support.system.pair_machines import Pair
from tests.support.system.processes import BrokerProcess

pytestmark = [pytest.mark.system, pytest.mark.slow]

SOCKET, WAIT_S = "service.sock", 60.0


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Two machines, each with a socket for members, in step."""
    with short_folder() as folder:
        pair = Pair(folder, options=("--store-socket", SOCKET))
        try:
            pair.start_both()
            yield pair
        finally:
            pair.end()


def test_members_and_branches_go_on_when_the_service_is_killed_or_frozen(pair: Pair) -> None:
    services = ",".join(f"unix:{pair.machine(number) / SOCKET}" for number in (0, 1))
    member = BrokerProcess("--store", services, "--member", "second", "--listen", "127.0.0.1:0")
    store: Any = RemoteMessageStore(services, MemberIdentity("branches", "1"))
    connection = BlockingConnection(member.url, timeout=WAIT_S)
    sender = connection.create_sender("orders")
    receiver = connection.create_receiver("orders", credit=1)
    sender.send(Message("held", durable=True))
    assert receiver.receive(WAIT_S).body == "held"
    done(store.create, Queue("q"))
    committed, rolled_back = (prepared(store, number) for number in (1, 2))

    first = pair.primary()
    pair.kill(first)
    sender.send(Message("after a kill", durable=True))  # waits, and its client notices no more
    receiver.accept()
    assert {branch.xid for branch in store.prepared()} == {committed, rolled_back}
    done(store.commit_prepared, committed)
    done(store.rollback_prepared, rolled_back)

    pair.start(first)
    pair.primary_in_step()
    pair.signal(1 - first, signal.SIGSTOP)
    pair.wait(lambda: pair.primary() == first)
    pair.signal(1 - first, signal.SIGCONT)  # it sends its members away, as it is fenced
    sender.send(Message("after a freeze", durable=True))
    assert store.prepared() == []
    assert {store.load(each).body for each in store.recover().entries["q"]} == {b"1 in"}

    bodies = []
    for _ in range(2):
        bodies.append(receiver.receive(WAIT_S).body)
        receiver.accept()
    assert bodies == ["after a kill", "after a freeze"]  # and what was accepted is not there again
    connection.close()
    store.close()
    assert member.terminate() == 0


def prepared(store: Any, number: int) -> Xid:
    """Prepare a branch that takes nothing, and puts one message on the queue."""
    xid = Xid(1, number.to_bytes(1, "big"), b"b")
    transaction = store.begin()
    message = store.message(MessageHeader("raw", b"h"), f"{number} in".encode())
    done(store.enqueue, message, "q", transaction=transaction)
    done(store.prepare, transaction, xid)
    return xid
