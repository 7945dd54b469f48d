"""The socket of a remote store: what it is taking, and the wait for what comes."""

from __future__ import annotations

import select
import socket

from broker_shim.store.remote.pending_requests import PendingRequests

_SEND_BYTES = 1 << 18


class Sending:
    """The socket of one connection, which sends a chunk at a time. One thread uses it at a time."""

    def __init__(self, peer: socket.socket, wake: int) -> None:
        """Wrap a connected socket. `wait` also returns when the file `wake` becomes readable."""
        self.peer, self._wake = peer, wake
        self._rest = memoryview(b"")
        self._poll = select.poll()
        self._poll.register(wake, select.POLLIN)
        self._poll.register(peer, select.POLLIN)
        self._is_waiting_for_room = False

    @property
    def is_blocked(self) -> bool:
        """True if the socket took a part and no more."""
        return bool(self._rest)

    def wait(self) -> tuple[bool, bool]:
        """Wait until there is something to do; whether one was woken, and may read."""
        if self._is_waiting_for_room != self.is_blocked:
            self._is_waiting_for_room = not self._is_waiting_for_room
            more = select.POLLOUT if self._is_waiting_for_room else 0
            self._poll.modify(self.peer, select.POLLIN | more)
        ready = dict(self._poll.poll())
        return self._wake in ready, bool(ready.get(self.peer.fileno(), 0) & ~select.POLLOUT)

    def pump(self, requests: PendingRequests) -> bool:
        """Send what may be sent, as far as the socket takes it now; True if it took all."""
        while self._rest or (content := requests.take(_SEND_BYTES)):
            if not self._rest:
                self._rest = memoryview(content)
            try:
                sent = self.peer.send(self._rest, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            except BlockingIOError:
                return False
            except OSError:
                self._rest = memoryview(b"")
                return True  # whoever reads finds the end, and what was said before it
            self._rest = self._rest[sent:]
        return True
