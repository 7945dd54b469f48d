"""Links of a real broker, as proton sees them: stolen, durable, expired."""

from __future__ import annotations

from pathlib import Path

import pytest
from proton import Link, Message, Terminus
from proton.reactor import Container, DurableSubscription, LinkOption
from proton.utils import BlockingConnection, BlockingReceiver, LinkDetached

from tests.support.system.clients import TIMEOUT_S, send
from tests.support.system.processes import BrokerProcess, StartBroker

pytestmark = [pytest.mark.system, pytest.mark.slow]

STOLEN = "amqp:link:stolen"


class Expiring(LinkOption):
    """A durable source that ends with its link."""

    def apply(self, link: Link) -> None:
        """Ask for it."""
        link.source.durability = Terminus.CONFIGURATION
        link.source.expiry_policy = Terminus.EXPIRE_WITH_LINK


def connect(broker: BrokerProcess, container_id: str = "shop") -> BlockingConnection:
    container = Container()
    container.container_id = container_id
    return BlockingConnection(broker.url, timeout=TIMEOUT_S, container=container)


def subscribe(
    connection: BlockingConnection, address: str = "news", options: LinkOption | None = None
) -> BlockingReceiver:
    receiver: BlockingReceiver = connection.create_receiver(
        address, credit=10, name="sub", options=options or DurableSubscription()
    )
    return receiver


def bodies(receiver: BlockingReceiver, count: int) -> list[object]:
    found = []
    for _ in range(count):
        found.append(receiver.receive(timeout=TIMEOUT_S).body)
        receiver.accept()
    return found


def durable(body: str) -> Message:
    return Message(body, durable=True)


def test_a_link_is_stolen_by_another_connection_of_its_container(broker: BrokerProcess) -> None:
    first, second = connect(broker), connect(broker)
    stolen = subscribe(first, "q")
    thief = subscribe(second, "q")
    with pytest.raises(LinkDetached, match=STOLEN):
        stolen.receive(timeout=TIMEOUT_S)
    send(broker.url, "q", durable("a"))
    assert bodies(thief, 1) == ["a"]
    second.close()
    first.close()


def test_a_durable_subscription_and_what_it_holds_survive_kill_9(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    arguments = ("--multicast=news", str(tmp_path / "root"))
    broker = start_broker(*arguments)
    receiver = subscribe(connect(broker))
    source = receiver.link.remote_source
    assert source.durability == Terminus.DELIVERIES
    assert source.expiry_policy == Terminus.EXPIRE_NEVER
    send(broker.url, "news", durable("held"))
    assert receiver.receive(timeout=TIMEOUT_S).body == "held"
    broker.kill()
    broker = start_broker(*arguments)
    send(broker.url, "news", durable("came meanwhile"))
    connection = connect(broker)
    assert bodies(subscribe(connection), 2) == ["held", "came meanwhile"]
    connection.close()


def test_a_link_with_an_end_is_not_there_after_a_restart(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    arguments = ("--multicast=news", str(tmp_path / "root"))
    broker = start_broker(*arguments)
    receiver = subscribe(connect(broker), options=Expiring())
    assert receiver.link.remote_source.durability == Terminus.CONFIGURATION
    broker.kill()
    broker = start_broker(*arguments)
    assert broker.terminate() == 0
    assert "recovered 0 messages on 0 queues, 1 links" in broker.log
    assert "link 'sub' of 'shop' has expired" in broker.log
    broker = start_broker(*arguments)
    assert broker.terminate() == 0
    assert "recovered 0 messages on 0 queues, 0 links" in broker.log


def test_a_broker_that_keeps_configuration_brings_links_back_and_no_message(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    folder = tmp_path / "wiring"
    arguments = ("--multicast=news", "--configuration", str(folder))
    broker = start_broker(*arguments)
    source = subscribe(connect(broker)).link.remote_source
    assert source.durability == Terminus.CONFIGURATION
    assert source.expiry_policy == Terminus.EXPIRE_NEVER
    send(broker.url, "news", durable("lost"))
    broker.kill()
    assert {"wiring.json", "links.json"} <= {file.name for file in folder.iterdir()}
    broker = start_broker(*arguments)
    send(broker.url, "news", durable("came meanwhile"))
    connection = connect(broker)
    receiver = subscribe(connection)
    assert bodies(receiver, 1) == ["came meanwhile"]
    receiver.close()
    connection.close()
    assert broker.terminate() == 0
    broker = start_broker(*arguments)
    assert broker.terminate() == 0
    assert "recovered 0 messages on 0 queues, 0 links" in broker.log


def test_a_broker_that_keeps_nothing_grants_nothing(broker: BrokerProcess) -> None:
    connection = connect(broker)
    assert subscribe(connection, "q").link.remote_source.durability == Terminus.NONDURABLE
    connection.close()
