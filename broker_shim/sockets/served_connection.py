"""Define the connection of any protocol, as the socket that carries it needs it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Any, NamedTuple, Protocol

from broker_shim.broker.virtual_host import Broker
from broker_shim.sockets.access import Access
from broker_shim.sockets.login import Login

_numbers = count(1)


def next_number() -> int:
    """Return a number for a new connection that no other has, whatever protocol it speaks."""
    return next(_numbers)


_MOST_PRODUCT = 200


class ClientFacts(NamedTuple):
    """The client of a connection, as people look at it.

    Attributes:
        protocol: What it speaks; None before that is known.
        product: Its program and release, as it names them; None: it does not.
        sessions: How many it has open.
        heartbeat_s: After how long a silence it gives up; None: never.
        received_bytes: How many came, without TLS.
        sent_bytes: How many were sent, without TLS.
    """

    protocol: str | None = None
    product: str | None = None
    sessions: int = 0
    heartbeat_s: float | None = None
    received_bytes: int = 0
    sent_bytes: int = 0


class LinkFacts(NamedTuple):
    """The link of a connection, or a subscription, as `LINK_COLUMNS` say."""

    name: str
    role: str
    address: str | None
    credit: int
    unsettled: int
    settle_mode: str


def product_of(properties: Mapping[Any, Any] | None) -> str | None:
    """Return how a client names its program, by the properties of its connection."""
    words = [(properties or {}).get(name) for name in ("product", "version")]
    return " ".join(word for word in words if isinstance(word, str))[:_MOST_PRODUCT] or None


class ServedConnection(Protocol):
    """The connection of one peer, as its socket sees it. On the loop's thread only."""

    @property
    def broker(self) -> Broker:
        """Return the virtual host that the connection is served by."""

    @property
    def access(self) -> Access:
        """Return how the peer got in."""

    @property
    def login(self) -> Login:
        """Return the login of the peer."""

    @property
    def number(self) -> int:
        """Return the number that tells the connection apart from all others of this process."""

    @property
    def began_at_us(self) -> int:
        """Return when the connection came, UTC µs."""

    @property
    def container_id(self) -> str:
        """Return the peer's name for itself; empty if it said nothing."""

    @property
    def link_count(self) -> int:
        """Count the links, or subscriptions, without a look at any."""

    @property
    def link_facts(self) -> Iterable[LinkFacts]:
        """Describe each link, or subscription, as it is asked for."""

    @property
    def client(self) -> ClientFacts:
        """Return what its client is, and how much it sends."""

    @property
    def is_open(self) -> bool:
        """True once the peer has opened."""

    @property
    def is_closed(self) -> bool:
        """True once nothing more can be said to the peer."""

    @property
    def is_over(self) -> bool:
        """True once nothing is read any more: write what waits, then hang up."""

    @property
    def has_more(self) -> bool:
        """True if what came was too much for one turn: let it `go_on` in the next."""

    @property
    def wait_s(self) -> float:
        """Return how long the next turn has to wait, in seconds; 0 unless it is held back."""

    def receive(self, received: bytes, most_work: int = ...) -> None:
        """Bytes from the peer, for so much work at most; none means that it sends no more."""

    def go_on(self, most_work: int) -> None:
        """Take more of what came before."""

    def output(self) -> bytes:
        """Return the next bytes to write; then tell how many are `unsent`."""

    def unsent(self, byte_count: int) -> None:
        """Note how many bytes of `output` are not with the peer yet; there may be room again."""

    def tick(self, now_s: float) -> float:
        """Do what is due by the clock; return when to call again, at the latest."""

    def lost(self) -> None:
        """End the connection as far as the broker goes: the peer is gone. May be called twice."""

    def let_go(self) -> None:
        """Let go of everything once the socket is gone, after `lost`: no cycle may be left.

        Answers that the store still owes may come after it.
        """

    def close_forced(self, reason: str) -> None:
        """End the connection because the broker stops."""

    def close_unauthorized(self, reason: str) -> None:
        """End the connection because the peer may not connect any more."""


class ConnectionHost(Protocol):
    """A protocol's listener, which makes connections for sockets."""

    @property
    def broker(self) -> Broker:
        """Return the virtual host of all connections."""

    def connect(self, has_output: Callable[[], None], access: Access) -> ServedConnection:
        """Make a connection for a peer that came in.

        Args:
            has_output: Called whenever the connection has bytes for its peer.
            access: How the peer got in, and what it is offered.
        """
