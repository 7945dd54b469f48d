"""Decisions that are read and not acted on yet, when their link ends or the lock of a message does.

Frames are read ahead of what they lead to: a peer settles deliveries for the protocol before the
link hears of it. What ends the link in between must find them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from broker_shim.amqp_1_0.composites import (
    Accepted,
    Detach,
    Disposition,
    End,
    Flow,
    Rejected,
    TransactionalState,
)
from broker_shim.amqp_1_0.primitives import Symbol, UInt
from broker_shim.broker.delivery.delivery_locks import LockTimer
from broker_shim.completion import OnEachComplete
from broker_shim.listener_1_0.connections.containers import SOLE
from broker_shim.listener_1_0.sending import outgoing_link
from broker_shim.protocol_1_0.codec.frames import encoded_frame
from broker_shim.store.interface import Queue
from broker_shim.store.memory import MemoryMessageStore
from sparkstore.core.state_machine.call_values import DequeueCall, EntryCall
from tests.support.amqp.bench import Bench
from tests.support.amqp.raw_client import Raw, waiting
from tests.support.amqp.timers import Clock

COUNT = 5
LOCK_S = 3_600


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def bench(clock: Clock) -> Iterator[Bench]:
    store = MemoryMessageStore()
    it = Bench(store)
    it.broker.lock_timer = LockTimer(clock.later, lambda: clock.now_s)
    arguments = {"lock_timeout_ms": LOCK_S * 1_000}
    it.broker.create_queue(Queue("q", arguments=arguments), lambda _error: None)
    it.run()
    yield it
    it.ours.lost()
    it.run()
    store.close()


@pytest.fixture(autouse=True)
def client(bench: Bench) -> Raw:
    """A client that was sent messages, as one run."""
    it = Raw(bench)
    it.receiver(COUNT)
    bench.publish(COUNT, 10)
    it.read()
    assert waiting(bench) == 0
    return it


def decided(first: int, last: int, state: Any, *, is_settled: bool = True) -> bytes:
    return encoded_frame(Disposition(True, first, last, is_settled, state))


def read_ahead(bench: Bench) -> None:
    """Have each delivery accepted by a frame of its own, of which only the first is acted on.

    What is between them keeps them from being one decision.
    """
    between = encoded_frame(Flow(COUNT, 1_000, 0, 1_000, 0, COUNT, 0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench.ours.turn, "goes_on", lambda: False)
        bench.ours.receive(between.join(decided(at, at, Accepted()) for at in range(COUNT)))
    assert bench.ours.has_more
    assert bench.broker.queues["q"].held_count == COUNT


def reset(bench: Bench) -> None:
    bench.ours.lost()
    bench.ours.let_go()


def turned_away(bench: Bench) -> None:
    (consumer,) = bench.broker.queues["q"].consumers
    consumer.turned_away("another one has the queue alone")
    bench.ours.go_on(sys.maxsize)
    bench.ours.receive(encoded_frame(End()))  # its terminus lives as long as its session


def taken_over(bench: Bench) -> None:
    bench.ours, gone = bench.host.connect(lambda: None), bench.ours
    Raw(
        bench,
        desired_capabilities=(SOLE,),
        properties={Symbol("sole-connection-enforcement-policy"): UInt(1)},
    )
    gone.go_on(sys.maxsize)


def broken(bench: Bench) -> None:
    def fault(*_given: Any) -> None:
        raise ValueError("a fault")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outgoing_link, "accept", fault)
        bench.ours.go_on(sys.maxsize)
    reset(bench)


@pytest.mark.parametrize("end", [reset, turned_away, taken_over, broken])
def test_what_was_settled_and_not_acted_on_waits_again_when_its_link_ends(
    bench: Bench, end: Callable[[Bench], None]
) -> None:
    read_ahead(bench)
    end(bench)
    bench.run()
    queue = bench.broker.queues["q"]
    assert (len(queue), waiting(bench), queue.held_count) == (COUNT - 1, COUNT - 1, 0)


def test_a_decision_that_fails_and_settles_leaves_its_messages_to_be_given_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_state: Any) -> dict[str, str]:
        raise ValueError("a fault")

    monkeypatch.setattr(outgoing_link, "rejection", failing)
    bench.ours.receive(decided(0, COUNT - 1, Rejected()))
    reset(bench)
    bench.run()
    assert waiting(bench) == COUNT


def test_what_was_settled_and_not_acted_on_is_not_taken_back_by_the_end_of_its_lock(
    bench: Bench, clock: Clock
) -> None:
    read_ahead(bench)
    clock.pass_s(LOCK_S + 1)
    bench.ours.go_on(sys.maxsize)
    bench.run()
    assert len(bench.broker.queues["q"]) == 0
    assert bench.ours.link_count == 1


@pytest.mark.parametrize("is_settled", [True, False])
def test_a_lock_ends_on_a_link_that_was_detached_here(
    bench: Bench, client: Raw, clock: Clock, *, is_settled: bool
) -> None:
    state = TransactionalState(b"none", Accepted())
    bench.ours.receive(decided(1, COUNT - 2, state, is_settled=is_settled))
    (detach,) = client.read()
    assert isinstance(detach, Detach)
    clock.pass_s(LOCK_S + 1)
    bench.run()
    assert waiting(bench) == COUNT


@pytest.mark.parametrize("first", range(COUNT - 1))
def test_what_is_read_of_a_part_ahead_leaves_what_was_decided_of_the_rest(
    bench: Bench, first: int
) -> None:
    """The second disposition cuts the run before the first one, of all of it, is acted on."""
    both = decided(0, COUNT - 1, Accepted(), is_settled=False)
    both += decided(first, first + 1, Accepted())
    bench.ours.receive(both)
    bench.run()
    assert len(bench.broker.queues["q"]) == 0


def test_what_is_settled_likewise_frame_after_frame_leaves_by_one_call(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[list[int]] = []
    make_each = bench.calls.make_each

    def counted(call: EntryCall, on_done: OnEachComplete) -> None:
        if isinstance(call, DequeueCall):
            calls.append([*call.message_ids])
        make_each(call, on_done)

    monkeypatch.setattr(bench.calls, "make_each", counted)
    frames = [decided(at, at, Accepted()) for at in range(COUNT - 2)]
    frames += [decided(at, at, Accepted(), is_settled=False) for at in (COUNT - 2, COUNT - 1)]
    bench.ours.receive(b"".join(frames))
    bench.run()
    assert [len(ids) for ids in calls] == [COUNT - 2, 1, 1]
    assert len(bench.broker.queues["q"]) == 0
