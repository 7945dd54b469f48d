"""A client of the store protocol that says exactly what a test tells it to, frame by frame."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any
from uuid import uuid4

from broker_shim.store import protocol as wire
from sparkstore.core.records import Kind, MessageHeader, Record

TIMEOUT_S = 30.0


def enqueue(message_id: int, queue: str = "q", body: bytes | None = b"body") -> Record:
    """An `enqueued` record as a client sends it."""
    header = MessageHeader(body_bytes=len(body or b""))
    return Record(Kind.ENQUEUED, 0, queue, message_id, message=header, body=body)


def create(queue: str = "q") -> Record:
    """A `created` record."""
    return Record(Kind.CREATED, 0, queue, detail='{"durability": 2, "arguments": {}}')


class RawMember:
    """One connection.

    Attributes:
        welcome: What the service answered when it was greeted.
    """

    welcome: wire.Welcome

    def __init__(self, path: Path, member: str = "raw", incarnation: str = "") -> None:
        self.member, self.incarnation = member, incarnation or str(uuid4())
        self.peer = socket.socket(socket.AF_UNIX)
        self.peer.connect(str(path))  # waits where many come at once, as it has no timeout yet
        self.peer.settimeout(TIMEOUT_S)
        self._pack = wire.frame_packer()
        self._decoder = wire.Decoder(1 << 24)
        self._frames: list[wire.Frame] = []

    def say(self, kind: int, *body: Any) -> None:
        """Send one frame."""
        self.peer.sendall(self._pack(kind, body))

    def hears(self) -> wire.Frame | None:
        """The next frame; None at the end of the connection."""
        while not self._frames:
            try:
                received = self.peer.recv(1 << 18)
            except ConnectionResetError:
                received = b""
            if not received:
                return None
            self._frames = self._decoder.feed(received)
        return self._frames.pop(0)

    def hello(
        self,
        host: str | None = None,
        *,
        exclusive: bool = False,
        token: str | None = None,
        version: int = wire.VERSION,
    ) -> wire.Welcome:
        """Greet, and be welcomed."""
        self.say(wire.HELLO, version, self.member, self.incarnation, host, exclusive, token)
        frame = self.hears()
        assert frame is not None
        assert frame[0] == wire.WELCOME, frame
        self.welcome = wire.welcome_of(frame[1])
        return self.welcome

    def until_done(self, request: int) -> list[wire.Refusal]:
        """Wait for DONE of a request; the refusals up to it."""
        refusals: list[wire.Refusal] = []
        while True:
            frame = self.hears()
            assert frame is not None, "the connection ended"
            assert frame[0] == wire.DONE, frame
            refusals += frame[1][1]
            if frame[1][0] >= request:
                return refusals

    def ask(self, request: int, *records: Record) -> list[wire.Refusal]:
        """One DO, until it is done."""
        self.say(wire.DO, request, records)
        return self.until_done(request)

    def read(self, kind: int, *body: Any) -> list[Any]:
        """One read; the bodies of its answers without their numbers."""
        self.say(kind, 1, *body)
        answers: list[Any] = []
        while True:
            frame = self.hears()
            assert frame is not None
            assert frame[0] == wire.ANSWER, frame
            answers.append(frame[1][2:])
            if frame[1][1]:
                return answers

    def ids(self, count: int) -> int:
        """Reserve ids; the first."""
        return int(self.read(wire.IDS, count)[0][0])

    def close(self) -> None:
        """Hang up."""
        self.peer.close()

    def __enter__(self) -> RawMember:
        return self

    def __exit__(self, *_failure: object) -> None:
        self.close()
