"""AMQP clients for the tests: proton's own blocking client, and one that pipelines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from proton import Delivery, Link, Message
from proton.handlers import MessagingHandler
from proton.reactor import Container, LinkOption
from proton.utils import BlockingConnection

TIMEOUT_S = 20


def settle(outcome: Any, *, failed: bool = False, undeliverable: bool = False) -> Any:
    """A decision for `Holder`."""

    def decide(delivery: Delivery) -> None:
        delivery.local.failed = failed
        delivery.local.undeliverable = undeliverable
        delivery.update(outcome)
        delivery.settle()

    return decide


@contextmanager
def connected(url: str, **options: Any) -> Iterator[BlockingConnection]:
    """A connection for a while."""
    connection = BlockingConnection(url, timeout=TIMEOUT_S, **options)
    try:
        yield connection
    finally:
        connection.close()


def send(url: str, address: str, *messages: Message) -> None:
    """Send and wait for each to be accepted."""
    with connected(url) as connection:
        sender = connection.create_sender(address)
        for message in messages:
            sender.send(message)


def take(url: str, address: str, count: int) -> list[Message]:
    """Receive and accept; bodies are copied before proton lets go of them."""
    received = []
    with connected(url) as connection:
        receiver = connection.create_receiver(address, credit=count)
        for _ in range(count):
            message = receiver.receive(timeout=TIMEOUT_S)
            if isinstance(message.body, memoryview):
                message.body = bytes(message.body)
            received.append(message)
            receiver.accept()
    return received


def is_empty(url: str, address: str) -> bool:
    """True if a queue has nothing available: credit is drained and nothing came."""
    probe = Drain(url, address)
    Container(probe).run()
    return not probe.received


class SecondMode(LinkOption):
    """The receiver settles after the broker: an accept is confirmed when it is durable."""

    def apply(self, link: Link) -> None:
        """Ask for it."""
        link.rcv_settle_mode = Link.RCV_SECOND


class Drain(MessagingHandler):
    """Takes all there is without accepting, then lets go."""

    def __init__(self, url: str, address: str, *options: LinkOption) -> None:
        super().__init__(prefetch=0, auto_accept=False)
        self._url = url
        self._address = address
        self._options = [*options]
        self.received: list[Message] = []

    def on_start(self, event: Any) -> None:
        """Connect."""
        self._connection = event.container.connect(self._url, reconnect=False)
        create = event.container.create_receiver
        self._receiver = create(self._connection, self._address, options=self._options)

    def on_link_opened(self, event: Any) -> None:
        """Ask for everything there is."""
        event.receiver.drain(1000)

    def on_message(self, event: Any) -> None:
        """Keep it; it is given back when the link ends."""
        self.received.append(event.message)

    def on_link_flow(self, event: Any) -> None:
        """The broker has used the credit up, so there is no more."""
        if event.receiver and event.receiver.credit == 0:
            self._connection.close()


class Holder(MessagingHandler):
    """Gives so much credit and no more; decides on each message; calls at the last, then leaves.

    Proton's blocking receiver gives credit of its own in each `receive`, so it cannot be used
    where it matters who gets what.
    """

    def __init__(
        self,
        url: str,
        address: str,
        credit: int,
        when_held: Callable[[], object] = lambda: None,
        decide: Callable[[Delivery], None] = lambda _delivery: None,
        options: LinkOption | None = None,
    ) -> None:
        super().__init__(prefetch=0, auto_accept=False)
        self._url = url
        self._address = address
        self._credit = credit
        self._when_held = when_held
        self._decide = decide
        self._options = options
        self.received: list[Message] = []

    def run(self) -> list[Any]:
        """Until it leaves; the ids it got, in order."""
        Container(self).run()
        return [message.id for message in self.received]

    def on_start(self, event: Any) -> None:
        """Connect."""
        self._connection = event.container.connect(self._url, reconnect=False)
        event.container.create_receiver(self._connection, self._address, options=self._options)

    def on_link_opened(self, event: Any) -> None:
        """Give the credit, once."""
        event.receiver.flow(self._credit)

    def on_message(self, event: Any) -> None:
        """Hold it."""
        self.received.append(event.message)
        self._decide(event.delivery)
        if len(self.received) == self._credit:
            self._when_held()
            self._connection.close()


@dataclass
class Pipelined(MessagingHandler):
    """Sends with all the credit it gets; knows what was accepted and what was not."""

    url: str
    address: str
    messages: Sequence[Message]
    on_progress: Callable[[Pipelined], None] = lambda _sender: None
    accepted: list[Any] = field(default_factory=list)
    refused: list[Any] = field(default_factory=list)
    error: str = ""

    def __post_init__(self) -> None:
        """Proton's own set-up."""
        super().__init__()
        self._sent = 0
        self._open: dict[Delivery, Any] = {}

    def run(self) -> Pipelined:
        """Until all are answered or the connection is lost."""
        Container(self).run()
        return self

    def on_start(self, event: Any) -> None:
        """Connect."""
        self._connection = event.container.connect(self.url, reconnect=False)
        event.container.create_sender(self._connection, self.address)

    def on_sendable(self, event: Any) -> None:
        """Use the credit."""
        while event.sender.credit and self._sent < len(self.messages):
            message = self.messages[self._sent]
            self._open[event.sender.send(message)] = message.id
            self._sent += 1

    def on_accepted(self, event: Any) -> None:
        """It is the broker's now."""
        self.accepted.append(self._open.pop(event.delivery))
        self._progress()

    def on_rejected(self, event: Any) -> None:
        """It is still ours."""
        condition = event.delivery.remote.condition
        self.refused.append((self._open.pop(event.delivery), condition and condition.name))
        self._progress()

    def on_link_error(self, event: Any) -> None:
        """The broker ended the link."""
        self.error = event.link.remote_condition.name
        event.connection.close()

    def on_connection_remote_close(self, event: Any) -> None:
        """The broker ended the connection; of a forced end proton tells by no other event."""
        if event.connection.remote_condition:
            self.error = event.connection.remote_condition.description
        event.connection.close()

    def on_transport_error(self, event: Any) -> None:
        """The broker is gone."""
        self.error = self.error or event.transport.condition.name

    def on_disconnected(self, event: Any) -> None:  # noqa: ARG002  # proton's signature
        """Without an error: the socket was closed."""
        self.error = self.error or "disconnected"

    def _progress(self) -> None:
        self.on_progress(self)
        if len(self.accepted) + len(self.refused) == len(self.messages):
            self._connection.close()
