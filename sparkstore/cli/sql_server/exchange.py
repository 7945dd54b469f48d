"""A question and its answer, as they go over the socket: a length in 8 bytes, and JSON."""

from __future__ import annotations

import json
import socket
from typing import Any, NamedTuple

from sparkstore import errors
from sparkstore.cli.query_result import PrintedAnswer

_LENGTH_BYTES = 8


class Question(NamedTuple):
    """A question that a command asks.

    Attributes:
        root: The folder, absolute.
        statement: A SELECT, as the user typed it.
        limit: Most rows; 0: all.
        as_of: The time that is asked about; None: now.
        as_json: Whether a row is printed as a JSON object, or the rows as a table.
    """

    root: str
    statement: str
    limit: int
    as_of: str | None
    as_json: bool


STOP: dict[str, Any] = {"stop": True}
"""Asks a server to end."""
BEAT: dict[str, Any] = {"beat": True}
"""Says, every `BEAT_S` seconds until there is an answer, that the server is alive."""
BEAT_S = 1.0


def send(peer: socket.socket, message: dict[str, Any]) -> None:
    """Send one message as a whole.

    Raises:
        OSError: The other end is gone.
    """
    content = json.dumps(message).encode()
    peer.sendall(len(content).to_bytes(_LENGTH_BYTES, "big") + content)


def receive(peer: socket.socket) -> dict[str, Any]:
    """Wait for one message.

    Raises:
        OSError: The other end is gone; EOFError: it ended before its message was whole.
    """
    length = int.from_bytes(_exactly(peer, _LENGTH_BYTES), "big")
    told: dict[str, Any] = json.loads(_exactly(peer, length))
    return told


def _exactly(peer: socket.socket, length: int) -> bytes:
    parts = []
    while length:
        part = peer.recv(min(length, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def as_message(answer: PrintedAnswer | errors.StoreError) -> dict[str, Any]:
    """An answer, or the error that there is instead, as a message."""
    if isinstance(answer, PrintedAnswer):
        return {"lines": list(answer.lines), "is_cut": answer.is_cut}
    return {"error": type(answer).__name__, "message": str(answer)}


def answer_of(message: dict[str, Any]) -> PrintedAnswer:
    """Read an answer from its message.

    Raises:
        StoreError: The one that there is instead, of the same class.
    """
    if "error" not in message:
        return PrintedAnswer(message["lines"], message["is_cut"])
    kind = getattr(errors, message["error"])
    assert issubclass(kind, errors.StoreError)
    raise kind(message["message"])
