"""What a member says to its service when it is connected again, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import pytest

from broker_shim.broker.queues.selective_cursor import Consumer
from broker_shim.broker.wiring.routing import DEFAULT_EXCHANGES
from broker_shim.completion import OnComplete
from broker_shim.durability import TerminusDurability
from broker_shim.members.membership import Membership
from broker_shim.service.dispatcher import CLAIM
from broker_shim.store import protocol as wire
from broker_shim.store.branch_store import Xid
from broker_shim.store.interface import Exchange, Queue
from broker_shim.store.memory import MemoryMessageStore
from broker_shim.store.remote.pending_requests import OnAnswer
from broker_shim.store.remote.remote_store import RemoteMessageStore
from sparkstore.core.link_records import link_key
from sparkstore.core.queue_arguments import QueueArguments
from sparkstore.core.records import Kind
from sparkstore.core.state_machine.call_values import CreateCall, StoreCall
from sparkstore.core.xids import xid_text
from tests.support.amqp.memory_broker import MemoryBroker

XID = Xid(1, b"begun here", b"")


class HeldBack(MemoryMessageStore):
    """What is created is durable when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.due: list[Callable[[], None]] = []

    def call(self, call: StoreCall, on_complete: OnComplete, *more: Any) -> None:
        if isinstance(call, CreateCall):
            self.due.append(partial(super().call, call, on_complete, *more))
        else:
            super().call(call, on_complete, *more)


class Said:
    """Stands for the connection to a service: notes what is said, in order."""

    def __init__(self) -> None:
        self.frames: list[tuple[Any, ...]] = []
        self.answers: list[OnAnswer] = []
        self.behind: object = None

    def listen(self, _listener: object) -> None:
        """The test tells it of connections."""

    def came_along(self, _run: object) -> None:
        """No content comes."""

    def say(self, kind: int, *body: Any) -> None:
        self.frames.append((kind, *body))

    def ask_for_order(
        self, act: str, name: str, _limits: object, _key: str, on_answer: OnAnswer
    ) -> None:
        self.frames.append((wire.ORDER, act, name))
        self.answers.append(on_answer)


def test_a_member_says_what_it_has_begun_before_it_makes_anything_again_and_after_watch() -> None:
    """Making takes its time, in which others may ask for the same; WATCH has all said again."""
    store, service, claim = HeldBack(), Said(), (wire.ORDER, CLAIM, xid_text(XID))
    there = MemoryBroker(store)
    membership = Membership(cast("RemoteMessageStore", service), there.inbox)
    broker = there.broker
    broker.serve(Queue("lost", TerminusDurability.NONE))
    membership.begin(broker, lambda _text: None)
    refused: list[object] = []
    broker.xid_claims.claim(XID, refused.append)
    service.answers[0]((True, ("{}",), None))
    there.take_answers()
    assert refused == [None]
    service.frames.clear()
    membership.connected(is_new_run=True)
    there.take_answers()
    assert service.frames == [claim]
    store.due[0]()
    there.take_answers()
    assert service.frames == [claim, (wire.WATCH, "", 0, []), claim]
    service.frames.clear()
    membership.connected(is_new_run=False)
    there.take_answers()
    assert service.frames == [(wire.WATCH, "", 0, []), claim]
    service.frames.clear()
    membership.hear(wire.CHANGES, ("run", 1, False, True, []))
    there.take_answers()
    assert service.frames == [], "not before the service has answered each claim"
    for answer in service.answers[1:]:
        answer((True, ("{}",), None))
    there.take_answers()
    assert service.frames == [(wire.SEEN,)]
    there.close()
    store.close()


class Taker:
    """A consumer that takes two messages at a time."""

    credit, is_draining, has_ended = 9, False, False

    def __init__(self, holder: str) -> None:
        self.holder = holder
        self.assigned: list[list[int]] = []

    def assign(self, message_ids: Sequence[int]) -> int:
        self.assigned.append([*message_ids])
        return min(2, len(message_ids))


def test_a_consumer_gets_together_all_that_a_frame_grants_it() -> None:
    store, service = HeldBack(), Said()
    there = MemoryBroker(store)
    membership = Membership(cast("RemoteMessageStore", service), there.inbox)
    membership.begin(there.broker, lambda _text: None)
    queue = membership.make_queue("q", is_kept=True, arguments=QueueArguments())
    one, other = Taker("one"), Taker("other")
    for each in (one, other):
        membership.subscribe(queue, cast("Consumer", each), None)
    entry = tuple((fact,) for fact in (7, 0, 4, None, 1, 0, None))
    granted = [(1, (5, 7, 8)), (2, (6,)), (9, (4,))]
    body = tuple((number, ids, entry, (None,), (None,)) for number, ids in granted)
    membership.hear(wire.GRANTED, body)
    there.take_answers()
    assert one.assigned == [[5, 7, 8], [8]]
    assert other.assigned == [[6]]
    holders = {number: each.acquired_by for number, each in queue.granted.items()}
    assert holders == {5: "one", 7: "one", 8: "one", 6: "other"}
    there.close()
    store.close()


class Reconnecting(Said):
    """The same, which notes that it is to connect again."""

    def connect_again(self) -> None:
        self.frames.append(("connect again",))


@pytest.mark.parametrize(
    "bad",
    [
        (Kind.ATTACHED, None, None, "no JSON", None),
        (Kind.CREATED, None, "x", None, '{"type": "odd", "durability": 2, "arguments": {}}'),
        (Kind.CREATED, "x", None, None, "no JSON"),
        (Kind.BOUND, "q", "amq.match", "", '{"arguments": {"a": [1]}}'),
        (Kind.ENQUEUED, None, None, None, None),
    ],
)
def test_a_row_that_cannot_be_costs_itself_and_is_seen(bad: tuple[Any, ...]) -> None:
    store, service = MemoryMessageStore(), Reconnecting()
    there = MemoryBroker(store)
    for name, kind in DEFAULT_EXCHANGES.items():
        there.broker.router.add_exchange(Exchange(name, kind))
    membership = Membership(cast("RemoteMessageStore", service), there.inbox)
    membership.begin(there.broker, link_key)
    rows = [created("q"), bad, created("after")]
    membership.hear(wire.CHANGES, ("run", 1, True, True, rows))
    membership.hear(wire.CHANGES, ("run", 2, False, True, [bad]))
    there.take_answers()
    assert service.frames == [(wire.SEEN,)] * 2
    assert {"q", "after"} <= set(there.broker.queues)
    there.close()
    store.close()


def created(name: str) -> tuple[Any, ...]:
    return int(Kind.CREATED), name, None, None, '{"durability": 2, "arguments": {}}'


@pytest.mark.parametrize("kind", [wire.CHANGES, wire.GRANTED, wire.LOOKED, wire.CAUGHT_UP])
def test_a_frame_that_cannot_be_acted_on_ends_in_a_new_connection_and_all_is_told_again(
    kind: int,
) -> None:
    store, service = MemoryMessageStore(), Reconnecting()
    there = MemoryBroker(store)
    membership = Membership(cast("RemoteMessageStore", service), there.inbox)
    membership.begin(there.broker, link_key)
    membership.hear(wire.CHANGES, ("run", 9, False, True, []))
    membership.hear(kind, (5,))
    there.take_answers()
    assert service.frames == [(wire.SEEN,)]
    there.run_delayed()
    assert service.frames == [(wire.SEEN,), ("connect again",)]
    membership.connected(is_new_run=False)
    there.take_answers()
    assert service.frames[2:] == [(wire.WATCH, "", 9, [])]
    there.close()
    store.close()
