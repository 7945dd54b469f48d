"""A service of the store protocol that answers by a script, where no real one can be made to."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from broker_shim.store import protocol as wire


class ScriptedService(threading.Thread):
    """Serves one connection after the other."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self.start()

    def answers(self, kind: int, body: Any) -> Iterable[tuple[int, Any] | None]:
        """The frames that answer one, which go together; None at their end hangs up."""
        raise NotImplementedError

    def run(self) -> None:
        while True:
            try:
                peer, _address = self._listener.accept()
            except OSError:
                return
            with peer:
                self._serve(peer)

    def end(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.join()

    def _serve(self, peer: socket.socket) -> None:
        decoder, pack = wire.Decoder(), wire.frame_packer()
        while received := peer.recv(1 << 16):
            for kind, body in decoder.feed(received):
                answers = [*self.answers(kind, body)]
                peer.sendall(b"".join(pack(*answer) for answer in answers if answer is not None))
                if None in answers:
                    return
