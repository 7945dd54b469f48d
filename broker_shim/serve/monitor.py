"""The HTTP port by which a monitor sees a process's metrics, and whether it is well.

    GET /metrics   200, Prometheus' text format, or that of OpenMetrics if `Accept` asks for it
    GET /healthz   200 while the process can answer; 503 if it does not come round: restart it
    GET /readyz    200 while it serves; 503 and one line why not: it starts, stops, has no room

The port is open before the store is, so that a long recovery is seen as one. Answers are put
together on the thread that owns what they tell (`ask`), never on the threads here, of which there
are `MOST_REQUESTS` at a time. A client that says nothing for `PATIENCE_S` is let go of, and before
that if another one needs the place. So silent sockets keep no monitor out.
"""

from __future__ import annotations

import logging
import socket
import threading
from concurrent.futures import TimeoutError as NoAnswer
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import ThreadingMixIn
from typing import Any

from broker_shim.serve.bind_address import ListenAddress, listening_socket
from broker_shim.serve.probes import PATIENCE_S, Probes

_log = logging.getLogger(__name__)

MOST_REQUESTS = 16
_GIVE_WAY_S = 1.0
_TEXT = "text/plain; charset=utf-8"


class Monitor(ThreadingMixIn, HTTPServer):
    """Serves a subject until `close`, on threads of its own."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, address: ListenAddress, subject: Probes) -> None:
        """Listen on the address at once.

        Raises:
            OSError: The port is taken, or not allowed.
        """
        self.address_family = address.family
        self.subject = subject
        self._places = threading.BoundedSemaphore(MOST_REQUESTS)
        self._guard = threading.Lock()
        self._silent: dict[socket.socket, None] = {}
        super().__init__((address.host, address.port), _Request, bind_and_activate=False)
        self.socket.close()
        self.socket = listening_socket(address)
        self.url = f"http://{address.url_host}:{self.socket.getsockname()[1]}"
        threading.Thread(target=self.serve_forever, name="monitor", daemon=True).start()

    def close(self) -> None:
        """Listen no more; what is being answered ends by itself."""
        self.shutdown()
        self.server_close()

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ARG002
        """Whether there is a place for one more; `process_request_thread` gives it back."""
        if not (self._places.acquire(blocking=False) or self._is_room_made()):
            return False
        with self._guard:
            self._silent[request] = None
        return True

    def _is_room_made(self) -> bool:
        """Hang up on who has said nothing for longest, and take its place."""
        with self._guard:
            oldest = next(iter(self._silent), None)
            if oldest is None:
                return False
            del self._silent[oldest]
            with suppress(OSError):  # it was closed meanwhile
                oldest.shutdown(socket.SHUT_RDWR)
        return self._places.acquire(timeout=_GIVE_WAY_S)

    def heard(self, request: socket.socket) -> None:
        """Note that a connection has sent its request, so it keeps its place."""
        with self._guard:
            self._silent.pop(request, None)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer one request on a thread of its own."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.heard(request)
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """Log for debugging that a peer hung up, or said nothing for too long."""
        _log.debug("a request of a monitor was not answered", exc_info=True)


class _Request(BaseHTTPRequestHandler):
    """One request; the answer ends the connection."""

    timeout = PATIENCE_S
    server: Monitor
    server_version = "sparkstore"
    sys_version = ""

    def do_GET(self) -> None:  # the library's name
        """Answer `/metrics`, `/healthz` or `/readyz`; the module says how."""
        self.server.heard(self.connection)
        subject = self.server.subject
        try:
            if self.path == "/metrics":
                self._answer(HTTPStatus.OK, *subject.metrics(self.headers.get("Accept")))
            elif self.path == "/healthz":
                subject.health()
                self._answer(HTTPStatus.OK, b"ok\n")
            elif self.path == "/readyz":
                why = subject.readiness()
                status = HTTPStatus.OK if why is None else HTTPStatus.SERVICE_UNAVAILABLE
                self._answer(status, f"{why or 'ok'}\n".encode(errors="backslashreplace"))
            else:
                found = b"ask for /metrics, /healthz or /readyz\n"
                self._answer(HTTPStatus.NOT_FOUND, found)
        except NoAnswer:
            text = f"the process has not come round for {PATIENCE_S:.0f} s\n"
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, text.encode())

    do_HEAD = do_GET  # noqa: N815  # likewise

    def log_message(self, *_: Any) -> None:
        """Log nothing, as a monitor asks every few seconds."""

    def _answer(self, status: HTTPStatus, body: bytes, kind: str = _TEXT) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
