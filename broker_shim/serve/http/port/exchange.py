"""One request and its answer, as an application of ASGI sees them.

It outlives the connection while its application runs. So the two know each other only until either
is over, and leave no cycle for Python's collector.
"""

from __future__ import annotations

import asyncio
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, Protocol

import h11

MOST_WAITING_BYTES = 1 << 16
"""So much of a body may wait for the application; then no more is read."""
_PHRASES = {status.value: status.phrase.encode() for status in HTTPStatus}


class Line(Protocol):
    """The connection that a request came by."""

    def read_on(self) -> None:
        """Read more of the body, after saying so to a peer that waits to hear it."""

    async def write(self, head: h11.Response | None, body: bytes, *, is_last: bool) -> None:
        """Write a part of the answer, and return when the peer has room for more."""


class HttpExchange:
    """The two functions that an application gets for a request, and what they share.

    Attributes:
        scope: What the application is told of the request.
        is_whole: True once the body has come to its end.
        is_answered: True once the answer was written to its end.
        body_bytes: How much of the body has come.
    """

    def __init__(self, line: Line, scope: dict[str, Any]) -> None:
        self.scope = scope
        self.is_whole = self.is_answered = False
        self.body_bytes = 0
        self._line: Line | None = line
        self._body = bytearray()
        self._changed = asyncio.Event()
        self._head: h11.Response | None = None

    @property
    def is_full(self) -> bool:
        """True while enough of the body waits for the application."""
        return len(self._body) > MOST_WAITING_BYTES

    def feed(self, piece: bytes) -> None:
        """Take a piece of the body."""
        self._body += piece
        self.body_bytes += len(piece)
        self._changed.set()

    def end_body(self) -> None:
        """Note that the body is whole."""
        self.is_whole = True
        self._changed.set()

    def let_go(self) -> None:
        """Forget the connection, which is over or goes on with the next request."""
        self._line = None
        self._changed.set()

    async def receive(self) -> dict[str, Any]:
        """Return the next piece of the body; after it, wait until the peer is gone."""
        if self._line is not None and not self.is_answered:
            self._line.read_on()
            await self._changed.wait()
        self._changed.clear()
        if self._line is None or self.is_answered:
            return {"type": "http.disconnect"}
        piece, self._body = bytes(self._body), bytearray()
        return {"type": "http.request", "body": piece, "more_body": not self.is_whole}

    async def send(self, message: Any) -> None:
        """Write the head with the first part of the body, and each other part as it comes."""
        if message["type"] == "http.response.start":
            status = message["status"]
            headers = [(b"date", formatdate(usegmt=True).encode()), *message.get("headers", ())]
            reason = _PHRASES.get(status, b"")
            self._head = h11.Response(status_code=status, headers=headers, reason=reason)
            return
        head, self._head = self._head, None
        is_last = not message.get("more_body", False)
        body = b"" if self.scope["method"] == "HEAD" else message.get("body", b"")
        if self._line is not None and not self.is_answered:
            self.is_answered = is_last
            await self._line.write(head, body, is_last=is_last)
