"""A client that sends all the time to whichever machine serves, and keeps books of what it heard.

Each message is sent once. So one without an answer must be at no receiver after a planned switch,
and one that was accepted at exactly one.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence

from proton import Delivery, Event, Message
from proton.handlers import MessagingHandler
from proton.reactor import Backoff, Container

_TICK_S, _WINDOW, _LONG_S = 0.05, 8, 60.0
_QUIET_S = 0.5
"""What should not be on the queue comes by then."""
_QUEUE = "booked"


class LedgerSender(MessagingHandler):
    """Sends on a thread of its own from its start until `stop`.

    Attributes:
        accepted: Ids in the order in which they were accepted.
        answered_at: When each of those answers came, by the monotonic clock.
        unanswered: Ids that were sent to a connection that ended, and had no answer.
    """

    def __init__(self, ports: Sequence[int]) -> None:
        super().__init__(auto_settle=True)
        self._urls = [f"amqp://127.0.0.1:{port}" for port in ports]
        self.accepted: list[str] = []
        self.unanswered: set[str] = set()
        self.answered_at: list[float] = []
        self._count = 0
        self._waiting: dict[Delivery, str] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=Container(self).run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Send no more, and end when each message has an answer."""
        self._stopping.set()
        self._thread.join(_LONG_S)
        assert not self._thread.is_alive()

    def on_start(self, event: Event) -> None:
        again = Backoff(initial=0.02, max_delay=0.1)
        connection = event.container.connect(urls=self._urls, reconnect=again, heartbeat=30)
        event.container.create_sender(connection, _QUEUE)
        self._connection = connection
        event.container.schedule(_TICK_S, self)

    def on_timer_task(self, event: Event) -> None:
        if self._stopping.is_set() and not self._waiting:
            self._connection.close()
        else:
            event.container.schedule(_TICK_S, self)

    def on_sendable(self, event: Event) -> None:
        while event.sender.credit and len(self._waiting) < _WINDOW and not self._stopping.is_set():
            self._count += 1
            name = f"m{self._count}"
            self._waiting[event.sender.send(Message(id=name, body=name, durable=True))] = name

    def on_accepted(self, event: Event) -> None:
        self.accepted.append(self._waiting.pop(event.delivery))
        self.answered_at.append(time.monotonic())
        self.on_sendable(_Sendable(event.link))

    def on_disconnected(self, event: Event) -> None:  # noqa: ARG002
        self.unanswered |= {*self._waiting.values()}
        self._waiting.clear()


class _Sendable:
    def __init__(self, sender: object) -> None:
        self.sender = sender


class LedgerReceiver(MessagingHandler):
    """Receives what a `LedgerSender` left on its queue: all that was accepted, and the rest."""

    def __init__(self, port: int, accepted: Iterable[str]) -> None:
        super().__init__(prefetch=100)
        self._url, self._missing = f"amqp://127.0.0.1:{port}", {*accepted}
        self.received: Counter[str] = Counter()

    def run(self) -> Counter[str]:
        """Receive; how often each came."""
        Container(self).run()
        return self.received

    def on_start(self, event: Event) -> None:
        self._connection = event.container.connect(self._url)
        event.container.create_receiver(self._connection, _QUEUE)

    def on_message(self, event: Event) -> None:
        self.received[event.message.body] += 1
        if event.message.body in self._missing:
            self._missing.remove(event.message.body)
            if not self._missing:
                event.container.schedule(_QUIET_S, self)

    def on_timer_task(self, event: Event) -> None:  # noqa: ARG002
        self._connection.close()
