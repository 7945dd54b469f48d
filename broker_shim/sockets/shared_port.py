"""Share one port among protocols: the first bytes of a connection tell which it speaks."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping

from broker_shim.broker.virtual_host import Broker
from broker_shim.sockets.access import Access
from broker_shim.sockets.login import Login
from broker_shim.sockets.served_connection import (
    ClientFacts,
    ConnectionHost,
    LinkFacts,
    ServedConnection,
    next_number,
)

_log = logging.getLogger(__name__)


class SharedPort:
    """Makes of each socket what its peer speaks; a `ConnectionHost`."""

    def __init__(self, hosts: Mapping[bytes, ConnectionHost], otherwise: ConnectionHost) -> None:
        """Choose a protocol's host by the first bytes of a peer.

        Args:
            hosts: By the bytes with which their peers begin, none of which begins another.
            otherwise: For all other peers: it also answers those who speak nothing of ours.
        """
        self._hosts, self._otherwise = hosts, otherwise

    @property
    def broker(self) -> Broker:
        """Return the virtual host, one for all protocols."""
        return self._otherwise.broker

    def connect(self, has_output: Callable[[], None], access: Access) -> UndecidedConnection:
        """Make a connection that is undecided until its peer's first bytes are in."""
        return UndecidedConnection(self.broker, self.host_of, has_output, access)

    def host_of(self, began: bytes) -> ConnectionHost | None:
        """Return the host for a peer that began with these bytes; None if more bytes are needed."""
        for begins, host in self._hosts.items():
            if began.startswith(begins):
                return host
        is_open = any(begins.startswith(began) for begins in self._hosts)
        return None if is_open else self._otherwise


class UndecidedConnection:
    """A peer that has not said what it speaks; a `ServedConnection` until then.

    Attributes:
        broker: The virtual host.
        access: How the peer got in.
        login: The login of nobody yet.
        number: Tells it apart from all others of this process.
        began_at_us: When it came, UTC µs.
        is_over: True once the peer hung up, or said nothing for too long.
        on_decided: Whoever serves this one serves another from now on, before that hears anything.
    """

    container_id = ""
    link_count = 0
    link_facts: Iterable[LinkFacts] = ()
    client = ClientFacts()
    is_open = has_more = False
    wait_s = 0.0

    def __init__(
        self,
        broker: Broker,
        host_of: Callable[[bytes], ConnectionHost | None],
        has_output: Callable[[], None],
        access: Access,
    ) -> None:
        self.broker, self.access = broker, access
        self.login = Login(access, broker.later, has_output)
        self.number = next_number()
        self.began_at_us = time.time_ns() // 1000
        self.is_over = False
        self.on_decided: Callable[[ServedConnection], None] = _stays
        self._host_of, self._has_output = host_of, has_output
        self._came = b""
        self._until_s = time.monotonic() + broker.settings.handshake_timeout_s

    @property
    def is_closed(self) -> bool:
        """True once nothing more can be said to the peer."""
        return self.is_over

    def receive(self, received: bytes, most_work: int = 1 << 60) -> None:
        """Gather the peer's first bytes, and hand over once they show its protocol."""
        if not received:
            self.close_forced("it hung up")
            return
        self._came += received
        host = self._host_of(self._came)
        if host is not None:
            connection = host.connect(self._has_output, self.access)
            self.on_decided(connection)
            self.let_go()  # this one is over
            connection.receive(self._came, most_work)

    def go_on(self, most_work: int) -> None:
        """Do nothing, as no work waits here."""

    def output(self) -> bytes:
        """Return no bytes, as nothing is said before the protocol is known."""
        return b""

    def unsent(self, byte_count: int) -> None:
        """Ignore how much is unsent, as nothing was said."""

    def tick(self, now_s: float) -> float:
        """End the connection if its peer said nothing for too long; return when to ask again."""
        if now_s >= self._until_s:
            self.close_forced("it said nothing for too long")
        return max(now_s + 0.05, self._until_s)

    def lost(self) -> None:
        """Do nothing, as this connection holds nothing."""

    def let_go(self) -> None:
        """Drop the callback, so that no cycle keeps the connection in memory."""
        self.on_decided = _stays

    def close_forced(self, reason: str) -> None:
        """End the connection; without a protocol the reason cannot be told to the peer."""
        _log.debug("connection %d ended: %s", self.number, reason)
        self.is_over = True
        self._has_output()

    close_unauthorized = close_forced


def _stays(_connection: ServedConnection) -> None:
    """Ignore a decision that came after the connection was let go of."""
