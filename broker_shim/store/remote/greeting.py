"""How a remote store finds its service, and is let in."""

from __future__ import annotations

import logging
import re
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path

from broker_shim.errors import InvalidRequest, NotNow, Unavailable
from broker_shim.store import protocol as wire
from broker_shim.store.protocol import SeenRoot
from sparkstore.control.socket_address import SOCKET_NAME as CONTROL_SOCKET
from sparkstore.core.state_machine.arguments import check_name, check_switch

_log = logging.getLogger(__name__)

Greeted = tuple[socket.socket, wire.Decoder, wire.Welcome, list[wire.Frame]]
"""A connection: its socket, its decoder, the welcome, and what came after that."""

FIRST_BACKOFF_S, LAST_BACKOFF_S = 0.02, 1.0
_SPELT = "give unix:PATH, tcp:HOST:PORT, or the path of its socket"
_CONNECT_S = 5.0
_WELCOME_S = 30.0
"""The service may have a long batch in hand, or recover a root."""


@dataclass(frozen=True, slots=True)
class Address:
    """A unix socket, or `HOST:PORT`.

    Attributes:
        path: Of the socket; None for TCP.
        host: Name or number of the host, for TCP; None for a unix socket.
        port: Number of the port, for TCP; None for a unix socket.
    """

    path: Path | None
    host: str = ""
    port: int = 0

    def __str__(self) -> str:
        return f"{self.host}:{self.port}" if self.path is None else str(self.path)


@dataclass(slots=True)
class AddressList:
    """The addresses of a pair, of which one serves; or the only one of a service alone.

    Attributes:
        all: In the order in which they are tried.
        turn: Number of the one that is tried now, or was tried last.
    """

    all: tuple[Address, ...]
    turn: int = field(default=0)

    @property
    def is_pair(self) -> bool:
        """True if another machine may serve what this one served."""
        return len(self.all) > 1

    @property
    def current(self) -> Address:
        """The address that is tried now, or was tried last."""
        return self.all[self.turn % len(self.all)]

    def go_on(self) -> None:
        """Try the next one from now on."""
        self.turn += 1

    def __str__(self) -> str:
        return " or ".join(map(str, self.all))


@dataclass(frozen=True, slots=True)
class MemberIdentity:
    """The identity of a member: `protocol.Hello` without what is about one connection.

    It raises InvalidRequest for what no member can be called, or for a value of another type.
    """

    member: str
    incarnation: str
    host: str | None = None
    is_exclusive: bool = False
    token: str | None = None
    lease_s: int | None = None

    def __post_init__(self) -> None:
        check_name(self.member, "member")
        check_name(self.incarnation, "incarnation")
        wire.check_member_name(self.member)
        if self.host is not None:
            check_name(self.host, "host")
        check_switch("is_exclusive", self.is_exclusive)
        if self.lease_s is not None:
            wire.check_lease(self.lease_s)


def parse_addresses(text: str | Path) -> AddressList:
    """Read one address, or those of both machines of a pair: `tcp:HOST:PORT,tcp:HOST:PORT`.

    Raises:
        InvalidRequest: One of them is none.
    """
    parts = re.split(r",(?=unix:|tcp:)", text) if isinstance(text, str) else [text]
    return AddressList(tuple(map(parse_address, parts)))


def parse_address(text: str | Path) -> Address:
    """`unix:PATH`, `tcp:HOST:PORT` (as the READY line tells), or a path.

    Raises:
        InvalidRequest: It is none of these.
    """
    if isinstance(text, Path):
        return _unix(text)
    if not isinstance(text, str) or not text:
        kind = type(text).__name__ if text != "" else "empty"
        raise InvalidRequest(f"the address of a store service cannot be {kind}: {_SPELT}")
    kind, _, rest = text.partition(":")
    if kind == "unix":
        if not rest:
            message = f"{text}: write it as unix:PATH"
            raise InvalidRequest(message)
        return _unix(Path(rest))
    if kind == "tcp":
        host, _, port = rest.rpartition(":")
        if not host or not port.isdecimal():
            message = f"{text}: write it as tcp:HOST:PORT"
            raise InvalidRequest(message)
        return Address(None, host.strip("[]"), int(port))
    return _unix(Path(text))


