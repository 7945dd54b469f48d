"""The resuming client of `tests.resuming` over a socket, until its broker is killed."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress

from tests.resuming import Client

TIMEOUT_S = 60.0
_READ_BYTES = 1 << 16

HEAD = b"\x00Sp\xc0\x02\x01A\x00Su\xb0"
"""A durable message whose body is one binary: header section, then its data up to the length."""


def numbered(number: int, size: int) -> bytes:
    """A message of `size` bytes of content, at least 8, which begin with a number."""
    return HEAD + size.to_bytes(4, "big") + number.to_bytes(8, "big") + bytes(size - 8)


def number_in(message: bytes) -> int:
    """The number of a message as the broker passes it on: its header section may differ."""
    at = message.index(b"\x00Su") + 3
    at += 2 if message[at] == 0xA0 else 5
    return int.from_bytes(message[at : at + 8], "big")


def talk(client: Client, port: int, is_done: Callable[[], bool]) -> bool:
    """Connect and go on with the link; False if the connection was lost before `is_done`."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.connect()
        while not is_done() or client.out:
            if client.out:
                written, client.out = client.out, b""
                peer.sendall(written)
                continue
            if not (received := peer.recv(_READ_BYTES)):
                return False
            client.receive(received)
        return True
    return False
