"""An API server of Kubernetes that knows Leases alone, by HTTPS: the one part that is no real one.

It answers as the documents of the API say: 401 without its token, 403 to a role that lacks a verb,
404 for a Lease that is not there, 409 for one that is or has another `resourceVersion` or `uid`,
422 for an update without `resourceVersion`. Faults are asked once for every request.
"""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.amqp.certificates import Authority

ROOT = "/apis/coordination.k8s.io/v1/namespaces/queues/leases"
DROP = -1
"""Of a fault: do the work and close the connection without an answer."""

Fault = Callable[[str], int | None]
"""A status to answer to a method without doing the work, DROP, or None: nothing is wrong."""


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a client that is gone."""


class LeaseServer:
    """Leases of the namespace `queues`, in memory."""

    def __init__(self, folder: Path) -> None:
        authority = Authority(folder)
        pair = authority.issue_server()
        self.account = folder
        (folder / "ca.crt").write_bytes(authority.pair.certificate.read_bytes())
        self.leases: dict[str, dict[str, Any]] = {}
        self.faults: list[Fault] = []
        self.verbs = {"GET", "POST", "PUT"}
        self.version = 100
        self.lock = threading.Lock()
        self.rotate("first")
        self._server = _Quiet(("127.0.0.1", 0), _handler(self))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.certificate, pair.key)
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), daemon=True
        )
        self._thread.start()

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to reach it."""
        return {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(self._server.server_address[1]),
            "SPARKSTORE_SERVICE_ACCOUNT": str(self.account),
        }

    def rotate(self, token: str) -> None:
        """Take another token from now on, as the kubelet writes it."""
        self.token = token
        (self.account / "token").write_text(f"{token}\n")

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Do the work of one request."""
        name = path.removeprefix(ROOT).strip("/")
        if not path.startswith(ROOT):
            return 404, {"message": "namespaces not found"}
        if method not in self.verbs:
            return 403, {"message": f"cannot {method} leases"}
        with self.lock:
            if method == "POST":
                return self._create(body)
            standing = self.leases.get(name)
            if method == "GET":
                return (200, standing) if standing else (404, {"message": "not found"})
            return self._update(name, standing, body)

    def _create(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        name = body["metadata"]["name"]
        if name in self.leases:
            return 409, {"message": f"{name} already exists", "reason": "AlreadyExists"}
        return 201, self._stored(name, body, f"uid-{self.version}")

    def _update(
        self, name: str, standing: dict[str, Any] | None, body: dict[str, Any]
    ) -> tuple[int, dict[str, Any]]:
        sent = body["metadata"]
        if not sent.get("resourceVersion"):
            return 422, {"message": "resourceVersion must be specified for an update"}
        if standing is None and "uid" not in sent:  # an update of what is not there makes it
            return 201, self._stored(name, body, f"uid-{self.version}")
        keys = ("uid", "resourceVersion")
        if standing is None or any(sent.get(key) != standing["metadata"][key] for key in keys):
            return 409, {"message": "the object has been modified", "reason": "Conflict"}
        return 200, self._stored(name, body, sent["uid"])

    def _stored(self, name: str, body: dict[str, Any], uid: str) -> dict[str, Any]:
        self.version += 1
        metadata = body["metadata"] | {"uid": uid, "resourceVersion": str(self.version)}
        self.leases[name] = json.loads(json.dumps(body | {"metadata": metadata}))
        return self.leases[name]

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _handler(server: LeaseServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _any(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size) or b"{}")
            asked = (fault(self.command) for fault in server.faults)
            fault = next((status for status in asked if status is not None), None)
            if self.headers["Authorization"] != f"Bearer {server.token}":
                status, answer = 401, {"message": "Unauthorized"}
            elif fault not in {None, DROP}:
                status, answer = int(fault or 0), {"message": "injected"}
            else:
                status, answer = server.answer(self.command, self.path, body)
            if fault == DROP:
                self.close_connection = True
                return
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = _any  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Handler


@contextmanager
def served(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LeaseServer]:
    """A server that processes of this test find."""
    server = LeaseServer(folder / "api-server")
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    try:
        yield server
    finally:
        server.close()
