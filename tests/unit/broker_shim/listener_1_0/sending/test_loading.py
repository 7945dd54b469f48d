"""Messages whose content is still on its way from the store when their link ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import proton
import pytest

from broker_shim.broker.queues.queue_index import Cursor
from broker_shim.listener_1_0.messages.message import parse
from broker_shim.store.interface import Content, OnLoaded
from broker_shim.store.memory import MemoryMessageStore
from tests.support.amqp.bench import Bench, received
from tests.support.amqp.memory_broker import TIMEOUT_S
from tests.support.readiness import is_ready


class Slow(MemoryMessageStore):
    """A store that loads content when it is told to.

    Attributes:
        loads: Those that were asked for and wait.
    """

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[tuple[int, OnLoaded]] = []

    def at_hand(self, message_ids: Sequence[int]) -> dict[int, Content]:  # noqa: ARG002
        return {}

    def prefetch(self, message_ids: Sequence[int], on_loaded: OnLoaded) -> None:
        self.loads += [(message_id, on_loaded) for message_id in message_ids]

    def load_all(self) -> None:
        loads, self.loads = self.loads, []
        for message_id, on_loaded in loads:
            super().prefetch([message_id], on_loaded)


@pytest.fixture
def store() -> Iterator[Slow]:
    it = Slow()
    yield it
    it.close()


@pytest.fixture
def bench(store: Slow) -> Iterator[Bench]:
    it = Bench(store)
    it.broker.ensure_queue("q", lambda _error: None)
    it.run()
    yield it
    it.ours.lost()


def run_but_loads(bench: Bench, store: Slow) -> None:
    """Until the store has answered everything but the loads that it was asked for."""
    bench.broker.dispatch()
    while bench.delayed or bench.calls.open_count > len(store.loads):
        for _delay_s, call in [bench.delayed.pop() for _ in bench.delayed[:]]:
            call()
        if bench.calls.open_count > len(store.loads):
            assert is_ready(bench.inbox, TIMEOUT_S), "no answer of the store"
            bench.inbox.drain()
        bench.broker.dispatch()


def ended_by_the_peer(bench: Bench, link: Any) -> None:
    link.close()
    bench.step_to_broker()


def ended_with_its_connection(bench: Bench, _link: Any) -> None:
    bench.ours.lost()


@pytest.mark.parametrize("mode", [proton.Link.SND_MIXED, proton.Link.SND_SETTLED])
@pytest.mark.parametrize("end", [ended_by_the_peer, ended_with_its_connection])
def test_what_a_link_was_still_loading_when_it_ended_is_anybodys_again(
    bench: Bench, store: Slow, end: Callable[[Bench, Any], None], mode: int
) -> None:
    bench.publish(2, 10)
    link = bench.receiver(snd_settle_mode=mode)
    link.flow(2)
    bench.step_to_broker()
    run_but_loads(bench, store)
    queue = bench.broker.queues["q"]
    assert len(store.loads) == 2
    assert queue.browse(Cursor(), 9) == []
    end(bench, link)
    run_but_loads(bench, store)
    assert len(queue.browse(Cursor(), 9)) == 2
    assert {entry.acquired_by for entry in store.recover().entries["q"].values()} == {None}
    assert bench.calls.messages.holders() == {}
    store.load_all()
    bench.run()
    assert len(queue.browse(Cursor(), 9)) == 2
    assert received(link) == []


def test_what_is_loaded_while_the_broker_stops_is_not_sent_any_more(
    bench: Bench, store: Slow
) -> None:
    bench.publish(2, 10)
    link = bench.receiver()
    link.flow(2)
    bench.step_to_broker()
    run_but_loads(bench, store)
    bench.broker.is_stopping = True
    store.load_all()
    bench.run()
    assert bench.broker.metrics.delivered == 0
    assert {entry.acquired_by for entry in store.recover().entries["q"].values()} == {None}


@pytest.mark.parametrize("mode", [0, proton.Terminus.DIST_MODE_COPY])
def test_what_comes_with_a_message_that_cannot_be_framed_goes_all_the_same(
    bench: Bench, store: Slow, mode: int
) -> None:
    header, body = parse(bytes(proton.Message(body=b"x", durable=True).encode()), now_us=0)
    for each in (header, header._replace(header=b"no section"), header, header):
        bench.broker.publish(each, body, ("q",), lambda _error: None)
    bench.run()
    link = bench.receiver(distribution_mode=mode)
    link.flow(10)
    bench.step_to_broker()
    run_but_loads(bench, store)
    store.loads.reverse()  # so that all go on at once, when the first comes
    store.load_all()
    bench.run()
    bench.exchange()
    assert len(received(link)) == 3
    held = len(bench.calls.messages.holders())
    assert held == (0 if mode else 3)  # but for the one that is left held, which nobody refers to
