"""Where the broker listens: loopback only, until clients can be told apart."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass

from broker_shim.errors import InvalidRequest

_BACKLOG = 128


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """A loopback address that was checked.

    Attributes:
        family: `AF_INET` or `AF_INET6`.
        host: As a number.
        port: 0 takes a free one.
    """

    family: socket.AddressFamily
    host: str
    port: int

    @property
    def url_host(self) -> str:
        """The host as a URL writes it."""
        return f"[{self.host}]" if self.family == socket.AF_INET6 else self.host


def parse_listen(text: str, option: str = "--listen") -> ListenAddress:
    """The address in `HOST:PORT`, which was the value of an option.

    Raises:
        InvalidRequest: It is not one, or is not loopback.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65_535:
        message = f"{option} {text}: write it as HOST:PORT, for example 127.0.0.1:5672"
        raise InvalidRequest(message)
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except OSError as reason:
        message = f"{option} {text}: {reason.strerror}"
        raise InvalidRequest(message) from reason
    for *_, address in found:
        if not ipaddress.ip_address(address[0]).is_loopback:
            message = (
                f"{option} {text} is not a loopback address: anyone who reaches it could read and"
                " write every queue, as there is no authentication yet; use 127.0.0.1"
            )
            raise InvalidRequest(message)
    family, _type, _protocol, _name, first = found[0]
    return ListenAddress(family, str(first[0]), int(port))


def listening_socket(address: ListenAddress) -> socket.socket:
    """A listening socket.

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
    listening.listen(_BACKLOG)
    return listening
