"""An AMQP client that publishes departures, many in flight, and writes down what it was told.

python -m broker_shim.demo.publisher URL LEDGER FIRST LAST STEP
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proton import Message
from proton.reactor import Container

from broker_shim.demo.client import Client, run
from broker_shim.demo.departures import EXCHANGE, Departure, departures, message_name

WINDOW = 500
"""Messages sent and not acknowledged, at most."""


class Publisher(Client):
    """Sends departures in order; each is acknowledged on its own."""

    def __init__(self, url: str, ledger: Path, numbers: range) -> None:
        super().__init__(url, ledger)
        self._next = numbers.start
        self._numbers = numbers
        self._waiting = departures(numbers.start, numbers.stop, numbers.step)
        self._sender: Any = None
        self._in_flight: dict[str, int] = {}
        self._accepted: list[int] = []
        self._refused: list[int] = []
        self._is_done = False

    def open_links(self, container: Container) -> None:
        """Open one link to the exchange: the subject of each message is its routing key."""
        self._sender = container.create_sender(self.connection, EXCHANGE)

    def on_sendable(self, event: Any) -> None:  # noqa: ARG002  # proton's signature
        """Send departures, as the broker gave credit."""
        self._send()

    def on_accepted(self, event: Any) -> None:
        """Note a message as confirmed: the broker said that it is durable."""
        self._accepted.append(self._in_flight.pop(event.delivery.tag))
        self.report()
        self._send()

    def on_rejected(self, event: Any) -> None:
        """Note a message that the broker refused."""
        self._refused.append(self._in_flight.pop(event.delivery.tag))

    def on_released(self, event: Any) -> None:
        """Note a message that the broker did not take."""
        self.on_rejected(event)

    def content(self) -> Mapping[str, Any]:
        """Return the confirmed messages, those in doubt, and the next one to publish."""
        return {
            "accepted": self._accepted,
            "in_doubt": list(self._in_flight.values()),
            "refused": self._refused,
            "next": self._next,
        }

    def _send(self) -> None:
        while self._sender.credit > 0 and len(self._in_flight) < WINDOW and not self._is_done:
            departure = next(self._waiting, None)
            if departure is None:
                self._is_done = True
                break
            delivery = self._sender.send(_message(departure))
            self._in_flight[delivery.tag] = departure.number
            self._next = departure.number + self._numbers.step
        if self._is_done and not self._in_flight:
            self.connection.close()


def _message(departure: Departure) -> Message:
    return Message(
        id=message_name(departure.number),
        subject=departure.routing_key,
        durable=True,
        inferred=True,  # a data section: the bytes themselves
        content_type="application/json",
        properties={
            "carrier": departure.carrier,
            "origin": departure.origin,
            "dest": departure.dest,
        },
        body=departure.body,
    )


def main(argv: list[str]) -> None:
    """Publish the departures that the arguments name."""
    url, ledger, first, last, step = argv
    run(Publisher(url, Path(ledger), range(int(first), int(last), int(step))))


if __name__ == "__main__":
    main(sys.argv[1:])
