"""The list of durable subscriptions: what it tells, and what it costs beside much else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from broker_shim.serve.http.calls import Call
from broker_shim.serve.http.reports.subscriptions import (
    SubscriptionList,
    SubscriptionQuery,
    list_subscriptions,
)
from broker_shim.store.interface import Exchange, Queue
from broker_shim.store.memory import MemoryMessageStore
from tests.support.amqp.memory_broker import MemoryBroker
from tests.support.work import lines_of

COUNT = 8


@pytest.fixture
def bench() -> Iterator[MemoryBroker]:
    store = MemoryMessageStore()
    it = MemoryBroker(store)
    it.broker.router.add_exchange(Exchange("amq.topic", "topic"))
    for number in range(COUNT):
        create(it, f"news::subscription.{number}", "eu", "us")
    create(it, "orders", "eu")
    yield it
    it.close()
    store.close()


def create(bench: MemoryBroker, queue: str, *keys: str) -> None:
    bench.broker.create_queue(Queue(queue), lambda _error: None)
    bench.run()
    for key in keys:
        bench.broker.router.bind("amq.topic", key, queue)


def listed(bench: MemoryBroker, **query: int) -> SubscriptionList:
    async def read(call: Callable[[], Any]) -> Any:
        return call()

    caller: Any = SimpleNamespace(broker=bench.broker)
    served: Any = SimpleNamespace(calls=SimpleNamespace(read=read))
    probes: Any = None
    call = Call(probes, served, caller, query=SubscriptionQuery(**query))
    return asyncio.run(list_subscriptions(call))


def test_a_page_tells_each_subscription_with_its_own_bindings(bench: MemoryBroker) -> None:
    page = listed(bench, offset=1, limit=2)
    assert page.total == COUNT
    assert [row.queue for row in page.items] == ["news::subscription.1", "news::subscription.2"]
    for row in page.items:
        assert [(one.queue, one.key) for one in row.bindings] == [
            (row.queue, "eu"),
            (row.queue, "us"),
        ]
        assert (row.subscriber, row.attached, row.depth) == (None, False, 0)


def test_a_page_costs_what_is_on_it_however_many_bindings_others_have(bench: MemoryBroker) -> None:
    before = lines_of(lambda: listed(bench, limit=2))
    for number in range(1_000):
        bench.broker.router.bind("amq.topic", f"key.{number}", "orders")
    assert lines_of(lambda: listed(bench, limit=2)) <= before + 200
