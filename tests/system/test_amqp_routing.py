"""Exchanges, bindings and addresses, over real sockets."""

from __future__ import annotations

from pathlib import Path

import pytest
from proton import Message
from proton.utils import BlockingConnection, LinkDetached, SendException, SyncRequestResponse

from tests.support.system.clients import TIMEOUT_S, Pipelined, connected, is_empty, send, take
from tests.support.system.processes import BrokerProcess, StartBroker

pytestmark = [pytest.mark.system, pytest.mark.slow]


@pytest.fixture
def wired(start_broker: StartBroker) -> BrokerProcess:
    queues = [f"--queue={name}" for name in ("east", "west", "all")]
    keys = {
        "east": ["amq.topic:flight.*.jfk:east", "amq.direct:e:east", "amq.fanout::east"],
        "west": ["amq.topic:flight.*.lax:west", "amq.fanout::west"],
        "all": ["amq.topic:flight.#:all", "amq.topic:#:all", "news:x:all"],
    }
    bindings = [f"--bind={key}" for each in keys.values() for key in each]
    return start_broker("--memory", *queues, "--exchange=news:direct", *bindings)


def test_a_topic_exchange_routes_by_words(wired: BrokerProcess) -> None:
    send(wired.url, "amq.topic/flight.aa.jfk", Message(id=1))
    send(wired.url, "amq.topic/other", Message(id=2))
    assert [m.id for m in take(wired.url, "east", 1)] == [1]
    assert [m.id for m in take(wired.url, "all", 2)] == [1, 2]
    assert is_empty(wired.url, "west")


def test_the_subject_is_the_routing_key_where_the_address_has_none(wired: BrokerProcess) -> None:
    send(wired.url, "amq.topic", Message(id=1, subject="flight.aa.lax"))
    assert [m.id for m in take(wired.url, "west", 1)] == [1]


def test_a_fanout_exchange_routes_to_every_queue_once(wired: BrokerProcess) -> None:
    send(wired.url, "amq.fanout", Message(id=1, durable=True))
    assert [take(wired.url, queue, 1)[0].id for queue in ("east", "west")] == [1, 1]
    assert is_empty(wired.url, "east")


def test_direct_exchanges_route_by_the_whole_key(wired: BrokerProcess) -> None:
    send(wired.url, "amq.direct/e", Message(id=1))
    send(wired.url, "news/x", Message(id=2))
    assert [m.id for m in take(wired.url, "east", 1)] == [1]
    assert [m.id for m in take(wired.url, "all", 1)] == [2]


def test_a_message_that_routes_nowhere_is_rejected_as_not_found(wired: BrokerProcess) -> None:
    sender = Pipelined(wired.url, "amq.direct/nowhere", [Message(id=1)]).run()
    assert (sender.accepted, sender.refused) == ([], [(1, "amq:not-found".replace("amq", "amqp"))])


def test_a_subscription_to_an_exchange_ends_with_its_link(wired: BrokerProcess) -> None:
    with connected(wired.url) as connection:
        receiver = connection.create_receiver("news/y", credit=1)
        send(wired.url, "news/y", Message(id=1))
        assert receiver.receive(timeout=TIMEOUT_S).id == 1
    with connected(wired.url) as connection:
        sender = connection.create_sender("news/y")
        with pytest.raises(SendException):
            sender.send(Message(id=2))


@pytest.mark.parametrize(
    "name", ["a/b", "../x", "it's", 'say "q"', "nul\0", "🚚.täglich", "`; DROP TABLE q --"]
)
def test_any_text_names_a_queue(broker: BrokerProcess, name: str) -> None:
    if "\0" in name:
        pytest.skip("proton's own client ends an address at NUL")
    send(broker.url, name, Message(id=1))
    assert [m.id for m in take(broker.url, name, 1)] == [1]


@pytest.mark.parametrize("name", ["amq.topci/flight", "amq.topci::queue", "news::queue"])
def test_names_of_the_brokers_own_and_of_exchanges_are_not_created_on_demand(
    wired: BrokerProcess, name: str
) -> None:
    with connected(wired.url) as connection, pytest.raises(LinkDetached, match="not-found"):
        connection.create_sender(name)


def test_without_auto_create_an_unknown_queue_is_not_found(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    settings = tmp_path / "sparkstore.toml"
    settings.write_text('[broker]\nauto_create = false\nqueues = [{name = "known"}]\n')
    broker = start_broker("--memory", "--config", str(settings))
    send(broker.url, "known", Message(id=1))
    with connected(broker.url) as connection, pytest.raises(LinkDetached, match="not-found"):
        connection.create_receiver("unknown")


def test_two_links_of_one_connection_are_served_apart(broker: BrokerProcess) -> None:
    connection: BlockingConnection
    with connected(broker.url) as connection:
        first = connection.create_sender("one")
        second = connection.create_sender("two")
        first.send(Message(id=1))
        second.send(Message(id=2))
    assert [m.id for m in take(broker.url, "one", 1)] == [1]
    assert [m.id for m in take(broker.url, "two", 1)] == [2]


def test_queues_are_managed_by_requests(wired: BrokerProcess) -> None:
    """With proton's own requester, whose answers come by a dynamic source."""
    with connected(wired.url) as connection:
        requester = SyncRequestResponse(connection, "$management")

        def ask(body: object = None, **said: object) -> Message:
            return requester.call(Message(body, properties=said))

        made = ask({"max_depth": 1}, operation="CREATE", type="org.apache.qpid.Queue", name="new")
        assert made.properties["statusCode"] == 201
        send(wired.url, "new", Message(id=1, durable=True))
        read = ask(operation="READ", identity="queue/new").body
        assert (read["depth"], read["max_depth"]) == (1, 1)
        kept = ask(operation="DELETE", identity="queue/new").properties
        assert (kept["statusCode"], "1 messages" in kept["statusDescription"]) == (409, True)
        assert ask(operation="PURGE", identity="queue/new").body == {"purged": 1}
        assert ask(operation="DELETE", identity="queue/new").properties["statusCode"] == 204
        names = {"attributeNames": ["name"]}
        told = ask(names, operation="QUERY", entityType="org.apache.qpid.Exchange").body
        assert ["news"] in told["results"]
