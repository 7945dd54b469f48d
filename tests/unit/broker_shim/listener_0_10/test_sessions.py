"""AMQP 0-10 as its clients see it: connections, sessions, messages in and out, wiring."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from broker_shim.amqp_0_10.commands import (
    ExchangeBind,
    ExchangeBound,
    ExchangeDeclare,
    ExchangeQuery,
    ExecutionException,
    ExecutionResult,
    ExecutionSync,
    FileQos,
    MessageAccept,
    MessageAcquire,
    MessageCancel,
    MessageFlow,
    MessageFlush,
    MessageReject,
    MessageRelease,
    MessageResume,
    MessageSetFlowMode,
    MessageStop,
    MessageSubscribe,
    MessageTransfer,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    QueueQuery,
    TxCommit,
    TxRollback,
    TxSelect,
)
from broker_shim.amqp_0_10.controls import (
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionHeartbeat,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    SessionAttach,
    SessionAttached,
    SessionCommandPoint,
    SessionCompleted,
    SessionDetach,
    SessionDetached,
    SessionFlush,
    SessionKnownCompleted,
    SessionRequestTimeout,
    SessionTimeout,
)
from broker_shim.amqp_0_10.structs import ExchangeBoundResult
from broker_shim.broker.settings import BrokerSettings
from broker_shim.framing.frames import ALONE, PROTOCOL_HEADER, Frame
from broker_shim.serve.administration.connection_orders import ConnectionOrders
from tests.support.amqp.amqp_0_10 import INFINITE, Bench010, Client010, content


@pytest.fixture
def bench() -> Iterator[Bench010]:
    it = Bench010()
    yield it
    it.close()


def refusal(client: Client010) -> tuple[int, str]:
    """Code and description of the one exception; the session is detached after it."""
    (told,) = client.of(ExecutionException)
    assert isinstance(client.told[-1], SessionDetached)
    return int(told.error_code), told.description or ""


def test_a_connection_is_opened_and_closed(bench: Bench010) -> None:
    client = bench.client()
    client.open()
    assert [type(each) for each in client.told] == [
        ConnectionStart,
        ConnectionTune,
        ConnectionOpenOk,
    ]
    assert client.told[0].mechanisms == ("ANONYMOUS",)
    assert client.connection.is_open
    client.say(ConnectionHeartbeat(), 0)
    client.say(ConnectionClose(200, "bye"), 0)
    bench.run()
    assert isinstance(client.told[-1], ConnectionCloseOk)
    assert client.connection.is_over


def test_a_connection_tells_what_its_client_is(bench: Bench010) -> None:
    """A product that is no text is left out."""
    for properties, product in (
        ({"product": "qpid", "version": "1.2"}, "qpid 1.2"),
        ({"product": 7, "version": "x" * 999}, "x" * 200),
        ({}, None),
    ):
        client = bench.client()
        client.write(PROTOCOL_HEADER)
        client.say(ConnectionStartOk(properties, "ANONYMOUS", b"", "en_US"), 0)
        client.say(ConnectionTuneOk(200, 65_535, 30), 0)
        client.say(ConnectionOpen(""), 0)
        bench.run()
        client.attach(str(product).encode())
        facts = client.connection.client
        assert (facts.product, facts.protocol) == (product, "AMQP 0-10")
        assert (facts.sessions, facts.heartbeat_s) == (1, 30)
        assert min(facts.received_bytes, facts.sent_bytes) > 30


def test_a_connection_tells_of_each_subscription_what_it_takes_and_holds(bench: Bench010) -> None:
    client = bench.opened()
    client.send("q", b"1")
    client.say(MessageSubscribe("q", "d", 0, 0))
    client.say(MessageSubscribe("q", "settled", 1, 0))
    client.say(MessageFlow("d", 1, INFINITE))
    client.do(MessageFlow("d", 0, 3))
    facts = [*client.connection.link_facts]
    assert facts == [
        ("d", "receiver", "q", 2, 1, "sender unsettled, receiver first"),
        ("settled", "receiver", "q", 0, 0, "sender settled, receiver first"),
    ]
    assert client.connection.link_count == 2
    answers: list[str] = []
    orders = ConnectionOrders(lambda: [client.connection], lambda *_, **__: None)
    orders.answer(f'{{"links": {client.connection.number}, "limit": 1}}', answers.append)
    assert json.loads(answers[0]) == {"links": {"rows": [facts[0]._asdict()], "left_out": 1}}


def test_another_protocol_is_told_what_is_spoken(bench: Bench010) -> None:
    client = bench.client()
    client.connection.receive(b"AMQP\x00\x01")
    assert client.connection.output() == PROTOCOL_HEADER
    assert client.connection.is_over


def test_a_header_may_come_byte_by_byte(bench: Bench010) -> None:
    client = bench.client()
    for at in range(8):
        client.connection.receive(PROTOCOL_HEADER[at : at + 1])
    assert client.connection.output().startswith(PROTOCOL_HEADER)


def test_a_mechanism_that_was_not_offered_is_refused(bench: Bench010) -> None:
    client = bench.client()
    client.open("PLAIN", b"\0guest\0guest")
    (close,) = client.of(ConnectionClose)
    assert close.reply_text == "authentication failed"
    assert not client.connection.is_open


def test_controls_out_of_order_close_the_connection_with_a_framing_error(bench: Bench010) -> None:
    client = bench.client()
    client.write(PROTOCOL_HEADER)
    client.say(ConnectionOpen(""), 0)
    bench.run()
    (close,) = client.of(ConnectionClose)
    assert (close.reply_code, close.reply_text) == (
        501,
        "connection.open where start-ok was expected",
    )


def test_a_session_is_attached_and_detached(bench: Bench010) -> None:
    client = bench.opened()
    client.do(SessionRequestTimeout(0))
    client.do(SessionDetach(b"session"))
    assert client.told[3:] == [
        SessionAttached(b"session"),
        SessionTimeout(0),
        SessionDetached(b"session", 0),
    ]
    client.do(SessionFlush(completed=True))
    assert client.told[-1] == SessionDetached(b"", 3)


def test_a_name_is_attached_once_unless_by_force(bench: Bench010) -> None:
    first, second = bench.opened(), bench.client()
    second.open()
    second.attach()
    assert second.told[-1] == SessionDetached(b"session", 1)
    second.do(SessionAttach(b"session", force=True))
    assert second.told[-1] == SessionAttached(b"session")
    assert first.told[-1] == SessionDetached(b"session", 1)


def test_a_message_is_complete_when_the_store_has_it_and_not_before(bench: Bench010) -> None:
    client = bench.opened()
    number = client.say(MessageTransfer("", 1, 0), **content("q"), sync=True)
    bench.step()
    assert not client.is_complete(number)
    bench.run()
    assert client.is_complete(number)
    assert len(bench.broker.queues["q"]) == 1


def test_a_sync_waits_for_all_before_it(bench: Bench010) -> None:
    client = bench.opened()
    client.say(MessageTransfer("", 1, 0), **content("q"))
    sync = client.say(ExecutionSync(), sync=True)
    bench.step()
    assert not client.is_complete(sync)
    bench.run()
    assert client.completed == ((0, 1),)


def test_a_sync_that_waits_for_wiring_is_told_when_the_store_has_that(bench: Bench010) -> None:
    client = bench.opened()
    client.say(QueueDeclare("new"))
    sync = client.say(ExecutionSync())
    bench.step()
    assert not client.is_complete(sync)
    bench.run()
    assert client.is_complete(sync)


def test_what_is_complete_is_told_on_a_flush_until_it_is_known(bench: Bench010) -> None:
    client = bench.opened()
    client.send("q")
    assert client.of(SessionCompleted) == []
    client.do(SessionFlush(completed=True))
    assert client.completed == ((0, 0),)
    client.do(SessionKnownCompleted(((0, 0),)))
    client.send("q")
    client.do(SessionFlush(completed=True))
    assert client.completed == ((1, 1),)


def test_a_message_is_delivered_as_it_came_and_accepted(bench: Bench010) -> None:
    client = bench.opened()
    client.subscribe("q")
    headers = {"text": "x", "number": 1}
    client.send("q", b"hello", delivery_mode=2, application_headers=headers, app_id=b"app")
    ((transfer, number, header, body),) = client.received
    assert (transfer.destination, body, header.delivery.delivery_mode) == ("d", b"hello", 2)
    assert (header.message.application_headers, header.message.app_id) == (headers, b"app")
    assert not header.delivery.redelivered
    accept = client.do(MessageAccept(((number, number),)), sync=True)
    assert client.is_complete(accept)
    assert len(bench.broker.queues["q"]) == 0


def test_an_accept_is_complete_when_it_is_durable(bench: Bench010) -> None:
    client = bench.opened()
    client.subscribe("q")
    client.send("q")
    accept = client.say(MessageAccept(((0, 0),)), sync=True)
    bench.step()
    assert not client.is_complete(accept)
    bench.run()
    assert client.is_complete(accept)


def test_the_first_command_of_ours_comes_after_a_command_point(bench: Bench010) -> None:
    client = bench.opened()
    client.subscribe("q")
    client.send("q")
    kinds = [type(each) for each in client.told]
    assert kinds.index(SessionCommandPoint) < kinds.index(MessageTransfer)


@pytest.mark.parametrize("redelivered", [False, True])
def test_a_released_message_comes_again_and_says_so_if_it_was_delivered(
    bench: Bench010, *, redelivered: bool
) -> None:
    client = bench.opened()
    client.subscribe("q")
    client.send("q")
    client.do(MessageRelease(((0, 0),), set_redelivered=redelivered))
    assert client.bodies == [b"body", b"body"]
    assert client.received[1][2].delivery.redelivered is redelivered


def test_a_rejected_message_leaves_its_queue(bench: Bench010) -> None:
    client = bench.opened()
    client.subscribe("q")
    client.send("q")
    client.do(MessageReject(((0, 0),), 0, "not mine"))
    assert len(bench.broker.queues["q"]) == 0


def test_a_subscriber_without_accepts_has_what_it_was_sent(bench: Bench010) -> None:
    client = bench.opened()
    client.subscribe("q", accept_mode=1)
    client.send("q")
    assert client.bodies == [b"body"]
    assert len(bench.broker.queues["q"]) == 0


def test_a_browser_takes_nothing_and_may_acquire_what_it_saw(bench: Bench010) -> None:
    client, other = bench.opened(), bench.client()
    client.send("q", b"1")
    client.send("q", b"2")
    client.subscribe("q", acquire_mode=1)
    assert client.bodies == [b"1", b"2"]
    acquire = client.do(MessageAcquire(((client.numbers[0], client.numbers[0]),)))
    result = client.of(ExecutionResult)[-1]
    assert (result.command_id, result.value.transfers) == (acquire, ((0, 0),))
    other.open()
    other.attach(b"other")
    other.subscribe("q")
    assert other.bodies == [b"2"]
    client.do(MessageAccept(((0, 0),)))
    assert len(bench.broker.queues["q"]) == 1


def test_credit_is_used_up_and_a_window_moves_on(bench: Bench010) -> None:
    client = bench.opened()
    for each in b"12345":
        client.send("q", bytes((each,)))
    client.say(MessageSubscribe("q", "d", 0, 0))
    client.say(MessageSetFlowMode("d", 1))
    client.say(MessageFlow("d", 1, INFINITE))
    client.do(MessageFlow("d", 0, 2))
    assert client.bodies == [b"1", b"2"]
    client.do(SessionCompleted(((client.numbers[0], client.numbers[0]),)))
    assert client.bodies == [b"1", b"2", b"3"]
    client.do(MessageStop("d"))
    client.do(SessionCompleted(((0, 2),)))
    assert len(client.bodies) == 3
    client.say(MessageSetFlowMode("d", 0))
    client.say(MessageFlow("d", 1, INFINITE))
    client.do(MessageFlow("d", 0, 1))
    client.do(SessionCompleted(((0, 3),), timely_reply=True))
    assert client.told[-1] == SessionKnownCompleted(((0, 3),))
    assert client.bodies == [b"1", b"2", b"3", b"4"]


def test_a_flush_is_complete_when_there_is_nothing_more(bench: Bench010) -> None:
    client = bench.opened()
    client.send("q")
    client.subscribe("q", accept_mode=0)
    flush = client.do(MessageFlush("d"), sync=True)
    assert client.is_complete(flush)
    client.send("q", b"later")
    assert client.bodies == [b"body"]


def test_a_selector_chooses(bench: Bench010) -> None:
    client = bench.opened()
    client.subscribe("q", arguments={"x-filter-jms-selector": "colour = 'red'"})
    client.send("q", b"blue", application_headers={"colour": "blue"})
    client.send("q", b"red", application_headers={"colour": "red"})
    assert client.bodies == [b"red"]


def test_what_a_lost_client_held_comes_to_another_as_redelivered(bench: Bench010) -> None:
    client, other = bench.opened(), bench.client()
    client.subscribe("q")
    client.send("q")
    client.connection.receive(b"")
    other.open()
    other.attach()
    other.subscribe("q")
    assert other.received[0][2].delivery.redelivered


def test_a_cancelled_subscriber_gets_no_more_and_still_accepts(bench: Bench010) -> None:
    client = bench.opened()
    client.subscribe("q")
    client.send("q")
    client.do(MessageCancel("d"))
    client.send("q")
    assert len(client.bodies) == 1
    client.do(MessageAccept(((0, 0),)))
    assert len(bench.broker.queues["q"]) == 1


def test_queues_and_exchanges_are_declared_bound_and_asked_about(bench: Bench010) -> None:
    client = bench.opened()
    client.do(QueueDeclare("new", durable=True))
    client.do(QueueDeclare("new", passive=True))
    client.do(ExchangeDeclare("news", "topic", durable=True))
    client.do(ExchangeDeclare("amq.direct", "direct", passive=True))
    client.do(ExchangeBind("new", "news", "sport.#"))
    client.send("sport.skiing", b"snow", exchange="news")
    client.do(QueueQuery("new"))
    client.do(QueueQuery("no such queue"))
    client.do(ExchangeQuery("news"))
    client.do(ExchangeQuery("no such exchange"))
    told = [each.value for each in client.of(ExecutionResult)]
    assert (told[0].queue, told[0].durable, told[0].message_count) == ("new", True, 1)
    assert told[1].queue is None
    assert (told[2].type, told[3].not_found) == ("topic", True)
    client.do(QueuePurge("new"))
    assert len(bench.broker.queues["new"]) == 0
    client.do(QueueDelete("new"))
    assert "new" not in bench.broker.queues
    assert client.of(ExecutionException) == []


def test_commands_may_build_on_wiring_that_is_not_complete_yet(bench: Bench010) -> None:
    client = bench.opened()
    client.say(QueueDeclare("new"))
    client.say(ExchangeDeclare("news", "topic"))
    client.say(ExchangeBind("new", "news", "#"))
    client.say(MessageTransfer("news", 1, 0), **content("k"))
    client.say(MessageSubscribe("new", "d", 0, 0))
    client.say(MessageFlow("d", 1, INFINITE))
    client.do(MessageFlow("d", 0, 1))
    assert client.bodies == [b"body"]
    assert client.of(ExecutionException) == []
    client.say(QueueDeclare("another"))
    client.do(MessageCancel("none"))
    assert refusal(client)[0] == 404


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (ExchangeBound("amq.topic", "q", "k"), ExchangeBoundResult()),
        (ExchangeBound("amq.topic", "q", "z"), ExchangeBoundResult(key_not_matched=True)),
        (ExchangeBound(None, "q", None), ExchangeBoundResult()),
        (
            ExchangeBound("nowhere", "q"),
            ExchangeBoundResult(exchange_not_found=True),
        ),
        (
            ExchangeBound("amq.topic", "none"),
            ExchangeBoundResult(queue_not_found=True),
        ),
        (
            ExchangeBound("amq.direct", "q"),
            ExchangeBoundResult(queue_not_matched=True),
        ),
    ],
)
def test_what_is_bound_is_told(
    bench: Bench010, asked: ExchangeBound, told: ExchangeBoundResult
) -> None:
    client = bench.opened()
    client.do(ExchangeBind("q", "amq.topic", "k"))
    client.do(asked)
    assert client.of(ExecutionResult)[0].value == told


def test_a_queue_of_a_session_alone_goes_with_it(bench: Bench010) -> None:
    client, other = bench.opened(), bench.client()
    client.do(QueueDeclare("mine", exclusive=True, auto_delete=True))
    other.open()
    other.attach(b"other")
    other.do(QueueDeclare("mine"))
    assert refusal(other)[0] == 405
    client.do(SessionDetach(b"session"))
    assert "mine" not in bench.broker.queues


def test_a_queue_that_deletes_itself_goes_with_its_last_subscriber(bench: Bench010) -> None:
    client = bench.opened()
    client.do(QueueDeclare("brief", auto_delete=True))
    client.subscribe("brief", "a")
    client.subscribe("brief", "b")
    client.do(MessageCancel("a"))
    assert "brief" in bench.broker.queues
    client.do(MessageCancel("b"))
    assert "brief" not in bench.broker.queues


def test_a_transaction_is_all_or_nothing(bench: Bench010) -> None:
    client = bench.opened()
    client.send("q", b"old")
    client.do(TxSelect())
    client.subscribe("q")
    client.send("q", b"new")
    client.do(MessageAccept(((client.numbers[0], client.numbers[0]),)))
    assert client.bodies == [b"old"]
    commit = client.say(TxCommit(), sync=True)
    bench.step()
    assert not client.is_complete(commit)
    bench.run()
    assert client.is_complete(commit)
    assert client.bodies == [b"old", b"new"]
    assert len(bench.broker.queues["q"]) == 1


def test_what_is_rolled_back_is_the_clients_to_decide_again(bench: Bench010) -> None:
    client = bench.opened()
    client.send("q", b"old")
    client.do(TxSelect())
    client.subscribe("q")
    client.send("q", b"new")
    client.do(MessageAccept(((0, 0),)))
    client.do(TxRollback(), sync=True)
    assert client.bodies == [b"old"]
    client.do(MessageRelease(((0, 0),), set_redelivered=True))
    assert client.bodies == [b"old", b"old"]


def test_what_a_client_had_in_a_transaction_is_given_back_when_it_is_lost(bench: Bench010) -> None:
    client = bench.opened()
    client.send("q")
    client.do(TxSelect())
    client.subscribe("q")
    client.do(MessageAccept(((0, 0),)))
    client.connection.receive(b"")
    bench.run()
    assert bench.broker.queues["q"].held_count == 0
    assert len(bench.broker.queues["q"]) == 1


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        (MessageSubscribe("none", "d", 0, 0), 404, "no queue"),
        (MessageSubscribe("", "d", 0, 0), 542, "needs a name"),
        (MessageSubscribe("a::b::c", "d", 0, 0), 531, "more than one"),
        (
            MessageSubscribe("q", "d", 0, 0, arguments={"x-filter-jms-selector": "a ="}),
            531,
            "selector",
        ),
        (MessageFlow("none", 0, 1), 404, "no subscriber"),
        (MessageCancel("none"), 404, "no subscriber"),
        (MessageAccept(((5, 3),)), 531, "run backwards"),
        (MessageAccept(((1, 3), (2, 4))), 531, "overlap"),
        (MessageResume("d", "id"), 540, "not served"),
        (FileQos(), 540, "not served"),
        (QueueDeclare("none", passive=True), 404, "no queue"),
        (QueueDeclare("amq.mine"), 530, "amq."),
        (QueueDeclare("temporary-x"), 530, "broker's"),
        (QueueDelete("none"), 404, "no queue"),
        (QueuePurge("none"), 404, "no queue"),
        (ExchangeDeclare("x", "no such type"), 404, "is not one of"),
        (ExchangeDeclare("amq.topic", "direct"), 530, "is of type"),
        (ExchangeDeclare("", "direct"), 542, "needs a name"),
        (ExchangeDeclare("amq.x", "direct"), 530, "broker's"),
        (ExchangeDeclare("x", "direct", passive=True), 404, "no exchange"),
        (ExchangeBind("q", "none", "k"), 404, "no exchange"),
        (ExchangeBind("none", "amq.topic", "k"), 404, "no queue"),
        (TxCommit(), 409, "before tx.select"),
        (TxRollback(), 409, "before tx.select"),
    ],
)
def test_a_command_that_cannot_be_done_ends_its_session_and_no_other(
    bench: Bench010, command: object, code: int, says: str
) -> None:
    client, other = bench.opened(), bench.client()
    other.open()
    other.attach(b"other")
    client.do(command)
    told = refusal(client)
    assert told[0] == code
    assert says in told[1]
    assert other.sync()
    client.attach(b"again")
    client.next_id = 0
    assert client.sync()


def test_an_unroutable_message_is_told_rejected_or_dropped_as_its_sender_asked(
    bench: Bench010,
) -> None:
    client = bench.opened()
    dropped = client.send("nowhere", discard_unroutable=True)
    client.do(MessageTransfer("amq.topic", 0, 0), **content("nobody"))
    assert client.of(MessageReject)[0].code == 1
    assert client.sync()
    assert client.is_complete(dropped)
    client.send("nowhere")
    assert refusal(client)[0] == 404


def test_an_exchange_that_there_is_not_takes_no_message(bench: Bench010) -> None:
    client = bench.opened()
    client.send("k", exchange="none")
    assert refusal(client)[0] == 404


@pytest.mark.parametrize(
    "control",
    [
        SessionCompleted(((0, 9),)),
        SessionCompleted(((3, 1),)),
        SessionKnownCompleted(((1, 2), (2, 3))),
        SessionCommandPoint(7, 1),
    ],
)
def test_ranges_that_cannot_be_end_the_session(bench: Bench010, control: object) -> None:
    client = bench.opened()
    client.do(control)
    assert client.told[-1] == SessionDetached(b"session", 4)


def test_a_second_attach_on_a_channel_is_refused_and_the_first_goes_on(bench: Bench010) -> None:
    client = bench.opened()
    client.do(SessionAttach(b"another"))
    assert client.told[-1] == SessionDetached(b"another", 2)
    assert client.sync()


def test_a_session_of_another_user_of_the_same_name_is_another_session(bench: Bench010) -> None:
    first, second = bench.opened(), bench.client()
    second.open()
    second.connection.login.principal = type(second.connection.login.principal)("bob")
    second.attach()
    assert second.told[-1] == SessionAttached(b"session")
    assert first.sync()


def test_a_session_name_may_be_as_long_as_it_can(bench: Bench010) -> None:
    client = bench.client()
    client.open()
    client.attach(b"n" * 65_535)
    client.subscribe("q")
    client.send("q")
    assert client.bodies == [b"body"]


def test_what_sessions_hold_is_told_apart_however_late_their_names_differ(bench: Bench010) -> None:
    """A service gives back what is held by a holder's name: two holders of one name are one."""
    names = [b"n" * 64, b"n" * 65, b"n" * 65_534, b"n" * 65_534 + b"a", b"n" * 65_534 + b"b"]
    for name in names:
        client = bench.client()
        client.open()
        client.attach(name)
    holders = {session.holder for session in bench.host._sessions.values()}
    assert len(holders) == len(names)
    assert max(map(len, holders)) < 200


