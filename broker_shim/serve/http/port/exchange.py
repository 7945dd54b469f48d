"""One request and its answer, as whoever answers it sees them.

It outlives the connection while its answer is made. So the two know each other only until either
is over, and leave no cycle for Python's collector.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from email.utils import formatdate
from http import HTTPStatus
from typing import Protocol

import h11

from broker_shim.security.guard import Remote

MOST_WAITING_BYTES = 1 << 16
"""So much of a body may wait to be taken; then no more is read."""
JSON, TEXT = "application/json", "text/plain; charset=utf-8"
_PHRASES = {status.value: status.phrase.encode() for status in HTTPStatus}


@dataclass(slots=True)
class Response:
    """An answer: a body, or parts of one that are made while its reader takes them.

    Attributes:
        body: The whole body; nothing if it comes in `parts`.
        status: The HTTP status code.
        kind: The content's type.
        headers: Headers that it has beside those of its content.
        parts: Makes the parts; an empty one is not sent, and lets this look for the reader.
    """

    body: bytes = b""
    status: int = 200
    kind: str = JSON
    headers: dict[str, str] = field(default_factory=dict)
    parts: AsyncGenerator[bytes, None] | None = None


class Line(Protocol):
    """The connection that a request came by."""

    def read_on(self) -> None:
        """Read more of the body, after saying so to a peer that waits to hear it."""

    async def write(self, head: h11.Response | None, body: bytes, *, is_last: bool) -> None:
        """Write a part of the answer, and return when the peer has room for more."""


class HttpExchange:
    """A request, whose body is read when it is asked for, and the way of its answer.

    Attributes:
        method: The HTTP method.
        path: As it was sent, percent-encoded.
        query: What stands after the question mark, as it was sent.
        headers: By their names in small letters; of one that is said twice the first.
        remote: The other end.
        is_whole: True once the body has come to its end.
        is_answered: True once the answer was written to its end.
        body_bytes: How much of the body has come.
    """

    def __init__(self, line: Line, request: h11.Request, remote: Remote) -> None:
        path, _, query = request.target.partition(b"?")
        self.method = request.method.decode("ascii")
        self.path, self.query = path.decode("ascii", "replace"), query.decode("ascii", "replace")
        pairs = reversed([*request.headers])
        self.headers: Mapping[str, str] = {n.decode(): v.decode("latin-1") for n, v in pairs}
        self.remote = remote
        self.is_whole = self.is_answered = False
        self.body_bytes = 0
        self._line: Line | None = line
        self._waiting = bytearray()
        self._changed = asyncio.Event()

    @property
    def is_full(self) -> bool:
        """True while enough of the body waits to be taken."""
        return len(self._waiting) > MOST_WAITING_BYTES

    def feed(self, piece: bytes) -> None:
        """Take a piece of the body."""
        self._waiting += piece
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

    async def pieces(self) -> AsyncIterator[bytes]:
        """Iterate over the body as it comes.

        Raises:
            ConnectionResetError: The peer was gone before it was whole.
        """
        while not self.is_whole or self._waiting:
            if self._line is None:
                raise ConnectionResetError("the body did not come whole: send it again")
            self._line.read_on()
            await self._changed.wait()
            self._changed.clear()
            piece, self._waiting = bytes(self._waiting), bytearray()
            yield piece

    async def gone(self) -> None:
        """Wait until the peer is gone, or was answered; its body was read."""
        while self._line is not None and not self.is_answered:
            await self._changed.wait()
            self._changed.clear()

    async def answer(self, response: Response) -> None:
        """Send an answer, whole or part by part; a reader that is gone has none any more."""
        headers = {"Date": formatdate(usegmt=True), "Content-Type": response.kind}
        headers |= response.headers
        if response.parts is None:
            headers["Content-Length"] = str(len(response.body))
        reason = _PHRASES.get(response.status, b"")
        head = h11.Response(status_code=response.status, headers=[*headers.items()], reason=reason)
        if response.parts is None:
            await self._write(head, response.body, is_last=True)
        else:
            await self._stream(head, response.parts)

    async def _stream(self, head: h11.Response, parts: AsyncGenerator[bytes, None]) -> None:
        gone = asyncio.ensure_future(self.gone())
        try:
            await self._write(head, b"", is_last=False)
            async with aclosing(parts):
                async for part in parts:
                    if gone.done():
                        return
                    if part:
                        await self._write(None, part, is_last=False)
            await self._write(None, b"", is_last=True)
        finally:
            gone.cancel()

    async def _write(self, head: h11.Response | None, body: bytes, *, is_last: bool) -> None:
        if self._line is not None and not self.is_answered:
            self.is_answered = is_last
            await self._line.write(head, b"" if self.method == "HEAD" else body, is_last=is_last)
