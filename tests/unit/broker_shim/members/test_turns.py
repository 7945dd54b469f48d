"""A member's store sends by turns of its loop, and nothing waits for a turn that does not end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from threading import Event

import pytest

from broker_shim.errors import StoreError
from broker_shim.store import protocol as wire
from broker_shim.store.interface import MessageHeader, Queue
from broker_shim.store.remote.greeting import MemberIdentity
from broker_shim.store.remote.remote_store import RemoteMessageStore
from tests.support.stores.controls import ServicedRoot
from tests.support.stores.stores import TIMEOUT_S, done

_HEADER = MessageHeader("raw")


class Told:
    """Notes the frames that the service says of its own accord."""

    def __init__(self) -> None:
        self.frames: SimpleQueue[int] = SimpleQueue()

    def connected(self, *, is_new_run: bool) -> None:
        """Say nothing again."""

    def hear(self, kind: int, _body: wire.Body) -> None:
        self.frames.put(kind)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServicedRoot]:
    there = ServicedRoot(tmp_path / "root")
    done(there.store.create, Queue("q"))
    yield there
    there.stop()


def _member(service: ServicedRoot) -> RemoteMessageStore:
    return RemoteMessageStore(service.path, MemberIdentity("m", "1"), recovers_entries=False)


def test_no_request_waits_for_the_end_of_a_turn_alone(service: ServicedRoot) -> None:
    store, answers = _member(service), SimpleQueue[StoreError | None]()
    store.turns.begin(lambda: True)
    messages = [store.message(_HEADER, b"") for _ in range(3)]
    with service.store.look():  # so that the first has no answer before all are asked
        for message in messages:
            store.enqueue(message, "q", answers.put)
    assert [answers.get(timeout=TIMEOUT_S) for _ in messages] == [None] * 3
    with service.store.look() as machine:
        there = [*machine.state.queues["q"].entries]
    assert there == [message.message_id for message in messages]
    store.close()


def test_what_has_no_answer_is_said_at_the_end_of_the_turn(service: ServicedRoot) -> None:
    store, member, others = _member(service), Told(), Event()
    end_turn = store.turns.begin(lambda: not others.is_set())
    store.listen(member)
    store.say(wire.WATCH, "", 0, [])
    end_turn()
    assert member.frames.get(timeout=TIMEOUT_S) == wire.CHANGES
    store.say(wire.SUBSCRIBE, 1, "no such queue", "c", None, 0, [])
    others.set()
    store.say(wire.CANCEL, 1)  # by another thread: it sends all, in order
    assert member.frames.get(timeout=TIMEOUT_S) == wire.ENDED
    store.close()


def test_the_end_of_a_store_sends_what_was_put_off(service: ServicedRoot) -> None:
    store, answers = _member(service), SimpleQueue[StoreError | None]()
    store.turns.begin(lambda: True)
    messages = [store.message(_HEADER, b"") for _ in range(2)]
    for message in messages:
        store.enqueue(message, "q", answers.put)
    store.close()
    assert [answers.get_nowait() for _ in messages] == [None] * 2
