"""What AMQP 0-10 names of the broker's own operations: alternate exchanges, arguments, credit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from broker_shim.amqp_0_10.commands import (
    Command,
    ExchangeBind,
    ExchangeBound,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeQuery,
    ExecutionException,
    ExecutionResult,
    ExecutionSync,
    MessageAccept,
    MessageAcquire,
    MessageFlow,
    MessageReject,
    MessageRelease,
    MessageSetFlowMode,
    MessageSubscribe,
    QueueDeclare,
    QueueDelete,
    QueueQuery,
)
from broker_shim.amqp_0_10.controls import SessionCompleted, SessionDetach
from broker_shim.amqp_0_10.structs import ExchangeBoundResult, ExchangeQueryResult
from tests.support.amqp.amqp_0_10 import INFINITE, Bench010, Client010

Ranges = tuple[tuple[int, int], ...]


@pytest.fixture
def bench() -> Iterator[Bench010]:
    it = Bench010()
    yield it
    it.close()


@pytest.fixture
def client(bench: Bench010) -> Client010:
    """With a queue `out` that gets all that goes to the exchange `aside`."""
    it = bench.opened()
    it.do(ExchangeDeclare("aside", "fanout"))
    it.do(QueueDeclare("out"))
    it.do(ExchangeBind("out", "aside", ""))
    return it


def depth(bench: Bench010, queue: str) -> int:
    return len(bench.broker.queues[queue])


def code_of(client: Client010) -> int:
    (told,) = client.of(ExecutionException)
    return int(told.error_code)


def test_what_is_rejected_goes_to_the_alternate_exchange(
    bench: Bench010, client: Client010
) -> None:
    client.do(QueueDeclare("in", alternate_exchange="aside"))
    client.send("in")
    client.subscribe("in")
    reject = client.do(MessageReject(((0, 0),), 0, "no"), sync=True)
    assert client.is_complete(reject)
    assert (depth(bench, "in"), depth(bench, "out")) == (0, 1)


def test_what_is_on_a_deleted_queue_goes_to_the_alternate_exchange(
    bench: Bench010, client: Client010
) -> None:
    client.do(QueueDeclare("in", alternate_exchange="aside"))
    client.send("in")
    client.do(QueueDelete("in"), sync=True)
    assert "in" not in bench.broker.queues
    assert depth(bench, "out") == 1


def test_what_an_exchange_routes_nowhere_goes_to_its_alternate(
    bench: Bench010, client: Client010
) -> None:
    client.do(ExchangeDeclare("narrow", "direct", alternate_exchange="aside"))
    client.send("nobody", exchange="narrow")
    assert client.sync()
    assert depth(bench, "out") == 1
    client.do(ExchangeQuery("narrow"))
    told = ExchangeQueryResult("direct", durable=False, arguments={"alternate_exchange": "aside"})
    assert client.of(ExecutionResult)[-1].value == told


def test_an_alternate_that_is_in_use_is_not_deleted(client: Client010) -> None:
    client.do(QueueDeclare("in", alternate_exchange="aside"))
    client.do(ExchangeDelete("aside"))
    assert code_of(client) == 530
    assert "queue 'in'" in client.of(ExecutionException)[-1].description


def test_an_alternate_of_another_exchange_is_not_deleted(client: Client010) -> None:
    client.do(ExchangeDeclare("first", "direct", alternate_exchange="aside"))
    client.do(ExchangeDelete("aside"))
    assert code_of(client) == 530
    assert "exchange 'first'" in client.of(ExecutionException)[-1].description


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (QueueDeclare("new", alternate_exchange="none"), 404),
        (QueueDeclare("q", alternate_exchange="none"), 404),
        (QueueDeclare("q", alternate_exchange="aside"), 530),
        (ExchangeDeclare("new", "direct", alternate_exchange="none"), 404),
        (ExchangeDeclare("amq.topic", "topic", alternate_exchange="aside"), 530),
        (ExchangeDeclare("a/b", "direct"), 406),
        (QueueDeclare("new", arguments={"max_delivery_count": -1}), 406),
        (QueueDeclare("new", arguments={"dead_letter_queue": {"a": 1}}), 531),
        (ExchangeBind("q", "amq.match", "k", {"x-match": "some"}), 406),
        (ExchangeBind("q", "amq.topic", "k", {"x-filter-jms-selector": "a = 1"}), 540),
        (ExchangeBind("q", "amq.direct", "k", {"x-match": "all"}), 540),
        (ExchangeBind("q", "amq.fanout", "k", {"a": {}}), 531),
    ],
)
def test_what_cannot_be_declared_is_refused_by_its_code(
    client: Client010, command: object, code: int
) -> None:
    client.do(command)
    assert code_of(client) == code


def test_a_queue_is_as_its_arguments_say_and_a_query_tells_them(
    bench: Bench010, client: Client010
) -> None:
    said = {"max_delivery_count": 1, "qpid.last_value_queue_key": "k", "no-local": False}
    client.do(QueueDeclare("in", "aside", durable=True, auto_delete=True, arguments=said))
    client.do(QueueQuery("in"))
    told = client.of(ExecutionResult)[-1].value
    assert (told.alternate_exchange, told.durable, told.auto_delete) == ("aside", True, True)
    assert told.arguments == {"max_delivery_count": 1, "last_value_key": "k"}
    assert bench.broker.queues["in"].arguments.last_value_key == "k"


def test_a_release_counts_if_it_says_redelivered_until_that_is_too_often(
    bench: Bench010, client: Client010
) -> None:
    arguments = {"max_delivery_count": 1, "dead_letter_queue": "q"}
    client.do(QueueDeclare("in", arguments=arguments))
    client.send("in")
    client.subscribe("in")
    for number, redelivered in enumerate((False, True, True)):
        client.do(MessageRelease(((number, number),), set_redelivered=redelivered))
    seen = [header.delivery.redelivered for _, _, header, _ in client.received]
    assert seen == [False, False, True]
    assert (depth(bench, "in"), depth(bench, "q")) == (0, 1)


def test_a_headers_exchange_routes_by_application_headers(bench: Bench010) -> None:
    client = bench.opened()
    arguments = {"x-match": "all", "region": "eu", "size": 3}
    client.do(ExchangeBind("q", "amq.match", "k", arguments))
    client.send("", exchange="amq.match", application_headers={"region": "eu", "size": 3})
    assert client.sync()
    assert depth(bench, "q") == 1
    for asked in (arguments, {"x-match": "any"}):
        client.do(ExchangeBound("amq.match", "q", "k", asked))
    told = [each.value for each in client.of(ExecutionResult)]
    assert told == [ExchangeBoundResult(), ExchangeBoundResult(args_not_matched=True)]


@pytest.mark.parametrize("exchange", ["amq.direct", "amq.fanout", "amq.topic"])
def test_a_binding_without_arguments_is_not_bound_with_some(
    client: Client010, exchange: str
) -> None:
    client.do(ExchangeBind("q", exchange, "k", {"x-filter-jms-selector": ""}))
    for asked in (None, {}, {"x-filter-jms-selector": "a = 1"}):
        client.do(ExchangeBound(exchange, "q", "k", asked))
    told = [each.value for each in client.of(ExecutionResult)]
    assert told == [ExchangeBoundResult()] * 2 + [ExchangeBoundResult(args_not_matched=True)]


def test_a_message_waits_until_there_is_credit_for_all_of_its_bytes(bench: Bench010) -> None:
    client = bench.opened()
    client.do(MessageSubscribe("q", "d", 0, 0))
    client.do(MessageFlow("d", 0, INFINITE))
    client.do(MessageFlow("d", 1, 20))
    client.send("q", bytes(1_000))
    client.send("q", b"small")
    assert client.bodies == []
    client.do(MessageFlow("d", 1, 1_040))
    assert [len(body) for body in client.bodies] == [1_000]
    client.do(MessageFlow("d", 1, INFINITE))
    assert client.bodies[1:] == [b"small"]


def test_a_window_of_bytes_moves_on_as_the_client_takes_messages_in(bench: Bench010) -> None:
    client = bench.opened()
    client.do(MessageSubscribe("q", "d", 1, 0))
    client.do(MessageSetFlowMode("d", 1))
    client.do(MessageFlow("d", 0, INFINITE))
    client.do(MessageFlow("d", 1, 1_500))
    for _ in range(3):
        client.send("q", bytes(1_000))
    assert len(client.bodies) == 1
    client.do(SessionCompleted(((0, 0),)))
    assert len(client.bodies) == 2


def test_a_browser_is_shown_no_more_than_its_bytes(bench: Bench010) -> None:
    client = bench.opened()
    client.send("q", bytes(1_000))
    client.do(MessageSubscribe("q", "d", 0, 1))
    client.do(MessageFlow("d", 0, INFINITE))
    client.do(MessageFlow("d", 1, 500))
    assert client.bodies == []
    client.do(MessageFlow("d", 1, 1_000))
    assert len(client.bodies) == 1


def test_of_two_that_browse_one_acquires(bench: Bench010) -> None:
    first, second = bench.opened(), bench.client()
    second.open()
    second.attach(b"second")
    first.send("q")
    for each in (first, second):
        each.subscribe("q", acquire_mode=1)
        each.do(MessageAcquire(((0, 9),)))
    acquired: list[Ranges] = [
        each.of(ExecutionResult)[0].value.transfers for each in (first, second)
    ]
    assert acquired == [((0, 0),), ()]


@pytest.mark.parametrize(
    ("decision", "left"),
    [(MessageAccept, 0), (MessageRelease, 1), (partial(MessageReject, code=0), 0)],
)
def test_what_is_decided_in_one_go_with_its_acquire_is_decided(
    bench: Bench010, decision: Callable[[Ranges], Command], left: int
) -> None:
    client = bench.opened()
    client.send("q")
    client.subscribe("q", acquire_mode=1)
    client.say(MessageAcquire(((0, 0),)))
    client.say(ExecutionSync())
    client.do(decision(((0, 0),)))
    queue = bench.broker.queues["q"]
    assert (len(queue), queue.held_count) == (left, 0)
    assert client.of(ExecutionResult)[0].value.transfers == ((0, 0),)


def test_a_session_that_ends_while_it_acquires_holds_nothing(bench: Bench010) -> None:
    client = bench.opened()
    client.send("q")
    client.subscribe("q", acquire_mode=1)
    client.say(MessageAcquire(((0, 0),)))
    client.say(SessionDetach(b"session"))
    bench.step()
    bench.run()
    assert bench.broker.queues["q"].held_count == 0


def test_a_queue_with_a_subscriber_is_not_had_alone(bench: Bench010) -> None:
    first, second = bench.opened(), bench.client()
    first.subscribe("q")
    second.open()
    second.attach(b"second")
    second.do(QueueDeclare("q", exclusive=True))
    assert code_of(second) == 405
