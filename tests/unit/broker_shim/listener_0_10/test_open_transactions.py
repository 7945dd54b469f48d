"""A transaction that is open for too long is rolled back with its session, by one timer for all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker_shim.amqp_0_10.commands import (
    ExecutionException,
    MessageAccept,
    TxCommit,
    TxRollback,
    TxSelect,
)
from broker_shim.amqp_0_10.controls import SessionDetached
from broker_shim.amqp_0_10.definitions import ExecutionErrorCode
from broker_shim.broker.settings import BrokerSettings
from broker_shim.listener_0_10.transaction import OpenTransactions
from tests.support.amqp.amqp_0_10 import Bench010
from tests.support.amqp.timers import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def bench(clock: Clock) -> Iterator[Bench010]:
    it = Bench010()
    it.host.transactions = OpenTransactions(clock.later, 60, lambda: clock.now_s)
    yield it
    it.close()


def test_it_is_rolled_back_with_its_session_and_what_it_took_comes_again(
    bench: Bench010, clock: Clock
) -> None:
    client = bench.opened()
    client.send("q", b"old")
    client.do(TxSelect())
    clock.pass_s(3600)
    assert clock.timers == [], "nothing is open yet"
    client.subscribe("q")
    client.do(MessageAccept(((client.numbers[0], client.numbers[0]),)))
    clock.pass_s(30)
    client.send("q", b"new")
    clock.pass_s(29)
    bench.run()
    assert client.of(ExecutionException) == []
    clock.pass_s(1)
    bench.run()
    [exception] = client.of(ExecutionException)
    assert (exception.error_code, exception.description) == (
        506,
        "a transaction was open for 60 s: it is rolled back",
    )
    assert client.of(SessionDetached)
    queue = bench.broker.queues["q"]
    assert (len(queue), queue.held_count) == (1, 0)
    other = bench.opened()
    other.subscribe("q")
    assert other.bodies == [b"old"]


@pytest.mark.parametrize("ends", [TxCommit(), TxRollback()])
def test_its_time_begins_with_its_first_operation_and_ends_with_it(
    bench: Bench010, clock: Clock, ends: TxCommit | TxRollback
) -> None:
    client = bench.opened()
    client.do(TxSelect())
    for _ in range(5):
        client.send("q")
        clock.pass_s(59)
        assert client.is_complete(client.do(ends, sync=True))
    clock.pass_s(3600)
    bench.run()
    assert client.of(ExecutionException) == []
    assert clock.timers == []
    other = bench.client()
    other.open()
    other.attach(b"other")
    other.do(TxSelect())
    other.send("q")
    clock.pass_s(60)
    bench.run()
    assert other.of(ExecutionException)
    assert client.sync()


def test_an_accept_that_is_too_much_for_it_ends_the_session_and_its_messages_come_back() -> None:
    """All of the accept, and what the transaction had accepted before: none of it is done."""
    bench = Bench010(settings=BrokerSettings(max_transaction_operations=3))
    client = bench.opened()
    for number in range(5):
        client.send("q", b"%d" % number)
    client.do(TxSelect())
    client.subscribe("q")
    first = client.numbers[0]
    client.do(MessageAccept(((first, first),)))
    client.do(MessageAccept(((first + 1, first + 2),)))
    assert client.of(ExecutionException) == []
    client.do(MessageAccept(((first + 3, first + 4),)))
    [exception] = client.of(ExecutionException)
    assert exception.error_code == ExecutionErrorCode.RESOURCE_LIMIT_EXCEEDED
    assert "a transaction of 5 operations and 0 bytes: commit earlier" in exception.description
    assert client.of(SessionDetached)
    queue = bench.broker.queues["q"]
    assert (len(queue), queue.held_count) == (5, 0)
    other = bench.opened()
    other.subscribe("q")
    assert other.bodies == [b"0", b"1", b"2", b"3", b"4"]
    bench.close()
