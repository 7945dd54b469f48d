"""Messages expire on queues that nobody consumes from: alone, at a service, on a start."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker_shim.broker.orders.expiry_timer import Expiry
from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.errors import NotAcquired, StoreError, Unavailable
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.expiring_store import due
from broker_shim.store.interface import MessageHeader
from sparkstore.core import fold
from sparkstore.core.fold import Entry, State
from sparkstore.core.records import Kind, Record
from sparkstore.operations.bulk import Answer, MessageDraft, Request
from tests.support.roots.logs import until
from tests.support.stores.controls import Place, ServedRoot, ServicedRoot

EXPIRED = MessageHeader("raw", b"h", expires_at=1)
LASTING = MessageHeader("raw", b"h")


@pytest.fixture(params=["broker", "service"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    by_service = request.param == "service"
    it = Place(tmp_path / "root", is_served=True, by_service=by_service, expires=True)
    it.create("q", dead_letter_queue="dead")
    it.create("dropping")
    yield it
    it.close()


def served(place: Place) -> ServedRoot | ServicedRoot:
    assert place.control
    there = place.served or place.serviced
    assert there is not None
    return there


def depth(store: DeltaMessageStore, queue: str) -> int:
    found = store.recover().entries.get(queue, {})
    return len(found)


def test_on_a_start_what_has_expired_leaves_without_a_consumer(place: Place) -> None:
    place.put("q", count=600, header=EXPIRED)
    place.put("dropping", count=3, header=EXPIRED)
    kept = place.put("q", "dropping", count=2, header=LASTING)
    there = served(place)
    until(lambda: depth(there.store, "q") == depth(there.store, "dropping") == 2)
    until(lambda: depth(there.store, "dead") == 600)
    after = place.after()
    assert after.ids("q") == after.ids("dropping") == kept
    dead = after.state.queues["dead"].entries
    assert {entry.expires_at for entry in dead.values()} == {None}
    assert all('"expired"' in (entry.detail or "") for entry in dead.values())


def test_what_expires_while_it_is_served_leaves_within_seconds(place: Place) -> None:
    there = served(place)
    place.control.put("q", [MessageDraft(EXPIRED, b"x")] * 3 + [MessageDraft(LASTING, b"y")])
    until(lambda: depth(there.store, "q") == 1)
    until(lambda: depth(there.store, "dead") == 3)


def test_a_limit_of_the_queue_expires_messages_as_their_own(place: Place) -> None:
    place.create("short", message_ttl_ms=1)
    place.put("short", count=3, header=LASTING)
    there = served(place)
    until(lambda: depth(there.store, "short") == 0)


class Refused:
    """A host whose store refuses a batch: as while a transaction has a claim on one of it."""

    is_stopping = False

    def __init__(self, error: StoreError) -> None:
        self.error = error
        self.queues = {"q": QueueDispatch("q")}
        self.queues["q"].arrived([1, 2, 3], 4)
        self.served = self
        self.singles: list[int] = []

    def run(self, _request: Request, on_answer: Callable[..., None]) -> None:
        on_answer(self.error, Answer())

    def end_singly(self, request: Request) -> None:
        self.singles += request.message_ids


@pytest.mark.parametrize(
    ("error", "singles"), [(NotAcquired("claimed"), [1, 2, 3]), (Unavailable("no room"), [])]
)
def test_a_message_that_the_store_refuses_does_not_keep_the_others(
    error: StoreError, singles: list[int]
) -> None:
    host: Any = Refused(error)
    state = State()
    fold.apply(state, 1, Record(Kind.CREATED, 0, queue="q", detail="{}"))
    for message_id in (1, 2, 3):
        state.queues["q"].entries.add(message_id, Entry(message_id, 0, 4, 1, 1))
    waits: list[tuple[float, Callable[[], None]]] = []
    store: Any = SimpleNamespace(expired=partial(due, state.queues))
    Expiry(store, lambda: host, lambda delay_s, call: waits.append((delay_s, call))).start()
    waits.pop()[1]()
    assert host.singles == singles
    assert [delay_s for delay_s, _ in waits] == [5.0]


def test_queues_take_turns() -> None:
    state = State()
    for name in ("a", "b", "c"):
        fold.apply(state, 1, Record(Kind.CREATED, 0, queue=name, detail="{}"))
        for message_id in range(10):
            ends = 1 if name != "b" else None
            state.queues[name].entries.add(message_id, Entry(message_id + 1, 0, 4, ends, 1))
    told, last = [], ""
    for _ in range(4):
        found = due(state.queues, 9, 4, last)
        assert found is not None
        assert len(found.message_ids) == 4
        told.append(last := found.queue)
    assert told == ["a", "c", "a", "c"]
    assert due(state.queues, 0, 4, "") is None
