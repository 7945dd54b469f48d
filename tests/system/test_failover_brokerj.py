"""Broker-J, with this store, goes on at the machine of a pair that took over."""

from __future__ import annotations

import pytest
from proton import Message

from tests.support.stores.services import short_folder
from tests.support.system import brokerj
from tests.support.system.clients import connected, take
from tests.support.system.pair_machines import Pair

SOCKET = "service.sock"


@pytest.mark.system
@pytest.mark.slow
def test_broker_j_goes_on_at_the_other_machine_when_its_service_is_killed() -> None:
    brokerj.build()
    with short_folder() as folder:
        pair, host = Pair(folder, options=("--no-amqp", "--store-socket", SOCKET)), None
        try:
            primary = pair.start_both()
            services = ",".join(f"unix:{pair.machine(number) / SOCKET}" for number in (0, 1))
            host = brokerj.JavaBroker(folder / "work", f"-Dsparkstore.service={services}")
            with connected(host.url, allowed_mechs="ANONYMOUS") as connection:
                sender = connection.create_sender("auto.q")
                sender.send(Message(id=1, durable=True))
                pair.kill(primary)
                sender.send(Message(id=2, durable=True))  # waits until the other one serves
            assert [message.id for message in take(host.url, "auto.q", 2)] == [1, 2]
        finally:
            if host is not None:
                host.kill()
            pair.end()
