"""Where the broker listens."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass

from broker_shim.errors import InvalidRequest

LISTEN, LISTEN_TLS = "127.0.0.1:5672", "127.0.0.1:5671"
"""Where a broker listens that is not told where, without TLS and with it."""

BACKLOG = 128
"""Connections that wait to be accepted."""


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """An address that was looked up.

    Attributes:
        family: `AF_INET` or `AF_INET6`.
        host: As a number.
        port: 0 takes a free one.
        is_loopback: True if nobody but this machine reaches it.
    """

    family: socket.AddressFamily
    host: str
    port: int
    is_loopback: bool = True

    @property
    def url_host(self) -> str:
        """The host as a URL writes it."""
        return f"[{self.host}]" if self.family == socket.AF_INET6 else self.host


def parse_listen(text: str, option: str = "--listen") -> ListenAddress:
    """The address in `HOST:PORT`, which was the value of an option.

    Raises:
        InvalidRequest: It is not one.
    """
    host, colon, port = text.rpartition(":")
    if text.count(":") > 1 and not text.startswith("["):
        message = f"{option} {text}: an IPv6 address stands in brackets, as in [::1]:5672"
        raise InvalidRequest(message)
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        message = f"{option} {text}: write it as HOST:PORT, for example 127.0.0.1:5672"
        raise InvalidRequest(message)
    try:
        addresses = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except OSError as reason:
        message = f"{option} {text}: {reason.strerror}"
        raise InvalidRequest(message) from reason
    is_loopback = all(ipaddress.ip_address(address[0]).is_loopback for *_, address in addresses)
    family, _type, _protocol, _name, first = addresses[0]
    return ListenAddress(family, str(first[0]), int(port), is_loopback)


def parse_loopback(text: str, option: str) -> ListenAddress:
    """The same for a port that only this machine may reach.

    Raises:
        InvalidRequest: It is not one, or is not loopback.
    """
    address = parse_listen(text, option)
    if not address.is_loopback:
        message = f"{option} {text} is not a loopback address: use 127.0.0.1"
        raise InvalidRequest(message)
    return address


def listening_socket(address: ListenAddress) -> socket.socket:
    """A listening socket; raises as `bound_socket`."""
    listening = bound_socket(address)
    listening.listen(BACKLOG)
    return listening


def bound_socket(address: ListenAddress) -> socket.socket:
    """A socket at its port: nobody can connect before it listens.

    Another process may still come to listen there first; then this one cannot.

    Raises:
        OSError: The port is taken, or not allowed.
    """
    listening = socket.socket(address.family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((address.host, address.port))
    except OSError as reason:
        listening.close()
        message = f"{address.url_host}:{address.port}: {reason.strerror}"
        raise OSError(reason.errno, message) from reason
    return listening
