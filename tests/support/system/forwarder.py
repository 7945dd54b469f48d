"""What leads to whichever broker is there: for clients that connect again by themselves."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from pathlib import Path


class Forwarder:
    """Passes bytes on, both ways, between its own port and a broker's.

    When one end of a connection goes, the other is closed: so a client sees that its broker was
    killed. One that connects again meanwhile waits until there is a broker.
    """

    def __init__(self, broker_port: int) -> None:
        self._broker_port = broker_port
        self._is_up = threading.Event()
        self._is_up.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def port(self) -> int:
        """Its own, the same as long as it lives."""
        port: int = self._listener.getsockname()[1]
        return port

    def hold(self) -> None:
        """Let connections that come wait: say so before the broker is killed."""
        self._is_up.clear()

    def lead_to(self, broker_port: int) -> None:
        """Those that wait, and all that come, go there."""
        self._broker_port = broker_port
        self._is_up.set()

    def cut(self) -> None:
        """End every connection that is there now; both ends live on, and may connect again."""
        for end in self._open:
            _shut(end)

    def close(self) -> None:
        """End every connection."""
        self._is_up.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        for end in self._open:
            _shut(end)
        for thread in self._threads:
            thread.join()
        for end in (self._listener, *self._open):
            end.close()

    def _accept(self) -> None:
        with suppress(OSError):  # `close`
            while True:
                client = self._listener.accept()[0]
                self._is_up.wait()
                broker = socket.create_connection(("127.0.0.1", self._broker_port))
                self._open += (client, broker)
                for ends in ((client, broker), (broker, client)):
                    self._threads.append(threading.Thread(target=_pass_on, args=ends, daemon=True))
                    self._threads[-1].start()


def _pass_on(giver: socket.socket, taker: socket.socket) -> None:
    """Until one of them goes."""
    with suppress(OSError):
        while piece := giver.recv(1 << 16):
            taker.sendall(piece)
    _shut(giver)
    _shut(taker)


def _shut(end: socket.socket) -> None:
    """Both ways, so that whoever reads from it or writes to it stops; harmless if it is gone."""
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


class Cutting:
    """A socket that leads to a service's, and cuts the connection in the midst of an answer.

    Attributes:
        cut_after: So many bytes to the client from now on, and once; 0: never.
    """

    def __init__(self, path: Path, service: Path) -> None:
        self.cut_after = 0
        self._service = service
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        """Take no more connections; those that are there end with their client."""
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):  # `close`
            while True:
                client = self._listener.accept()[0]
                service = socket.socket(socket.AF_UNIX)
                service.connect(str(self._service))
                for call, *ends in ((_pass_on, client, service), (self._answer, service, client)):
                    self._threads.append(threading.Thread(target=call, args=ends, daemon=True))
                    self._threads[-1].start()

    def _answer(self, service: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while piece := service.recv(1 << 16):
                if 0 < self.cut_after <= len(piece):
                    client.sendall(piece[: self.cut_after])
                    self.cut_after = 0
                    break
                client.sendall(piece)
                self.cut_after = max(0, self.cut_after - len(piece))
        _shut(service)
        _shut(client)