def test_a_channel_beyond_what_was_agreed_closes_the_connection() -> None:
    bench = Bench010(settings=BrokerSettings(max_sessions=201))
    client = bench.client()
    client.open()
    client.say(SessionAttach(b"x"), 65_535)
    bench.run()
    assert client.of(ConnectionClose)[0].reply_code == 501
    bench.close()


def test_an_unknown_command_ends_the_session_and_an_unknown_control_the_connection(
    bench: Bench010,
) -> None:
    client = bench.opened()
    client.write(Frame(1, ALONE, 1, b"\x04\xee\x01\x00").encoded)
    bench.run()
    assert refusal(client)[0] == 503
    client.write(Frame(0, ALONE, 1, b"\x02\xee").encoded)
    bench.run()
    assert client.of(ConnectionClose)[0].reply_code == 501


def test_a_message_that_is_too_large_ends_its_session_and_not_the_connection() -> None:
    settings = BrokerSettings(max_message_bytes=10_000, max_header_bytes=1_024)
    bench = Bench010(settings=settings)
    client = bench.opened()
    client.send("q", bytes(30_000))
    assert refusal(client)[0] == 506
    client.attach(b"again")
    client.next_id = 0
    client.send("q", bytes(5_000))
    assert client.sync()
    assert len(bench.broker.queues["q"]) == 1
    bench.close()


def test_a_peer_that_does_not_open_is_hung_up_on(bench: Bench010) -> None:
    client = bench.client()
    client.connection.tick(1e12)
    assert client.connection.is_over
