"""The resuming client of `resuming` over a socket, until its broker is killed."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress

from tests.support.amqp.resuming import Client

TIMEOUT_S = 60.0
_READ_BYTES = 1 << 16


def talk(
    client: Client, port: int, is_done: Callable[[], bool], timeout_s: float = TIMEOUT_S
) -> bool:
    """Connect and go on with the link; False if the connection was lost before `is_done`."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout_s) as peer:
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
