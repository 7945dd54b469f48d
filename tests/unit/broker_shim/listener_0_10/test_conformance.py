"""What the specification of AMQP 0-10 asks beside the ordinary, found by a public suite."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from broker_shim.amqp_0_10.commands import (
    DtxCommit,
    DtxEnd,
    DtxGetTimeout,
    DtxPrepare,
    DtxRollback,
    DtxSelect,
    DtxSetTimeout,
    DtxStart,
    ExchangeBound,
    ExecutionException,
    ExecutionResult,
    MessageAccept,
    MessageCancel,
    MessageFlow,
    MessageFlush,
    MessageRelease,
    MessageSetFlowMode,
    MessageStop,
    MessageSubscribe,
    MessageTransfer,
    QueueDeclare,
    QueueDelete,
    QueueQuery,
    TxCommit,
    TxRollback,
    TxSelect,
)
from broker_shim.amqp_0_10.controls import ConnectionClose, SessionDetach
from broker_shim.amqp_0_10.structs import DtxXid, ExchangeBoundResult
from broker_shim.framing.segments import BodySegment
from tests.support.amqp.amqp_0_10 import INFINITE, Bench010, Client010, content

XID = DtxXid(1, b"global", b"branch")
OK, ROLLED_BACK = 0, 1


@pytest.fixture
def bench() -> Iterator[Bench010]:
    it = Bench010()
    yield it
    it.close()


def other_client(bench: Bench010, name: bytes = b"other") -> Client010:
    it = bench.client()
    it.open()
    it.attach(name)
    return it


def detach(client: Client010) -> None:
    client.do(SessionDetach(b"session"))


def close(client: Client010) -> None:
    client.do(ConnectionClose(200, "bye"), channel=0)


def send_and_take(client: Client010) -> None:
    client.send("q")
    client.subscribe("q")


def send_and_accept_in_a_transaction(client: Client010) -> None:
    client.do(TxSelect())
    client.send("q")
    client.do(TxCommit())
    client.subscribe("q")
    client.do(MessageAccept(((client.numbers[0], client.numbers[0]),)))


@pytest.mark.parametrize("end", [detach, close, Client010.lose])
@pytest.mark.parametrize("hold", [send_and_take, send_and_accept_in_a_transaction])
def test_what_a_session_held_comes_again_as_redelivered_however_it_ended(
    bench: Bench010, hold: Any, end: Any
) -> None:
    """JMS 2.0, 3.4.10: its client may have seen it."""
    client = bench.opened()
    hold(client)
    assert client.bodies == [b"body"]
    end(client)
    other = other_client(bench)
    other.subscribe("q")
    assert [each[2].delivery.redelivered for each in other.received] == [True]


def test_what_was_not_sent_to_a_session_is_not_redelivered(bench: Bench010) -> None:
    client = bench.opened()
    client.send("q", b"1")
    client.send("q", b"2")
    client.say(MessageSubscribe("q", "d", 0, 0))
    client.say(MessageSetFlowMode("d", 0))
    client.say(MessageFlow("d", 1, INFINITE))
    client.do(MessageFlow("d", 0, 1))
    assert client.bodies == [b"1"]
    detach(client)
    other = other_client(bench)
    other.subscribe("q")
    assert [(each[3], each[2].delivery.redelivered) for each in other.received] == [
        (b"1", True),
        (b"2", False),
    ]


def test_an_empty_body_is_a_segment(bench: Bench010) -> None:
    client = bench.opened()
    client.do(MessageTransfer("", 1, 0), **{**content("q", b""), "body": BodySegment(b"")})
    client.send("q", b"")
    client.subscribe("q")
    assert client.bodies == [b"", b""]
    assert client.had_bodies == [True, True]


# --------------------------------------------------------------------------- time to live


@pytest.mark.parametrize("accept_mode", [0, 1])
@pytest.mark.parametrize("acquire_mode", [0, 1])
@pytest.mark.parametrize("flow_mode", [0, 1])
def test_a_message_that_is_too_old_is_not_sent_and_costs_no_credit(
    bench: Bench010,
    monkeypatch: pytest.MonkeyPatch,
    accept_mode: int,
    acquire_mode: int,
    flow_mode: int,
) -> None:
    client = bench.opened()
    client.send("q", b"first", ttl=500)
    client.send("q", b"second", ttl=300_000)
    client.send("q", b"third")
    now_ns = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now_ns + 1_000_000_000)
    client.say(MessageSubscribe("q", "d", accept_mode, acquire_mode))
    client.say(MessageSetFlowMode("d", flow_mode))
    client.say(MessageFlow("d", 1, INFINITE))
    client.do(MessageFlow("d", 0, 1))
    assert client.bodies == [b"second"]
    assert bench.broker.metrics.expired == 1
    client.do(MessageFlow("d", 0, 5))
    assert client.bodies == [b"second", b"third"]
    left = {(0, 0): 2, (1, 0): 0}.get((accept_mode, acquire_mode), 3)
    assert len(bench.broker.queues["q"]) == left


# ------------------------------------------------------------------------------- queries


def test_what_a_client_holds_is_not_told_as_waiting(bench: Bench010) -> None:
    client = bench.opened()
    client.send("q")
    client.send("q")
    client.do(QueueQuery("q"))
    client.subscribe("q")
    client.send("q")
    client.do(MessageAccept(((client.numbers[0], client.numbers[0]),)))
    client.do(QueueQuery("q"))
    told = [each.value for each in client.of(ExecutionResult)]
    assert [(each.message_count, each.subscriber_count) for each in told] == [(2, 0), (0, 1)]


@pytest.mark.parametrize(
    ("queue", "key", "told"),
    [
        ("q", "q", ExchangeBoundResult()),
        (None, "q", ExchangeBoundResult()),
        ("q", "new", ExchangeBoundResult(key_not_matched=True)),
        ("q", "none", ExchangeBoundResult(key_not_matched=True)),
        ("none", "q", ExchangeBoundResult(queue_not_found=True)),
        ("none", "none", ExchangeBoundResult(queue_not_found=True, key_not_matched=True)),
        (None, "none", ExchangeBoundResult(key_not_matched=True)),
    ],
)
def test_what_is_bound_to_the_exchange_without_a_name_is_told(
    bench: Bench010, queue: str | None, key: str, told: ExchangeBoundResult
) -> None:
    client = bench.opened()
    client.do(QueueDeclare("new"))
    client.do(ExchangeBound(None, queue, key))
    assert client.of(ExecutionResult)[-1].value == told


# ------------------------------------------------------------------- branches without a session


def status(client: Client010, command: object) -> int:
    client.do(command)
    return int(client.of(ExecutionResult)[-1].value.status)


def work(client: Client010, *, is_ended: bool = True) -> None:
    """A branch that takes the one message of q and sends another."""
    client.do(DtxSelect())
    client.send("q", b"old")
    client.subscribe("q")
    assert status(client, DtxStart(XID)) == OK
    client.do(MessageAccept(((client.numbers[-1], client.numbers[-1]),)))
    client.send("q", b"new")
    if is_ended:
        assert status(client, DtxEnd(XID)) == OK


def commit(client: Client010) -> list[int]:
    return [status(client, DtxCommit(XID, one_phase=True))]


def prepare_and_commit(client: Client010) -> list[int]:
    return [status(client, DtxPrepare(XID)), status(client, DtxCommit(XID))]


def roll_back(client: Client010) -> list[int]:
    return [status(client, DtxRollback(XID))]


def prepare_and_roll_back(client: Client010) -> list[int]:
    return [status(client, DtxPrepare(XID)), status(client, DtxRollback(XID))]


DECISIONS = [
    (commit, [b"new"]),
    (prepare_and_commit, [b"new"]),
    (roll_back, [b"old"]),
    (prepare_and_roll_back, [b"old"]),
]


@pytest.mark.parametrize(("decide", "left"), DECISIONS)
def test_another_session_decides_a_branch_that_was_ended(
    bench: Bench010, decide: Any, left: list[bytes]
) -> None:
    client = bench.opened()
    work(client)
    client.do(MessageCancel("d"))
    other = other_client(bench)
    assert set(decide(other)) == {OK}
    other.subscribe("q")
    assert other.bodies == left


def fail(client: Client010) -> None:
    """The broker ends the session: it said what cannot be."""
    client.do(DtxCommit(XID))
    assert [int(each.error_code) for each in client.of(ExecutionException)] == [409]


@pytest.mark.parametrize("end", [detach, close, fail])
@pytest.mark.parametrize(("decide", "left"), DECISIONS)
def test_a_branch_that_was_ended_lives_on_after_its_session(
    bench: Bench010, end: Any, decide: Any, left: list[bytes]
) -> None:
    """XA lets any thread decide an idle branch."""
    client = bench.opened()
    work(client)
    end(client)
    other = other_client(bench)
    other.subscribe("q")
    assert other.bodies == []
    assert set(decide(other)) == {OK}
    assert other.bodies == left


def test_what_such_a_branch_took_is_not_that_of_a_session_with_the_same_name(
    bench: Bench010,
) -> None:
    """A session of the same name is another one: what the branch took is not its own."""
    client = bench.opened()
    work(client)
    detach(client)
    client.next_id = 0
    client.attach()
    client.subscribe("q")
    assert client.bodies == [b"old"]
    assert commit(client) == [OK]
    assert client.bodies == [b"old", b"new"]


@pytest.mark.parametrize("end", [detach, close])
@pytest.mark.parametrize("is_suspended", [False, True])
def test_a_branch_that_was_not_ended_is_rolled_back_and_told_so(
    bench: Bench010, end: Any, is_suspended: bool
) -> None:
    client = bench.opened()
    work(client, is_ended=False)
    if is_suspended:
        assert status(client, DtxEnd(XID, suspend=True)) == OK
    end(client)
    other = other_client(bench)
    other.subscribe("q")
    assert [(each[3], each[2].delivery.redelivered) for each in other.received] == [(b"old", True)]
    assert status(other, DtxPrepare(XID)) == ROLLED_BACK
    assert bench.host.branches.count_of("anonymous") == 0


def test_a_branch_that_nobody_decides_after_its_session_ends_at_its_timeout(
    bench: Bench010,
) -> None:
    client = bench.opened()
    work(client)
    client.do(DtxSetTimeout(XID, 60))
    detach(client)
    other = other_client(bench)
    other.subscribe("q")
    bench.pass_time()
    assert other.bodies == [b"old"]
    other.do(DtxRollback(XID))
    assert int(other.of(ExecutionException)[-1].error_code) == 404


def test_a_branch_without_a_timeout_of_its_own_tells_the_brokers(bench: Bench010) -> None:
    client = bench.opened()
    client.do(DtxSelect())
    assert status(client, DtxStart(XID)) == OK
    for timeout_s in (None, 60, 0):
        if timeout_s is not None:
            client.do(DtxSetTimeout(XID, timeout_s))
        client.do(DtxGetTimeout(XID))
    told = [each.value.timeout for each in client.of(ExecutionResult)[1:]]
    assert told == [3_600, 60, 3_600]


# --------------------------------------------------------- what the Python client does by default


@pytest.mark.parametrize("accept_mode", [0, 1])
@pytest.mark.parametrize("acquire_mode", [0, 1])
def test_a_message_that_failed_says_so_to_whoever_gets_it(
    bench: Bench010, accept_mode: int, acquire_mode: int
) -> None:
    client = bench.opened()
    client.send("q")
    client.subscribe("q")
    detach(client)
    other = other_client(bench)
    other.subscribe("q", accept_mode=accept_mode, acquire_mode=acquire_mode)
    assert [each[2].delivery.redelivered for each in other.received] == [True]


@pytest.mark.parametrize("is_redelivered", [False, True])
@pytest.mark.parametrize("commits", [False, True])
def test_what_is_released_in_a_transaction_that_accepted_it_goes_back_with_a_rollback(
    bench: Bench010, commits: bool, is_redelivered: bool
) -> None:
    """The Python client releases all that it had, and rolls back then."""
    client = bench.opened()
    client.do(TxSelect())
    client.send("q")
    client.do(TxCommit())
    client.say(MessageSubscribe("q", "d", 0, 0))
    client.say(MessageFlow("d", 1, INFINITE))
    client.do(MessageFlow("d", 0, 1))
    client.do(MessageAccept(((0, 0),)))
    client.do(MessageRelease(((0, 0),), set_redelivered=is_redelivered))
    other = other_client(bench)
    other.subscribe("q")
    assert other.bodies == []
    client.do(TxCommit() if commits else TxRollback())
    told = [each[2].delivery.redelivered for each in other.received]
    assert told == [is_redelivered][commits:]


@pytest.mark.parametrize(
    "said",
    [MessageStop("d"), MessageFlow("d", 0, 1), MessageSetFlowMode("d", 0), MessageFlush("d")],
)
def test_a_subscriber_whose_queue_was_deleted_is_cancelled_by_its_client_once(
    bench: Bench010, said: object
) -> None:
    client, other = bench.opened(), other_client(bench)
    client.subscribe("q")
    other.do(QueueDelete("q"))
    client.do(said)
    client.do(MessageCancel("d"))
    assert client.sync()
    client.do(MessageCancel("d"))
    assert [int(each.error_code) for each in client.of(ExecutionException)] == [404]
