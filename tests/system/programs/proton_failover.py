"""python-qpid-proton over a pair of brokers: see "failover" in README.md beside this file."""

from __future__ import annotations

import sys
import threading
from collections import deque
from typing import Any

from proton import Delivery, Message
from proton.handlers import MessagingHandler
from proton.reactor import Backoff, Container

WINDOW, AHEAD = 20, 200
TICK_S = 0.05


class Client(MessagingHandler):
    """Sends numbers and takes them, until its standard input ends and each one has come."""

    def __init__(self, queue: str, addresses: list[str]) -> None:
        super().__init__(auto_accept=False)
        self._queue, self._addresses = queue, addresses
        self._stopping = threading.Event()
        self._count, self._is_attached = 0, False
        self._again: deque[int] = deque()
        self._in_flight: dict[Any, int] = {}
        self._settling: dict[Any, int] = {}
        self._missing: set[int] = set()
        self._received: set[int] = set()

    def on_start(self, event: Any) -> None:
        """Connect to whichever serves, now and whenever the connection is lost."""
        container, addresses = event.container, self._addresses
        backoff = Backoff(max_delay=0.5)
        self.connection = container.connect(urls=addresses, heartbeat=5, reconnect=backoff)
        self._sender = container.create_sender(self.connection, self._queue)
        container.create_receiver(self.connection, self._queue)
        container.schedule(TICK_S, self)
        threading.Thread(target=self._wait_for_end, daemon=True).start()

    def on_link_opened(self, event: Any) -> None:
        """Send from now on: before it, messages would wait in the library, over all attempts."""
        self._is_attached = self._is_attached or event.link.is_sender

    def on_sendable(self, event: Any) -> None:  # noqa: ARG002  # proton's signature
        """Send, as the broker gave credit."""
        self._send()

    def on_accepted(self, event: Any) -> None:
        """Note what a broker confirmed."""
        number = self._in_flight.pop(event.delivery, None)
        if number is not None:
            print(f"accepted {number}", flush=True)
            if number not in self._received:
                self._missing.add(number)
        self._send()

    def on_rejected(self, event: Any) -> None:
        """End: nothing is refused on these queues."""
        sys.exit(f"refused: {event.delivery.remote.condition}")

    def on_disconnected(self, event: Any) -> None:  # noqa: ARG002  # proton's signature
        """Send again, under the same ids, what no broker answered for."""
        print("lost", flush=True)
        self._is_attached = False
        self._again = deque(sorted({*self._again, *self._in_flight.values()}))
        for delivery in (*self._in_flight, *self._settling):
            delivery.settle()
        self._in_flight.clear()
        self._settling.clear()

    def on_message(self, event: Any) -> None:
        """Accept a message; it is off the queue when the broker settles, too."""
        number = int(event.message.body)
        print(f"received {number}", flush=True)
        self._received.add(number)
        self._missing.discard(number)
        self._settling[event.delivery] = number
        event.delivery.update(Delivery.ACCEPTED)

    def on_settled(self, event: Any) -> None:
        """Note what is off the queue for good."""
        number = self._settling.pop(event.delivery, None)
        if number is not None:
            event.delivery.settle()
            print(f"settled {number}", flush=True)

    def on_timer_task(self, event: Any) -> None:
        """Look whether all is done."""
        is_idle = not (self._in_flight or self._again or self._missing or self._settling)
        if self._stopping.is_set() and is_idle:
            self.connection.close()
        else:
            self._send()
            event.container.schedule(TICK_S, self)

    def _send(self) -> None:
        while self._is_attached and self._sender.credit and len(self._in_flight) < WINDOW:
            if self._again:
                number = self._again.popleft()
            elif self._stopping.is_set() or len(self._missing) > AHEAD:
                return
            else:
                self._count = number = self._count + 1
            message = Message(id=f"{self._queue}-{number}", body=str(number), durable=True)
            self._in_flight[self._sender.send(message)] = number

    def _wait_for_end(self) -> None:
        sys.stdin.read()
        self._stopping.set()


if __name__ == "__main__":
    Container(Client(sys.argv[1], sys.argv[2:])).run()
