"""Orders to a broker in memory, and clients that send to its queues and take from them."""

from __future__ import annotations

from typing import Any

from broker_shim.amqp_1_0.composites import Source, Target
from broker_shim.errors import StoreError
from sparkstore.operations.administration import Order
from tests.support.amqp.link_clients import Client, House


def ask(house: House, order: Order) -> dict[str, Any]:
    """What an order came to; raises why it was not carried out."""
    answers: list[tuple[StoreError | None, dict[str, Any]]] = []
    house.broker.administration.order(order, lambda error, told: answers.append((error, told)))
    house.run()
    [(error, told)] = answers
    if error is not None:
        raise error
    return told


def publish(house: House, queue: str, *bodies: str) -> None:
    """Send messages, each in a transfer of its own."""
    client = Client(house, "publisher")
    client.attach("out", target=Target(queue), is_receiver=False)
    for number, body in enumerate(bodies):
        client.deliver(b"%d" % number, body)
    client.vanish()


def consumer(house: House, queue: str = "q", credit: int = 0, name: str = "in") -> Client:
    """A client that takes messages from a queue."""
    client = Client(house, f"consumer {name}")
    client.attach(name, source=Source(queue))
    if credit:
        client.credit(credit)
    return client


def bodies(client: Client) -> list[Any]:
    """What came of messages since the last time."""
    return [body for _tag, body in client.transfers()]


def entries(house: House, queue: str = "q") -> list[int]:
    """The messages that the store has on a queue."""
    return [*house.store.recover().entries.get(queue, {})]
