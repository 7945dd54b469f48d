"""Members, branches and streams of Spark go on at whichever machine of a pair serves."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from proton import Message
from proton.utils import BlockingConnection

from broker_shim.errors import InvalidRequest
from broker_shim.spark_tickets import TicketStreamReader, ticket_settings
from broker_shim.spark_tickets.message_rows import ticket_schema
from broker_shim.store.branch_store import Xid
from broker_shim.store.interface import MessageHeader, Queue
from broker_shim.store.remote.greeting import MemberIdentity
from broker_shim.store.remote.remote_store import RemoteMessageStore
from sparkstore import query
from sparkstore.spark_source.event_columns import event_schema
from sparkstore.spark_source.event_reader import EventStreamReader
from sparkstore.spark_source.stream_options import stream_options
from tests.support.stores.services import short_folder
from tests.support.stores.stores import done
from tests.support.system.killed_query import KilledQuery
from tests.support.system.pair_machines import Pair
from tests.support.system.processes import BrokerProcess
from tests.support.system.ticket_query import BATCH, taken

pytestmark = [pytest.mark.system, pytest.mark.slow]

SOCKET, WAIT_S = "service.sock", 60.0


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    """Two machines, each with a socket for members."""
    with short_folder() as folder:
        pair = Pair(folder, options=("--store-socket", SOCKET))
        try:
            pair.start_both()
            yield pair
        finally:
            pair.end()


@pytest.fixture(scope="module")
def services(pair: Pair) -> str:
    """The addresses of both."""
    return ",".join(f"unix:{pair.machine(number) / SOCKET}" for number in (0, 1))


def test_members_and_branches_go_on_when_the_service_is_killed_or_frozen(
    pair: Pair, services: str
) -> None:
    member = BrokerProcess("--store", services, "--member", "second", "--listen", "127.0.0.1:0")
    store: Any = RemoteMessageStore(services, MemberIdentity("branches", "1"))
    connection = BlockingConnection(member.url, timeout=WAIT_S)
    sender = connection.create_sender("orders")
    receiver = connection.create_receiver("orders", credit=1)
    sender.send(Message("held", durable=True))
    assert receiver.receive(WAIT_S).body == "held"
    done(store.create, Queue("branches"))
    committed, rolled_back = (prepared(store, number) for number in (1, 2))

    first = pair.primary_in_step()
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
    assert {store.load(each).body for each in store.recover().entries["branches"]} == {b"1 in"}

    bodies = []
    for _ in range(2):
        bodies.append(receiver.receive(WAIT_S).body)
        receiver.accept()
    assert bodies == ["after a kill", "after a freeze"]  # and what was accepted is not there again
    connection.close()
    store.close()
    assert member.terminate() == 0


def test_streams_of_spark_go_on_from_their_checkpoints(
    pair: Pair, services: str, tmp_path: Path
) -> None:
    """One takes messages, with `settle`, over both addresses; one reads events of a root.

    They are driven as Spark drives them, without a JVM.
    """
    store: Any = RemoteMessageStore(services, MemberIdentity("giver", "1"))
    done(store.create, Queue("q"))
    bodies = [str(number) for number in range(4 * BATCH)]
    for body in bodies:
        message = store.message(MessageHeader("t", body_bytes=len(body)), body.encode())
        done(store.enqueue, message, "q")
    first = pair.primary_in_step()
    root = pair.root(first)
    waiting = "SELECT message_id FROM queue_messages WHERE queue = 'q'"
    pair.wait(lambda: query(root, waiting).num_rows == len(bodies))
    _, read = events(root)
    taker = KilledQuery("tests.support.system.ticket_query", services, str(tmp_path))
    while taker.line() != "read":  # of its first batch
        pass

    pair.kill(first)
    while taker.line() != "done":  # of its second: it goes on by itself
        pass
    taker.kill()
    taker.start()  # and so does one that starts from its checkpoint
    while (line := taker.line()) != "idle":
        assert line
    taker.kill()
    assert Counter(taken(tmp_path)) == Counter(bodies)
    assert len(store.recover().entries["q"]) == 0
    store.close()
    refuse_what_the_root_lacks(services, tmp_path)

    # What it read at the machine that was killed it does not read again at the other one.
    other = pair.root(1 - first)
    pair.wait(lambda: events(other, read)[0].count("dequeued") == len(bodies))
    assert events(other, read)[0].count("enqueued") == 0


def refuse_what_the_root_lacks(services: str, folder: Path) -> None:
    """A checkpoint that has a ticket of the other root, which this one has not, is refused."""
    options = {"settle": "true", "queue": "q", "socket": services}
    settings = ticket_settings(options)
    reader = TicketStreamReader(settings, ticket_schema(settings))
    offset = json.loads((folder / "0.offset").read_text())
    with pytest.raises(InvalidRequest, match=r"was promoted without ticket 99, .* checkpointLoc"):
        reader.latestOffset({**offset, "ticket": 99}, reader.getDefaultReadLimit())
    reader.stop()


def events(root: Path, after: dict[str, Any] | None = None) -> tuple[list[str], dict[str, Any]]:
    """Read the kinds of events after an offset, and the offset of the last."""
    options = {"path": str(root), "queue": "q", "kind": "*", "startingPosition": "earliest"}
    reader = EventStreamReader(stream_options(options), event_schema(options))
    start = after or reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    rows = [
        kind
        for partition in reader.partitions(start, end)
        for batch in reader.read(partition)
        for kind in batch["kind"].to_pylist()
    ]
    return rows, end


def prepared(store: Any, number: int) -> Xid:
    """Prepare a branch that takes nothing, and puts one message on the queue."""
    xid = Xid(1, number.to_bytes(1, "big"), b"b")
    transaction = store.begin()
    message = store.message(MessageHeader("raw", b"h"), f"{number} in".encode())
    done(store.enqueue, message, "branches", transaction=transaction)
    done(store.prepare, transaction, xid)
    return xid
