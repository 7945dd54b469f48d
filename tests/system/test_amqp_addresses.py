"""Queues on addresses (ARTEMIS-1093) over real sockets: full and short names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from proton import Link, Message, symbol
from proton.reactor import Copy, LinkOption
from proton.utils import LinkDetached

from sparkstore.cli.command_line import main
from tests.support.system.clients import TIMEOUT_S, Pipelined, connected, is_empty, send, take
from tests.support.system.processes import BrokerProcess, StartBroker

pytestmark = [pytest.mark.system, pytest.mark.slow]

QUEUES = ["--queue=address1::q1", "--queue=address1::q2", "--queue=address2::q1"]
Q1 = ("address1::q1", "address2::q1")


class JmsQueue(LinkOption):
    """What Qpid JMS asks for with `createQueue(name)`: it tells that it means a queue."""

    def apply(self, link: Link) -> None:
        """Say so on whichever end is ours to describe."""
        terminus = link.target if link.is_sender else link.source
        terminus.capabilities.put_symbol(symbol("queue"))


@pytest.fixture
def document(start_broker: StartBroker) -> BrokerProcess:
    """The three queues of ARTEMIS-1093, on multicast addresses."""
    return start_broker("--memory", *QUEUES, "--multicast=address1", "--multicast=address2")


def ids(messages: list[Message]) -> list[object]:
    return [message.id for message in messages]


def refusal(url: str, name: str) -> str:
    """Why the broker serves neither a sender nor a receiver of this name: the same for both."""
    said = []
    with connected(url) as connection:
        for attach in (connection.create_sender, connection.create_receiver):
            with pytest.raises(LinkDetached) as refused:
                attach(name)
            said.append(refused.value.condition)
    assert said[0] == said[1]
    return str(said[0])


def test_scenario_1_a_unique_short_name_is_sent_to_and_received_from(
    document: BrokerProcess,
) -> None:
    send(document.url, "q2", Message(id=1))
    assert ids(take(document.url, "address1::q2", 1)) == [1]
    send(document.url, "address1::q2", Message(id=2))
    assert ids(take(document.url, "q2", 1)) == [2]
    assert all(is_empty(document.url, name) for name in Q1)


def test_scenario_2_a_full_name_is_one_queue_and_no_other(document: BrokerProcess) -> None:
    send(document.url, "address2::q1", Message(id=1))
    assert is_empty(document.url, "address1::q1")
    assert ids(take(document.url, "address2::q1", 1)) == [1]


def test_scenario_3_an_ambiguous_name_is_not_found_and_the_log_names_the_candidates(
    document: BrokerProcess,
) -> None:
    assert "amqp:not-found" in refusal(document.url, "q1")
    sender = Pipelined(document.url, "", [Message(id=1, address="q1")]).run()
    assert (sender.accepted, sender.refused) == ([], [(1, "amqp:not-found")])
    assert all(is_empty(document.url, name) for name in Q1)
    document.terminate()
    (warning, *_) = [line for line in document.log.splitlines() if "ambiguous" in line]
    assert "WARNING" in warning
    assert all(name in warning for name in ("'q1'", "'address1::q1'", "'address2::q1'"))


def test_a_jms_queue_of_a_full_name_is_sent_to_received_from_and_browsed(
    document: BrokerProcess,
) -> None:
    with connected(document.url) as connection:
        connection.create_sender("address1::q1", options=JmsQueue()).send(Message(id=1))
        browser = connection.create_receiver("address1::q1", options=[Copy(), JmsQueue()])
        assert browser.receive(timeout=TIMEOUT_S).id == 1
        receiver = connection.create_receiver("address1::q1", options=JmsQueue(), name="taker")
        assert receiver.receive(timeout=TIMEOUT_S).id == 1
        receiver.accept()
    assert all(is_empty(document.url, name) for name in Q1)


def test_the_to_of_a_message_may_be_a_full_or_a_unique_short_name(document: BrokerProcess) -> None:
    messages = [Message(id=n, address=to) for n, to in enumerate(["address2::q1", "q2"])]
    assert Pipelined(document.url, "", messages).run().accepted == [0, 1]
    assert ids(take(document.url, "address2::q1", 1)) == [0]
    assert ids(take(document.url, "address1::q2", 1)) == [1]


@pytest.mark.parametrize("to", ["::q1", "a::b::c", "q1"])
def test_a_message_whose_to_can_name_no_queue_is_refused_and_never_dropped(
    document: BrokerProcess, to: str
) -> None:
    """`q1` is on several addresses; the others are no names."""
    sender = Pipelined(document.url, "", [Message(id=1, address=to)]).run()
    condition = "amqp:not-found" if to == "q1" else "amqp:invalid-field"
    assert (sender.accepted, sender.refused) == ([], [(1, condition)])


@pytest.mark.parametrize("to", ["address1::q3", "address3::q1", "nothing"])
def test_the_to_of_a_message_has_its_queue_created_as_an_attach_to_it_would(
    document: BrokerProcess, to: str
) -> None:
    sender = Pipelined(document.url, "", [Message(id=1, address=to)]).run()
    assert (sender.accepted, sender.refused) == ([1], [])
    assert ids(take(document.url, to, 1)) == [1]


def test_without_auto_create_the_wrong_address_or_queue_is_not_found(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    settings = tmp_path / "sparkstore.toml"
    settings.write_text('[broker]\nauto_create = false\nqueues = [{name = "address1::q1"}]\n')
    broker = start_broker("--memory", "--config", str(settings))
    for name in ("address2::q1", "address1::nosuch", "nosuch"):
        assert "amqp:not-found" in refusal(broker.url, name)
    send(broker.url, "q1", Message(id=1))
    assert ids(take(broker.url, "address1::q1", 1)) == [1]


@pytest.mark.parametrize(
    "name", ["::q1", "address1::", "::", "a::b::c", "a:::b", "x" * 6_000 + "::" + "::y"]
)
def test_a_malformed_name_is_refused_in_one_line_and_the_connection_lives(
    document: BrokerProcess, name: str
) -> None:
    with connected(document.url) as connection:
        with pytest.raises(LinkDetached) as refused:
            connection.create_sender(name)
        assert "say address::queue" in str(refused.value)
        connection.create_sender("address1::q1", name="another").send(Message(id=1))
    assert "invalid-field" in refusal(document.url, name)


def test_a_name_of_ten_thousand_characters_is_served_and_a_longer_one_refused(
    broker: BrokerProcess,
) -> None:
    longest = "a" * 4_999 + "::" + "q" * 4_999
    send(broker.url, longest, Message(id=1))
    assert ids(take(broker.url, longest, 1)) == [1]
    with connected(broker.url) as connection, pytest.raises(LinkDetached, match="10000 characters"):
        connection.create_sender(longest + "q")


def test_what_is_sent_to_a_multicast_address_goes_to_all_its_queues_and_subscriptions(
    document: BrokerProcess,
) -> None:
    with connected(document.url) as connection:
        subscriptions = [connection.create_receiver("address1", name=name) for name in "ab"]
        send(document.url, "address1", Message(id=1))
        assert [each.receive(timeout=TIMEOUT_S).id for each in subscriptions] == [1, 1]
    assert [ids(take(document.url, f"address1::{queue}", 1)) for queue in ("q1", "q2")] == [[1]] * 2
    assert is_empty(document.url, "address2::q1")


def test_a_multicast_address_with_no_queue_refuses_what_is_sent_to_it(
    start_broker: StartBroker,
) -> None:
    broker = start_broker("--memory", "--multicast=prices.#")
    assert Pipelined(broker.url, "prices.eu", [Message(id=1)]).run().refused == [
        (1, "amqp:not-found")
    ]
    with connected(broker.url) as connection:
        subscription = connection.create_receiver("prices.eu")
        assert Pipelined(broker.url, "prices.eu", [Message(id=2)]).run().accepted == [2]
        assert subscription.receive(timeout=TIMEOUT_S).id == 2
    assert Pipelined(broker.url, "prices.eu", [Message(id=3)]).run().accepted == []


def test_consumers_of_one_full_name_on_a_multicast_address_compete(
    document: BrokerProcess,
) -> None:
    with connected(document.url) as one, connected(document.url) as two:
        receivers = [each.create_receiver("address1::q1", credit=2) for each in (one, two)]
        send(document.url, "address1", *(Message(id=number) for number in range(4)))
        got = [{each.receive(timeout=TIMEOUT_S).id for _ in range(2)} for each in receivers]
        assert got[0] | got[1] == {0, 1, 2, 3}
        for each in receivers:
            each.accept()
            each.accept()
    assert is_empty(document.url, "address1::q1")
    assert ids(take(document.url, "q2", 4)) == [0, 1, 2, 3]


def test_the_queues_of_an_anycast_address_take_turns_and_a_receiver_has_to_say_which(
    start_broker: StartBroker,
) -> None:
    broker = start_broker("--memory", "--queue=work::a", "--queue=work::b")
    send(broker.url, "work", *(Message(id=number) for number in range(4)))
    assert sorted(ids(take(broker.url, "work::a", 2)) + ids(take(broker.url, "work::b", 2))) == [
        *range(4)
    ]
    with connected(broker.url) as connection, pytest.raises(LinkDetached, match="not-found"):
        connection.create_receiver("work")


def test_a_queue_of_an_address_is_created_by_who_sends_to_it_or_receives_from_it(
    broker: BrokerProcess,
) -> None:
    send(broker.url, "auto.a::by-sender", Message(id=1))
    with connected(broker.url) as connection:
        receiver = connection.create_receiver("auto.a::by-receiver")
        send(broker.url, "auto.a::by-receiver", Message(id=2))
        assert receiver.receive(timeout=TIMEOUT_S).id == 2
        receiver.accept()
    assert ids(take(broker.url, "by-sender", 1)) == [1]
    assert is_empty(broker.url, "auto.a::by-receiver")


def test_settings_match_the_address_and_not_the_queue(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    """The reference broker matched its settings on the queue's name here, and refused."""
    settings = tmp_path / "sparkstore.toml"
    settings.write_text(
        "[broker]\nauto_create = false\naddresses = [\n"
        '  {match = "auto.#", auto_create = true, arguments = {message_ttl_ms = 0}},\n'
        '  {match = "#", arguments = {}},\n]\n'
    )
    broker = start_broker("--memory", "--config", str(settings))
    with connected(broker.url) as connection:
        connection.create_receiver("auto.d::dq1")
        for name in ("other::auto.x", "dq2"):
            with pytest.raises(LinkDetached, match="auto_create is off"):
                connection.create_receiver(name)
    send(broker.url, "auto.d::dq1", Message(id=1))
    assert is_empty(broker.url, "auto.d::dq1")  # its time to live is over at once


