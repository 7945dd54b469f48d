"""Transacted sessions of Qpid JMS: sent, received and both at once; committed or rolled back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.system.client_cases import Told, text
from tests.support.system.client_programs import Program, Programs, build, programs
from tests.support.system.clients import is_empty
from tests.support.system.processes import BrokerProcess, StartBroker

pytestmark = [pytest.mark.system, pytest.mark.slow]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    root = tmp_path_factory.mktemp("transactions") / "root"
    started = BrokerProcess(str(root), "--listen", "127.0.0.1:0", "--multicast=news.#")
    yield started
    started.terminate()


@pytest.fixture(scope="module")
def plain(broker: BrokerProcess) -> Iterator[Programs]:
    """Clients without transactions."""
    with programs(broker) as started:
        yield started


@pytest.fixture(scope="module")
def program() -> Iterator[Program]:
    build("jms")
    it = Program("jms")
    yield it
    it.end()


@pytest.fixture
def jms(broker: BrokerProcess, program: Program) -> Iterator[Program]:
    """All that it does is in a transaction."""
    program.connect(broker, transacted=True)
    yield program
    program.disconnect()


def message(name: str) -> Told:
    return {"header": {"durable": True}, "body": {"value": text(name)}}


def counts(messages: list[Told]) -> dict[str, int]:
    return {each["body"]["value"][1]: each["header"]["delivery_count"] for each in messages}


def test_what_is_sent_is_there_from_the_commit_on(
    broker: BrokerProcess, jms: Program, plain: Programs
) -> None:
    assert jms.send("sent", *map(message, "abc")) == ["accepted"] * 3
    assert is_empty(broker.url, "sent")
    assert jms.commit() == "committed"
    assert counts(plain["proton"].take("sent", 3)) == dict.fromkeys("abc", 0)


def test_what_is_sent_and_rolled_back_is_nowhere(broker: BrokerProcess, jms: Program) -> None:
    jms.send("undone", *map(message, "abc"))
    jms.rollback()
    jms.send("undone", message("d"))
    assert jms.commit() == "committed"
    assert counts(jms.receive("undone")) == {"d": 0}
    assert jms.commit() == "committed"
    assert is_empty(broker.url, "undone")


def test_what_is_received_and_rolled_back_comes_again_in_its_order(
    broker: BrokerProcess, jms: Program, plain: Programs
) -> None:
    plain["proton"].send("received", *map(message, "abc"))
    assert counts(jms.receive("received", 2)) == {"a": 0, "b": 0}
    jms.rollback()
    again = jms.wait(3)
    assert list(counts(again)) == ["a", "b", "c"]
    assert counts(again) == {"a": 1, "b": 1, "c": 0}
    assert jms.commit() == "committed"
    assert is_empty(broker.url, "received")


def test_a_client_that_fetches_ahead_gets_what_it_rolled_back_in_order(
    broker: BrokerProcess, program: Program, plain: Programs
) -> None:
    plain["proton"].send("ahead", *map(message, "abcdef"))
    program.connect(broker, transacted=True, prefetch=4)
    assert list(counts(program.receive("ahead", 2))) == ["a", "b"]
    program.rollback()
    assert counts(program.wait(6)) == {"a": 1, "b": 1, **dict.fromkeys("cdef", 0)}
    assert program.commit() == "committed"
    program.disconnect()
    assert is_empty(broker.url, "ahead")


def test_receiving_and_sending_are_one(
    broker: BrokerProcess, jms: Program, plain: Programs
) -> None:
    plain["proton"].send("in", message("a"))
    for end in (jms.rollback, jms.commit):
        assert list(counts(jms.receive("in"))) == ["a"]
        jms.send("out", message("b"))
        assert is_empty(broker.url, "out")
        end()
    assert is_empty(broker.url, "in")
    assert counts(plain["proton"].take("out")) == {"b": 0}
    assert is_empty(broker.url, "out")


def test_a_client_that_leaves_has_done_nothing(
    broker: BrokerProcess, program: Program, plain: Programs
) -> None:
    plain["proton"].send("left", message("a"))
    program.connect(broker, transacted=True)
    program.receive("left")
    program.send("left", message("b"))
    program.disconnect()
    assert counts(plain["proton"].take("left")) == {"a": 1}
    assert is_empty(broker.url, "left")


def test_a_message_that_was_refused_undoes_the_others(broker: BrokerProcess, jms: Program) -> None:
    jms.send("kept", message("a"))
    jms.send("amq.topic/nobody", message("b"))
    refused = jms.commit()  # Qpid JMS 2.7 has this condition for in doubt: a kind of rolled back
    assert refused.startswith("JmsTransactionInDoubtException a message was refused")
    assert "[condition = amqp:transaction:rollback]" in refused
    assert is_empty(broker.url, "kept")
    jms.send("kept", message("c"))
    assert jms.commit() == "committed"
    assert counts(jms.receive("kept")) == {"c": 0}


def test_a_large_message_is_committed_with_the_others(
    broker: BrokerProcess, jms: Program, plain: Programs
) -> None:
    large = {"header": {"durable": True}, "body": {"data": ["ab" * (3 << 20)]}}
    for end in (jms.rollback, jms.commit):
        jms.send("large", message("before"), large, message("after"))
        end()
    before, found, after = plain["proton"].take("large", 3)
    assert found["body"] == large["body"]
    assert list(counts([before, after])) == ["before", "after"]
    assert is_empty(broker.url, "large")


def test_a_topic_gets_what_is_committed(
    broker: BrokerProcess, jms: Program, plain: Programs
) -> None:
    plain["rhea"].open("news.today")
    jms.send("topic:news.today", message("a"))
    jms.rollback()
    jms.send("topic:news.today", message("b"))
    assert jms.commit() == "committed"
    assert counts(plain["rhea"].wait()) == {"b": 0}
    plain["rhea"].settle("accept")
    assert broker.is_running


def test_what_a_durable_subscriber_had_not_committed_comes_again_after_a_kill(
    start_broker: StartBroker, program: Program, tmp_path: Path
) -> None:
    arguments = ("--multicast=feed", str(tmp_path / "root"))

    def subscribe(broker: BrokerProcess) -> None:
        program.connect(broker, transacted=True, client_id="reader")
        program.open("topic:feed", subscription="all")

    broker = start_broker(*arguments)
    subscribe(broker)
    with programs(broker) as plain:
        plain["proton"].send("feed", *map(message, "abcd"))
    assert list(counts(program.wait(2))) == ["a", "b"]
    assert program.commit() == "committed"
    assert list(counts(program.wait(1))) == ["c"]
    broker.kill()
    program.disconnect()
    broker = start_broker(*arguments)
    subscribe(broker)
    assert counts(program.wait(2)) == {"c": 1, "d": 0}
    program.rollback()
    assert counts(program.wait(2)) == {"c": 2, "d": 1}
    assert program.commit() == "committed"
    broker.kill()
    program.disconnect()
    broker = start_broker(*arguments)
    subscribe(broker)
    with programs(broker) as plain:
        plain["proton"].send("feed", message("e"))
    assert counts(program.wait(1)) == {"e": 0}
    assert program.commit() == "committed"
    program.disconnect()
