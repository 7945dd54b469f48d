"""An AMQP client that takes messages, and accepts, gives back or keeps them; with a ledger.

    python -m broker_shim.demo.consumer URL LEDGER ACCEPT RELEASE HOLD QUEUE…

Of each queue it takes ACCEPT + RELEASE + HOLD messages. A settlement counts only when the broker
has settled, too. What is to be given back is given back when everything was taken, or the broker
would send it again at once. Then the client stays, and holds what it holds, until it is ended.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from proton import Delivery
from proton.reactor import Container

from broker_shim.demo.client import Client, run
from broker_shim.demo.departures import number_of
from broker_shim.demo.verdict import Key

WINDOW = 200
"""Credit of each link."""


class QuotaConsumer(Client):
    """Takes the same number of messages from each of several queues."""

    def __init__(
        self, url: str, ledger: Path, queues: list[str], *, accept: int, release: int, hold: int
    ) -> None:
        super().__init__(url, ledger)
        self._quota = accept + release + hold
        self._accept, self._release = accept, release
        self._queues = queues
        self._received = dict.fromkeys(queues, 0)
        self._settling: dict[Delivery, tuple[Key, Any]] = {}
        self._to_release: list[tuple[Key, Delivery]] = []
        self._ledgers: dict[str, set[Key]] = {"settled": set(), "released": set(), "seen": set()}
        self._is_written = False

    def open_links(self, container: Container) -> None:
        """Open a link for each queue."""
        for queue in self._queues:
            receiver = container.create_receiver(self.connection, queue)
            receiver.flow(min(WINDOW, self._quota))

    def on_message(self, event: Any) -> None:
        """Accept a message, or keep it for now."""
        queue = event.receiver.source.address
        key = Key(queue, number_of(event.message.id))
        self._ledgers["seen"].add(key)
        taken = self._received[queue] = self._received[queue] + 1
        # Mixed, so that accepted messages are not all at the head of the queue.
        turn = taken * 7919 % self._quota
        if turn < self._accept:
            self._settle(key, event.delivery, Delivery.ACCEPTED)
        elif turn < self._accept + self._release:
            self._to_release.append((key, event.delivery))
        if taken + event.receiver.credit < self._quota:
            event.receiver.flow(1)
        if sum(self._received.values()) == self._quota * len(self._queues):
            for kept, delivery in self._to_release:
                self._settle(kept, delivery, Delivery.RELEASED)
        self._finish()

    def on_settled(self, event: Any) -> None:
        """Note a settlement as confirmed, since the broker said so."""
        key, outcome = self._settling.pop(event.delivery)
        event.delivery.settle()
        self._ledgers["settled" if outcome == Delivery.ACCEPTED else "released"].add(key)
        self.report()
        self._finish()

    def content(self) -> Mapping[str, Any]:
        """Return the confirmed settlements, and those in doubt."""
        in_doubt = {key for key, outcome in self._settling.values() if outcome == Delivery.ACCEPTED}
        ledgers = self._ledgers | {"settle_in_doubt": in_doubt}
        return {name: sorted(keys) for name, keys in ledgers.items()}

    def _settle(self, key: Key, delivery: Delivery, outcome: Any) -> None:
        self._settling[delivery] = (key, outcome)
        delivery.update(outcome)

    def _finish(self) -> None:
        taken = sum(self._received.values())
        if taken == self._quota * len(self._queues) and not self._settling and not self._is_written:
            self._is_written = True
            self.write("holding")


def _end(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(0)


def main(argv: list[str]) -> None:
    """Run a consumer until its quotas are used up."""
    url, ledger, accept, release, hold, *queues = argv
    signal.signal(signal.SIGTERM, _end)
    run(
        QuotaConsumer(
            url,
            Path(ledger),
            queues,
            accept=int(accept),
            release=int(release),
            hold=int(hold),
        )
    )


if __name__ == "__main__":
    main(sys.argv[1:])
