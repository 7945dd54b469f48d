"""Orders about many messages, of which a later turn fails: what is told, and written down."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from broker_shim.completion import nobody
from broker_shim.errors import InvalidRequest
from broker_shim.serve.administration.broker_orders import Asker, BrokerOrders
from broker_shim.store.interface import Queue
from sparkstore.operations.bulk import TURN_IDS, Action, Answer, Request
from tests.support.amqp.bench import Bench
from tests.support.stores.stores import RecordedMessageStore

COUNT, FIRST = 300, TURN_IDS
"""Messages on q, and of the first turn: every second message, so none is in a run."""


@pytest.fixture
def bench() -> Iterator[Bench]:
    with closing(RecordedMessageStore([])) as store:
        it = Bench(store)
        for name in ("q", "t", "other"):
            it.broker.create_queue(Queue(name), nobody)
        it.run()
        for _ in range(COUNT):
            it.publish(1, 10, "q")
            it.publish(1, 10, "other")
        yield it
        it.ours.lost()


def done_until(bench: Bench, action: Action, deleted: str, *, shown: int) -> tuple[Any, Any]:
    """What is answered and audited of an order; a queue is deleted once it has shown so much."""
    answers, audited = list[Any](), list[dict[str, Any]]()

    def show(so_far: Answer) -> None:
        if so_far.done >= shown and deleted in bench.broker.queues:
            bench.broker.destroy_queue(deleted, nobody)

    orders = BrokerOrders(lambda _event, **details: audited.append(details))
    request = Request(action, "q", (), "t" if action is Action.MOVE else None, "abcd1234")
    asker = Asker("test", None, show, answers.append, lambda: True)
    orders.bulk(request, [*range(1, 2 * COUNT, 2)])(bench.broker, asker)
    bench.run()
    while bench.delayed and not answers:
        bench.run_delayed()
    (answer,), (line,) = answers, audited
    return answer, line


@pytest.mark.parametrize("deleted", ["q", "t"])
def test_what_was_moved_before_a_queue_was_deleted_is_told_and_audited(
    bench: Bench, deleted: str
) -> None:
    error, line = done_until(bench, Action.MOVE, deleted, shown=1)
    assert isinstance(error, InvalidRequest)
    assert f"unknown queue '{deleted}'" in str(error)
    assert f"({FIRST} messages are done: run it again, or undo operation abcd1234)" in str(error)
    assert (line["done"], line["error"], line["operation"]) == (FIRST, error, "abcd1234")


def test_an_order_about_a_queue_that_is_gone_before_its_start_is_refused(bench: Bench) -> None:
    bench.broker.destroy_queue("q", nobody)
    bench.run()
    error, line = done_until(bench, Action.PURGE, "q", shown=1)
    assert str(error) == "unknown queue 'q': see sparkstore queues"
    assert (line["done"], line["error"]) == (0, error)
