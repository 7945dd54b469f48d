"""An exclusive queue with `no-local` gets nothing of the connection whose session has it alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker_shim.amqp_0_10 import commands as c
from broker_shim.amqp_0_10.controls import SessionAttach
from broker_shim.amqp_0_10.structs import DtxXid
from tests.support.amqp.amqp_0_10 import Bench010, Client010, content

XID = DtxXid(1, b"g", b"b")
NO_LOCAL = {"no-local": True}
"""As JMS clients of 0-10 say it."""


@pytest.fixture
def bench() -> Iterator[Bench010]:
    it = Bench010()
    yield it
    it.close()


def subscriber(bench: Bench010, **declared: object) -> Client010:
    """A topic's subscriber as JMS makes one."""
    client = bench.opened()
    declared = {"exclusive": True, "auto_delete": True, "arguments": NO_LOCAL, **declared}
    client.do(c.QueueDeclare("sub", **declared))  # type: ignore[arg-type]
    client.do(c.ExchangeBind("sub", "amq.topic", "news"))
    client.subscribe("sub")
    return client


def publisher(bench: Bench010) -> Client010:
    client = bench.client()
    client.open()
    client.attach(b"publisher")
    return client


def test_a_subscriber_gets_what_others_say_and_not_what_it_says_itself(bench: Bench010) -> None:
    mine = subscriber(bench)
    mine.send("news", b"my own", exchange="amq.topic")
    mine.send("sub", b"straight")
    assert mine.sync()
    publisher(bench).send("news", b"another's", exchange="amq.topic")
    assert mine.bodies == [b"another's"]
    assert not mine.of(c.MessageReject)


@pytest.mark.parametrize("no_local", [False, None])
def test_without_the_argument_one_gets_what_one_says(
    bench: Bench010, *, no_local: bool | None
) -> None:
    mine = subscriber(bench, arguments=None if no_local is None else {"no-local": no_local})
    mine.send("news", b"my own", exchange="amq.topic")
    assert mine.bodies == [b"my own"]


def test_a_topic_s_subscriber_asks_for_it_when_it_subscribes(bench: Bench010) -> None:
    """As JMS clients do: the queue is declared without it, and is the session's alone."""
    mine = bench.opened()
    mine.do(c.QueueDeclare("sub", exclusive=True, arguments={"no-local": False}))
    mine.do(c.ExchangeBind("sub", "amq.topic", "news"))
    mine.subscribe("sub", arguments={"x-qpid-no-local": True})
    mine.send("news", b"my own", exchange="amq.topic")
    publisher(bench).send("news", b"another's", exchange="amq.topic")
    assert mine.bodies == [b"another's"]


def test_of_a_queue_of_many_a_subscriber_does_not_keep_out_what_others_wait_for(
    bench: Bench010,
) -> None:
    mine = bench.opened()
    mine.subscribe("q", arguments={"x-qpid-no-local": True})
    mine.send("q", b"my own")
    assert mine.bodies == [b"my own"]


def test_a_queue_that_nobody_has_alone_keeps_out_nobody(bench: Bench010) -> None:
    mine = subscriber(bench, exclusive=False)
    mine.send("news", b"my own", exchange="amq.topic")
    assert mine.bodies == [b"my own"]


@pytest.mark.parametrize("is_distributed", [False, True])
def test_within_a_transaction_too(bench: Bench010, *, is_distributed: bool) -> None:
    mine = subscriber(bench)
    if is_distributed:
        mine.do(c.DtxSelect())
        mine.do(c.DtxStart(XID))
    else:
        mine.do(c.TxSelect())
    mine.send("news", b"my own", exchange="amq.topic")
    if is_distributed:
        mine.do(c.DtxEnd(XID))
        mine.do(c.DtxCommit(XID, one_phase=True))
    else:
        mine.do(c.TxCommit())
    assert mine.sync()
    assert mine.bodies == []
    assert len(bench.broker.queues["sub"]) == 0


def test_others_that_the_message_is_for_get_it(bench: Bench010) -> None:
    mine = subscriber(bench)
    mine.do(c.ExchangeBind("q", "amq.topic", "news"))
    mine.send("news", b"my own", exchange="amq.topic")
    assert mine.bodies == []
    assert len(bench.broker.queues["q"]) == 1


def test_a_durable_subscription_is_declared_anew_by_whoever_has_it_next(bench: Bench010) -> None:
    """Meanwhile it is nobody's, and what is sent by whomever waits there."""
    mine = subscriber(bench, durable=True, auto_delete=False)
    mine.lose()
    other = publisher(bench)
    other.send("news", b"meanwhile", exchange="amq.topic")
    again = subscriber(bench, durable=True, auto_delete=False)
    again.send("news", b"my own", exchange="amq.topic")
    other.send("news", b"another's", exchange="amq.topic")
    assert again.bodies == [b"meanwhile", b"another's"]


def test_another_session_of_the_connection_is_local_too(bench: Bench010) -> None:
    mine = subscriber(bench)
    mine.do(c.ExchangeBind("q", "amq.topic", "news"))
    mine.say(SessionAttach(b"second"), 2)
    mine.say(c.MessageTransfer("amq.topic", 1, 0), 2, **content("news"))
    bench.run()
    assert mine.bodies == []
    assert len(bench.broker.queues["q"]) == 1
