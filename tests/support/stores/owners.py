"""The owner of a root, who asks its broker over HTTP at the control socket."""

from __future__ import annotations

import http.client
import json
import socket
from contextlib import closing
from pathlib import Path
from typing import Any

from sparkstore.control.socket_address import SocketAddress
from tests.support.stores.http_houses import TIMEOUT_S, Reply


class OwnerConnection(http.client.HTTPConnection):
    """A connection to the control socket of a root."""

    def __init__(self, root: Path) -> None:
        super().__init__("localhost", timeout=TIMEOUT_S)
        self._root = root

    def connect(self) -> None:
        """Connect by the short name, as a root may be anywhere."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(TIMEOUT_S)
        with SocketAddress(self._root) as address:
            self.sock.connect(address)


def ask_as_owner(root: Path, method: str, path: str, said: Any = None, **headers: str) -> Reply:
    """Ask the broker of a root as its owner; an answer of lines is a list."""
    body = None if said is None else json.dumps(said).encode()
    kind = {} if body is None else {"Content-Type": "application/json"}
    with closing(OwnerConnection(root)) as connection:
        connection.request(method, f"/api/v1/{path}", body, kind | headers)
        answer = connection.getresponse()
        content = answer.read()
    lines = answer.headers.get("Content-Type") == "application/x-ndjson"
    told = [json.loads(line) for line in content.splitlines()] if lines else json.loads(content)
    return Reply(answer.status, told, dict(answer.headers))
