"""The port at which a standby connects to its primary.

What it bounds: `MOST_GREETING` connections that have not shown the token, `MOST_OF_AN_ADDRESS` of
one address, each with `GREETING_S` for 4 KiB. A wrong token is answered after a second. Behind the
token one standby is served at a time, and only answers (`sparkstore.shipping.frames`).
"""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from contextlib import suppress

from sparkstore.errors import InvalidRequest, StoreError, Unavailable
from sparkstore.log.writer import Log
from sparkstore.shipping.frames import MOST_HELLO_BYTES, PairFrame, StandbyHello, hello_of
from sparkstore.shipping.peer import Peer
from sparkstore.standby.admission import check_standby, check_token
from sparkstore.standby.session import StandbySession

_log = logging.getLogger(__name__)

MOST_GREETING, MOST_OF_AN_ADDRESS = 8, 3
GREETING_S = 30.0
"""A standby reads the end of its own log before it greets."""
_WRONG_TOKEN_S = 1.0
_BRING_UP_S = 60.0
_STOP_S = 10.0
_MOST_REFUSALS = 64


class StandbyPort:
    """Serves standbys of an open log until `close`; the log is closed by who opened it."""

    def __init__(
        self,
        log: Log,
        listening: socket.socket,
        token: str,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        assert log.shipping is not None
        self._log, self._listening, self._token, self._tls = log, listening, token, tls
        self._stopping = threading.Event()
        self._guard = threading.Lock()
        self._greeting: dict[socket.socket, str] = {}
        self._peer: Peer | None = None
        self._refusals: set[tuple[str, str]] = set()
        self._threads: set[threading.Thread] = set()
        self._accepting = threading.Thread(target=self._accept, name="standby port", daemon=True)
        self._accepting.start()

    @property
    def url(self) -> str:
        """Return where it listens."""
        host, port = self._listening.getsockname()[:2]
        return f"tcp:[{host}]:{port}" if ":" in host else f"tcp:{host}:{port}"

    def close(self) -> None:
        """Let go of the standby, and of whoever comes. Close the log before: it may wait for it."""
        self._stopping.set()
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        with self._guard:
            peer, greeting, threads = self._peer, [*self._greeting], [*self._threads]
        if peer is not None:
            peer.close()
        for connection in greeting:
            with suppress(OSError):
                socket.socket.shutdown(connection, socket.SHUT_RDWR)  # of TLS, too
        for thread in (self._accepting, *threads):
            thread.join(_STOP_S)

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                connection, address = self._listening.accept()
                if self._tls is not None:  # its handshake counts as a greeting: see `_serve`
                    connection = self._tls.wrap_socket(
                        connection, server_side=True, do_handshake_on_connect=False
                    )
            except OSError:
                if self._stopping.wait(0.05):
                    return
                continue
            host = str(address[0])
            arguments = (connection, f"{host}:{address[1]}")
            thread = threading.Thread(target=self._serve, args=arguments, daemon=True)
            thread.name = "standby"
            with self._guard:
                self._make_room(host)
                self._greeting[connection] = host
                self._threads.add(thread)
            thread.start()

    def _make_room(self, host: str) -> None:
        """Hang up on whoever greets for longest, if there are too many; under the guard."""
        alike = [one for one, of_host in self._greeting.items() if of_host == host]
        too_many = alike if len(alike) >= MOST_OF_AN_ADDRESS else []
        if len(self._greeting) >= MOST_GREETING:
            too_many = too_many or [*self._greeting]
        for connection in too_many[:1]:
            del self._greeting[connection]
            with suppress(OSError):
                socket.socket.shutdown(connection, socket.SHUT_RDWR)  # of TLS, too

    def _serve(self, connection: socket.socket, where: str) -> None:
        peer = Peer(connection, where, GREETING_S)
        try:
            connection.settimeout(GREETING_S)
            if isinstance(connection, ssl.SSLSocket):
                connection.do_handshake()
            hello = self._greeted(peer)
            self._take_place(connection, peer)
            peer.patience_s = _BRING_UP_S
            check_standby(hello, self._log.root.identity)
            on_live = self._refusals.clear
            StandbySession(self._log, peer, hello, self._stopping, on_live).run()
        except StoreError as reason:
            if not self._stopping.is_set() and self._log.failure is None:
                self._warn(where, reason)
            peer.refuse(reason)
        except OSError as reason:  # of TLS, too
            self._warn(where, reason)
        except Exception:  # noqa: BLE001 - a bug of one session must not end the port
            _log.exception("the session of the standby at %s failed", where)
        finally:
            peer.close()
            with self._guard:
                self._greeting.pop(connection, None)
                self._threads.discard(threading.current_thread())
                if self._peer is peer:
                    self._peer = None

    def _warn(self, where: str, reason: Exception) -> None:
        """Log why there is no standby, once for each machine and reason until one comes up."""
        refusal = (where.rpartition(":")[0], str(reason))
        with self._guard:
            is_known = refusal in self._refusals
            if len(self._refusals) >= _MOST_REFUSALS:
                self._refusals.clear()
            self._refusals.add(refusal)
        if not is_known:
            _log.warning("no standby at %s: %s", where, reason)

    def _greeted(self, peer: Peer) -> StandbyHello:
        kind, body = peer.receive(lambda kind: MOST_HELLO_BYTES if kind == PairFrame.HELLO else 0)
        if kind is not PairFrame.HELLO:
            raise InvalidRequest("a standby greets first")
        hello = hello_of(body)
        try:
            check_token(hello, self._token)
        except InvalidRequest:
            self._stopping.wait(_WRONG_TOKEN_S)
            raise
        return hello

    def _take_place(self, connection: socket.socket, peer: Peer) -> None:
        """Become the one standby.

        Raises:
            Unavailable: There is one, which answers.
        """
        with self._guard:
            self._greeting.pop(connection, None)
            if self._peer is not None:
                message = f"this primary has a standby already, at {self._peer.where}"
                raise Unavailable(f"{message}: a second one is not served")
            self._peer = peer