def _unix(path: Path) -> Address:
    """The socket of administrators stands in the same folder, and knows no members."""
    if path.name == CONTROL_SOCKET:
        message = (
            f"{path} is where administrators ask: give the socket of the store service, as its"
            " READY line tells it (service.sock beside this one, unless --store-socket is given)"
        )
        raise InvalidRequest(message)
    return Address(path)


def greet_patiently(
    addresses: AddressList,
    greeting: MemberIdentity,
    retry_s: float,
    seen: SeenRoot | None = None,
) -> Greeted:
    """`greet`, tried again for so long, at each address in turn, while the service is not there.

    Raises:
        Unavailable: It never was.
        StoreError: It sent us away.
    """
    until, backoff_s, is_told = time.monotonic() + retry_s, FIRST_BACKOFF_S, False
    while True:
        try:
            return greet(addresses.current, greeting, seen)
        except NotNow as reason:
            addresses.go_on()
            if time.monotonic() >= until:
                raise
            if not is_told:
                _log.warning("waiting for the store service: %s", reason)
                is_told = True
        time.sleep(backoff_s)
        backoff_s = min(2 * backoff_s, LAST_BACKOFF_S)


def greet(address: Address, greeting: MemberIdentity, seen: SeenRoot | None = None) -> Greeted:
    """Connect and be welcomed: the socket, its decoder, and what came after the welcome.

    Args:
        address: Of the service.
        greeting: Who we are.
        seen: What an earlier connection has seen of the root.

    Raises:
        Unavailable: The service is not there, does not answer, or is stopping.
        StoreError: It sent us away.
    """
    try:
        peer = _connected(address)
    except OSError as reason:
        message = f"store service at {address}: {reason}"
        raise Unavailable(message) from reason
    decoder = wire.Decoder(1 << 24)
    try:
        hello = (greeting.member, greeting.incarnation, greeting.host, greeting.is_exclusive)
        known: tuple[object, ...] = () if seen is None else (None, seen)
        if greeting.lease_s is not None:
            known = (None, seen, greeting.lease_s)
        body = (wire.VERSION, *hello, greeting.token, *known)
        peer.sendall(wire.frame_packer()(wire.HELLO, body))
        frames = _first_frames(peer, decoder)
        welcome = _welcome_of(*frames[0])
    except OSError as reason:
        peer.close()
        message = f"store service at {address}: {reason}"
        raise Unavailable(message) from reason
    except Exception:
        peer.close()
        raise
    peer.settimeout(None)
    return peer, decoder, welcome, frames[1:]


def _welcome_of(kind: int, body: wire.Body) -> wire.Welcome:
    if kind == wire.GOODBYE:
        raise wire.error_of(*body)
    if kind != wire.WELCOME:
        message = f"a store service says WELCOME first, not a frame of type {kind}"
        raise InvalidRequest(message)
    return wire.welcome_of(body)


def _connected(address: Address) -> socket.socket:
    if address.path is None:
        peer = socket.create_connection((address.host, address.port), _CONNECT_S)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return peer
    peer = socket.socket(socket.AF_UNIX)
    peer.settimeout(_CONNECT_S)
    try:
        peer.connect(str(address.path))
    except OSError:
        peer.close()
        raise
    return peer


def _first_frames(peer: socket.socket, decoder: wire.Decoder) -> list[wire.Frame]:
    until = time.monotonic() + _WELCOME_S
    while True:
        peer.settimeout(max(until - time.monotonic(), 0.001))
        received = peer.recv(1 << 16)
        if not received:
            raise ConnectionResetError("the service hung up")
        if frames := decoder.feed(received):
            return frames


def check_arguments(greeting: object, retry_s: object, max_message_bytes: object) -> None:
    """Check a store's arguments. Raises InvalidRequest if it cannot be opened with these."""
    if not isinstance(greeting, MemberIdentity):
        raise InvalidRequest(f"greeting cannot be {type(greeting).__name__}: give a MemberIdentity")
    if not isinstance(retry_s, int | float) or not retry_s >= 0:  # so that NaN is refused, too
        raise InvalidRequest(f"retry_s cannot be {retry_s!r}: give seconds, at least 0")
    if type(max_message_bytes) is not int or max_message_bytes < 1:
        raise InvalidRequest(f"max_message_bytes cannot be {max_message_bytes!r}: give at least 1")
