"""Frames of a remote store on their way into its socket."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import Any

from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.service import protocol as wire
from broker_shim.store.remote.requests import PendingRequests

_SEND_BYTES = 1 << 18


class Sending:
    """What a socket is taking, a chunk at a time; of one connection, one thread at a time."""

    def __init__(self, peer: socket.socket) -> None:
        self.peer = peer
        self._rest = memoryview(b"")

    @property
    def is_blocked(self) -> bool:
        """True if the socket took a part and no more."""
        return bool(self._rest)

    def pump(self, requests: PendingRequests) -> None:
        """Send what may be sent, as far as the socket takes it now."""
        while self._rest or (content := requests.take(_SEND_BYTES)):
            if not self._rest:
                self._rest = memoryview(content)
            try:
                sent = self.peer.send(self._rest, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            except BlockingIOError:
                return
            except OSError:
                self._rest = memoryview(b"")
                return  # whoever reads finds the end, and what was said before it
            self._rest = self._rest[sent:]


def framed(
    pack: Callable[[int, Sequence[Any]], bytes],
    kind: int,
    body: tuple[Any, ...],
    on_unwritable: Callable[[], None] | None,
) -> tuple[bytes, StoreError | None]:
    """A request's frame; or the refusal of what cannot be one.

    With `on_unwritable`, that is called for a record that cannot be written, and nothing is asked.
    """
    try:
        return pack(kind, body), None
    except InvalidRequest as too_large:
        return b"", too_large
    except (OverflowError, ValueError) as reason:
        if on_unwritable is None:
            return b"", InvalidRequest(f"a record cannot be written: {reason}")
        on_unwritable()
        return pack(wire.DO, (body[0], ())), None