def test_a_plain_name_is_what_it_was_whoever_has_a_queue_of_that_name_elsewhere(
    broker: BrokerProcess,
) -> None:
    send(broker.url, "orders", Message(id=1))
    send(broker.url, "stranger::orders", Message(id=2))
    send(broker.url, "orders::stranger", Message(id=3))
    send(broker.url, "orders", Message(id=4))
    send(broker.url, "orders::orders", Message(id=5))
    assert ids(take(broker.url, "orders", 3)) == [1, 4, 5]
    assert ids(take(broker.url, "stranger::orders", 1)) == [2]
    assert ids(take(broker.url, "orders::stranger", 1)) == [3]


def test_an_exchange_may_be_bound_to_a_queue_by_its_full_or_short_name(
    start_broker: StartBroker,
) -> None:
    bindings = ["--bind=amq.topic:a:address1::q1", "--bind=amq.topic:a:q2"]
    broker = start_broker("--memory", *QUEUES, *bindings)
    send(broker.url, "amq.topic/a", Message(id=1))
    assert [ids(take(broker.url, f"address1::{name}", 1)) for name in ("q1", "q2")] == [[1], [1]]
    assert is_empty(broker.url, "address2::q1")


def test_a_binding_to_an_ambiguous_name_stops_the_start_with_the_candidates(
    start_broker: StartBroker,
) -> None:
    with pytest.raises(AssertionError, match=r"(?s)say one of 'address1::q1', 'address2::q1'"):
        start_broker("--memory", *QUEUES, "--bind=amq.fanout::q1")


