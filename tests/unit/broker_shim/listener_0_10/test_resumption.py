"""Sessions of AMQP 0-10 that outlive their connection: nothing is done twice, nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from weakref import ref

import pytest

from broker_shim.amqp_0_10.commands import (
    ExecutionException,
    ExecutionResult,
    ExecutionSync,
    MessageAccept,
    MessageTransfer,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    QueueQuery,
    TxCommit,
    TxSelect,
)
from broker_shim.amqp_0_10.controls import (
    ConnectionClose,
    SessionAttach,
    SessionAttached,
    SessionCommandPoint,
    SessionCompleted,
    SessionDetach,
    SessionDetached,
    SessionExpected,
    SessionGap,
    SessionRequestTimeout,
    SessionTimeout,
)
from tests.support.amqp.amqp_0_10 import Bench010, Client010, content


@pytest.fixture
def bench() -> Iterator[Bench010]:
    it = Bench010()
    yield it
    it.close()


@pytest.fixture
def client(bench: Bench010) -> Client010:
    """Its session outlives its connection."""
    it = bench.opened()
    it.do(SessionRequestTimeout(60))
    return it


def back(bench: Bench010, before: Client010, expects: int | None = 0) -> Client010:
    """The client on a new connection, with its session; it says what it expects."""
    client = bench.client()
    client.open()
    client.attach()
    client.next_id = before.next_id
    if expects is not None:
        client.do(SessionExpected(((expects, expects),)))
    return client


def depth(bench: Bench010) -> int:
    return len(bench.broker.queues["q"])


def test_what_was_sent_twice_is_done_once(bench: Bench010, client: Client010) -> None:
    client.send("q", b"first")
    client.say(MessageTransfer("", 1, 0), **content("q", b"second"))
    bench.step()
    client.lose()
    client = back(bench, client)
    assert client.told[3] == SessionAttached(b"session")
    assert client.of(SessionExpected) == [SessionExpected(((2, 2),))]
    assert client.completed == ((0, 1),)
    client.do(SessionCommandPoint(1, 0))
    client.next_id = 1
    client.send("q", b"second")
    client.send("q", b"third")
    assert client.sync()
    assert depth(bench) == 3


@pytest.mark.parametrize("command", [QueuePurge("q"), QueueDelete("q")])
def test_an_order_that_was_sent_twice_is_done_once(
    bench: Bench010, client: Client010, command: QueuePurge | QueueDelete
) -> None:
    """What came between the two stays: so does a queue that was made anew."""
    client.send("q", b"before")
    client.say(command)
    bench.step()
    client.lose()
    other = bench.client()
    other.open()
    other.attach(b"other")
    other.do(QueueDeclare("q"))
    other.send("q", b"meanwhile")
    client = back(bench, client)
    assert client.completed == ((0, 1),)
    client.do(SessionCommandPoint(1, 0))
    client.next_id = 1
    client.do(command)
    assert client.sync()
    assert depth(bench) == 1


def test_a_command_that_was_cut_off_is_done_when_it_comes_whole(
    bench: Bench010, client: Client010
) -> None:
    client.say(MessageTransfer("", 1, 0), **content("q", bytes(9_000)))
    client._to_send = client._to_send[:6_000]
    bench.step()
    client.lose()
    client = back(bench, client)
    assert client.of(SessionExpected) == [SessionExpected(((0, 0),))]
    client.do(SessionCommandPoint(0, 0))
    client.next_id = 0
    client.send("q", bytes(9_000))
    assert client.sync()
    assert depth(bench) == 1


def test_what_a_client_had_not_taken_in_is_sent_again_by_its_number(
    bench: Bench010, client: Client010
) -> None:
    client.subscribe("q")
    for body in (b"0", b"1", b"2"):
        client.send("q", body)
    client.do(SessionCompleted(((0, 0),)))
    client.lose()
    client = back(bench, client, expects=1)
    assert client.of(SessionCommandPoint) == [SessionCommandPoint(1, 0)]
    assert [*zip(client.numbers, client.bodies, strict=True)] == [(1, b"1"), (2, b"2")]
    client.do(MessageAccept(((0, 2),)), sync=True)
    assert depth(bench) == 0


def test_what_came_meanwhile_comes_when_the_client_is_back(
    bench: Bench010, client: Client010
) -> None:
    client.subscribe("q")
    client.say(QueueQuery("q"))
    client.lose()
    other = bench.client()
    other.open()
    other.attach(b"other")
    other.send("q", b"meanwhile")
    assert client.bodies == []
    client = back(bench, client, expects=None)
    assert client.bodies == []
    client.do(SessionExpected(((0, 0),)))
    assert client.bodies == [b"meanwhile"]


def test_an_answer_that_was_lost_is_told_again(bench: Bench010, client: Client010) -> None:
    client.say(QueueQuery("q"))
    client.connection.receive(bytes(client._to_send))
    client.lose()
    client = back(bench, client)
    assert len(client.of(ExecutionResult)) == 1


def test_what_is_held_waits_for_its_client_until_the_timeout(
    bench: Bench010, client: Client010
) -> None:
    client.send("q")
    client.subscribe("q")
    client.lose()
    assert bench.broker.queues["q"].held_count == 1
    bench.pass_time()
    assert bench.broker.queues["q"].held_count == 0
    client = back(bench, client, expects=None)
    assert client.of(SessionExpected) == []
    client.next_id = 0
    assert client.sync()


def test_a_transaction_outlives_its_connection(bench: Bench010, client: Client010) -> None:
    client.do(TxSelect())
    client.send("q")
    client.lose()
    client = back(bench, client)
    assert depth(bench) == 0
    client.do(SessionCommandPoint(2, 0))
    assert client.is_complete(client.do(TxCommit(), sync=True))
    assert depth(bench) == 1


def test_a_timer_of_an_earlier_loss_does_not_end_a_session(
    bench: Bench010, client: Client010
) -> None:
    client.do(QueueDeclare("mine", exclusive=True, auto_delete=True))
    client.lose()
    client = back(bench, client)
    bench.pass_time()
    assert "mine" in bench.broker.queues
    client.lose()
    client = back(bench, client)
    client.do(SessionRequestTimeout(0))
    client.lose()
    assert "mine" not in bench.broker.queues


def test_a_session_is_taken_over_by_force_as_it_is(bench: Bench010, client: Client010) -> None:
    client.send("q")
    other = bench.client()
    other.open()
    other.attach()
    assert other.told[-1] == SessionDetached(b"session", 1)
    other.do(SessionAttach(b"session", force=True))
    assert client.told[-1] == SessionDetached(b"session", 1)
    assert other.completed == ((0, 0),)
    assert bench.broker.queues["q"].held_count == 0


def test_another_user_does_not_get_it(bench: Bench010, client: Client010) -> None:
    client.subscribe("q")
    client.lose()
    other = bench.client()
    other.open()
    other.connection.login.principal = type(other.connection.login.principal)("bob")
    for force in (False, True):
        other.do(SessionAttach(b"session", force=force))
    assert other.of(SessionExpected) == []
    assert other.of(SessionCompleted) == []
    assert back(bench, client).of(SessionExpected) == [SessionExpected(((3, 3),))]


def test_a_detach_and_a_close_leave_the_session(bench: Bench010, client: Client010) -> None:
    client.send("q")
    client.do(SessionDetach(b"session"))
    assert client.told[-1] == SessionDetached(b"session", 0)
    client.do(SessionAttach(b"session"))
    assert client.of(SessionExpected) == [SessionExpected(((1, 1),))]
    client.say(ConnectionClose(200, "bye"), 0)
    bench.run()
    assert back(bench, client).completed == ((0, 0),)


def test_a_client_that_knows_nothing_cannot_go_on(bench: Bench010, client: Client010) -> None:
    client.send("q")
    client.lose()
    client = back(bench, client, expects=None)
    client.do(SessionExpected(()))
    assert client.told[-1] == SessionDetached(b"session", 4)


@pytest.mark.parametrize("first", [7, 0xFFFFFFF0])
def test_a_client_cannot_expect_what_was_not_sent(
    bench: Bench010, client: Client010, first: int
) -> None:
    client.lose()
    client = back(bench, client, expects=first)
    is_before = first > 1 << 31
    assert isinstance(client.told[-1], SessionGap if is_before else SessionDetached)


def test_what_is_not_kept_any_more_is_told_as_a_gap(bench: Bench010, client: Client010) -> None:
    client.subscribe("q")
    for _ in range(4):
        client.send("q")
    client.do(SessionCompleted(((0, 0), (2, 2))))
    client.lose()
    client = back(bench, client)
    assert client.of(SessionGap) == [SessionGap(((0, 0), (2, 2)))]
    assert client.numbers == [1, 3]


def test_a_gap_of_the_client_counts_as_complete(bench: Bench010, client: Client010) -> None:
    client.send("q")
    client.do(SessionGap(((0, 4),)))
    assert client.completed == ((0, 4),)
    client.next_id = 5
    assert client.is_complete(client.do(ExecutionSync(), sync=True))
    client.do(SessionGap(((9, 12),)))
    assert client.told[-1] == SessionDetached(b"session", 4)


def test_a_timeout_has_a_limit(bench: Bench010, client: Client010) -> None:
    client.do(SessionRequestTimeout(1 << 31))
    client.do(SessionRequestTimeout())
    assert [each.timeout for each in client.of(SessionTimeout)] == [60, 300, 300]


def test_so_many_sessions_of_a_user_are_kept(bench: Bench010) -> None:
    for number in range(103):
        client = bench.opened() if not number else bench.client()
        if number:
            client.open()
            client.attach(b"s%d" % number)
        client.do(SessionRequestTimeout(60))
        client.lose()
        bench.clients.remove(client)
    assert len(bench.host._sessions) == 100
    client = bench.client()
    client.open()
    client.attach(b"s7")  # it is not kept for anybody any more: there is room for another one
    assert len(client.of(SessionExpected)) == 1
    another = bench.client()
    another.open()
    another.attach(b"another")
    another.do(SessionRequestTimeout(60))
    another.lose()
    assert len(bench.host._sessions) == 101
    client.lose()
    assert len(bench.host._sessions) == 100


def test_an_error_while_the_client_is_away_ends_the_session(
    bench: Bench010, client: Client010
) -> None:
    client.say(QueueDeclare("a"))
    client.say(QueueDeclare("none", passive=True))
    client.connection.receive(bytes(client._to_send))
    client.lose()
    client = back(bench, client, expects=None)
    assert client.of(SessionExpected) == []
    assert client.of(ExecutionException) == []


def test_a_session_that_ended_is_not_kept_by_the_timer_of_a_time_before(bench: Bench010) -> None:
    """A client may ask for years: each of its sessions would be in memory for as long."""
    client = bench.opened()
    client.do(SessionRequestTimeout(1 << 30))
    ended = ref(next(iter(bench.host._sessions.values())))
    client.lose()
    again = back(bench, client)
    again.do(SessionRequestTimeout(0))
    again.do(SessionDetach(b"session"))
    bench.clients.clear()
    del client, again
    assert bench.host._sessions == {}
    assert ended() is None
