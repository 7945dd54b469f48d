"""A way between two machines that can be cut: nothing passes then, and nobody is told.

As a network does: what was on its way is lost, both ends find out by their own patience, and who
connects meanwhile waits. After `mend` those that were there stay dead; new ones pass.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class Cable:
    """Passes bytes on, both ways, between its own port and another one."""

    def __init__(self, leads_to: int) -> None:
        self._leads_to, self._is_whole, self._turn = leads_to, threading.Event(), 0
        self._is_whole.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Let nothing pass from now on."""
        self._turn += 1
        self._is_whole.clear()

    def mend(self) -> None:
        """Let new connections pass."""
        self._is_whole.set()

    def close(self) -> None:
        """Take no more connections."""
        self.mend()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):  # `close`
            while True:
                near = self._listener.accept()[0]
                threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near: socket.socket) -> None:
        self._is_whole.wait()
        try:
            far = socket.create_connection(("127.0.0.1", self._leads_to))
        except OSError:
            near.close()
            return
        for end in (near, far):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as its ends have it
        for ends in ((near, far), (far, near)):
            arguments = (*ends, self._turn)
            threading.Thread(target=self._pass_on, args=arguments, daemon=True).start()

    def _pass_on(self, giver: socket.socket, taker: socket.socket, turn: int) -> None:
        with suppress(OSError):
            while (piece := giver.recv(1 << 16)) and turn == self._turn:
                taker.sendall(piece)
        self._is_whole.wait()  # an end of a connection does not pass either
        for end in (giver, taker):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