def test_a_malformed_name_on_the_command_line_stops_the_start(start_broker: StartBroker) -> None:
    with pytest.raises(AssertionError, match="'a::b::c' has more than one"):
        start_broker("--memory", "--queue=a::b::c")


def test_two_queues_of_one_name_are_two_after_a_crash_and_for_the_command_line(
    start_broker: StartBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = str(tmp_path / "root")
    broker = start_broker(root, "--multicast=address1")
    for number, name in enumerate([*Q1, Q1[0], "address1::q2"]):
        send(broker.url, name, Message(id=number, durable=True))
    broker.kill()
    broker = start_broker(root, "--multicast=address1")
    assert "amqp:not-found" in refusal(broker.url, "q1")
    send(broker.url, "address1", Message(id=9, durable=True))
    assert ids(take(broker.url, "address2::q1", 1)) == [1]
    assert ids(take(broker.url, "q2", 1)) == [3]
    broker.terminate()
    assert main(["queues", "--json", root]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    depths = {row["queue"]: row["depth"] for row in rows}
    assert depths == {"address1::q1": 3, "address1::q2": 1, "address2::q1": 0}
    assert main(["browse", "--json", root, "q2"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1
    assert main(["browse", root, "q1"]) == 2
    assert "address1::q1 or address2::q1" in capsys.readouterr().err
