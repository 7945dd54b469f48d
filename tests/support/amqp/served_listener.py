"""A listener over a store in memory, on real sockets, while a client on another thread runs."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from broker_shim.broker.metrics import Metrics
from broker_shim.broker.settings import BrokerSettings
from broker_shim.broker.storage.inbox import Inbox
from broker_shim.broker.storage.loop import Loop
from broker_shim.broker.storage.store_calls import StoreCalls
from broker_shim.broker.virtual_host import Broker
from broker_shim.listener_1_0.host import Amqp10Listener
from broker_shim.listener_1_0.messages.common_header import AmqpCommonHeader
from broker_shim.security.guard import Guard
from broker_shim.sockets.access import LOOPBACK
from broker_shim.sockets.listener import Listener
from broker_shim.sockets.served_connection import ConnectionHost
from broker_shim.store.memory import MemoryMessageStore

AMQP = b"AMQP\x00\x01\x00\x00"
TIMEOUT_S = 20


class Scarce(socket.socket):
    """A listening socket for which there is no descriptor at first."""

    failures_left = 0
    attempts = 0

    def accept(self) -> tuple[socket.socket, Any]:
        self.attempts += 1
        if self.failures_left:
            self.failures_left -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


class Served:
    """A listener over a store in memory, and the port that it is at."""

    def __init__(
        self,
        settings: BrokerSettings = BrokerSettings(),  # noqa: B008
        guard: Guard = LOOPBACK.guard,
        host_of: Callable[[Broker], ConnectionHost] = Amqp10Listener,
    ) -> None:
        self.inbox = Inbox()
        self.loop = Loop(self.inbox)
        self.store = MemoryMessageStore()
        self.listener = Listener(self.loop)
        calls = StoreCalls(self.store, self.inbox, lambda error: self.listener.end(str(error)))

        self.broker = Broker(calls, settings, Metrics(), self.loop.later, AmqpCommonHeader)
        self.listening = Scarce(socket.AF_INET)
        self.listening.bind(("127.0.0.1", 0))
        self.listening.listen()
        self.listener.listen(host_of(self.broker), self.listening, guard)

    def connect(self) -> socket.socket:
        return socket.create_connection(self.listening.getsockname(), timeout=TIMEOUT_S)

    def run_while(self, client: Callable[[], None]) -> None:
        """Serve on this thread until a client on another has ended."""
        failures: list[BaseException] = []

        def run_client() -> None:
            try:
                client()
            except BaseException as failure:  # noqa: BLE001  # raised again below
                failures.append(failure)
            finally:
                self.listener.stop()

        thread = threading.Thread(target=run_client)
        thread.start()
        self.listener.run()
        thread.join(TIMEOUT_S)
        if failures:
            raise failures[0]

    def close(self) -> None:
        """Let go of all of it."""
        self.listener.close()
        self.store.close()
        self.inbox.close()


def exhaust(peer: socket.socket) -> None:
    """Until the broker has hung up, whichever way."""
    with suppress(ConnectionResetError):
        while peer.recv(4096):
            pass
