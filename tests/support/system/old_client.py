"""A small client of AMQP 0-10 on a real socket: one connection, one session, one step at a time."""

from __future__ import annotations

import socket
from collections import deque
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, Self

from broker_shim.amqp_0_10.commands import (
    DtxEnd,
    DtxSelect,
    DtxStart,
    ExecutionException,
    ExecutionResult,
    MessageAccept,
    MessageFlow,
    MessageFlush,
    MessageSubscribe,
    MessageTransfer,
    QueueDeclare,
)
from broker_shim.amqp_0_10.controls import (
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStartOk,
    ConnectionTuneOk,
    SessionAttach,
    SessionAttached,
    SessionCommandPoint,
    SessionCompleted,
)
from broker_shim.amqp_0_10.definitions import DtxXaStatus
from broker_shim.amqp_0_10.structs import DtxXid
from broker_shim.framing.assembly import Assembly, MethodReader, frames_of
from broker_shim.framing.frames import PROTOCOL_HEADER, FrameReader
from broker_shim.framing.order import FramingLimits
from broker_shim.framing.segments import HeaderSegment
from broker_shim.framing.sequences import Ranges, contains
from broker_shim.handlers.content import ContentCollector
from tests.support.amqp.amqp_0_10 import INFINITE, content
from tests.support.readiness import is_ready

TIMEOUT_S = 60


class OldMessage(NamedTuple):
    """What came: its number, header and body."""

    number: int
    header: HeaderSegment
    body: bytes


class OldClient:
    """See above.

    Attributes:
        exception: Why the session ended; None while it lives.
        results: By the number of the command.
        elsewhere: What it was told on other channels than its own.
    """

    def __init__(self, url: str, session: bytes = b"s", timeout_s: float = TIMEOUT_S) -> None:
        self.port = int(url.rpartition(":")[2])
        self._socket = socket.create_connection(("127.0.0.1", self.port), timeout=timeout_s)
        self._frames, self._methods = FrameReader(), MethodReader(FramingLimits())
        self._content = ContentCollector(wants_body=True)
        self._came: deque[OldMessage] = deque()
        self._completed: Ranges = ()
        self._next = self._their_next = 0
        self._told: deque[Any] = deque()
        self.exception: ExecutionException | None = None
        self.results: dict[int, Any] = {}
        self.elsewhere: list[Any] = []
        self._socket.sendall(PROTOCOL_HEADER)
        assert self._socket.recv(8, socket.MSG_WAITALL) == PROTOCOL_HEADER
        self.say(ConnectionStartOk({}, "ANONYMOUS", b"", "en_US"), 0)
        self.say(ConnectionTuneOk(255, 65_535, 0), 0)
        self.say(ConnectionOpen(""), 0)
        self._wait_for(ConnectionOpenOk)
        self.say(SessionAttach(session))
        self._wait_for(SessionAttached)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, why: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up without a word."""
        self._socket.close()

    def say(self, method: Any, channel: int = 1, **parts: Any) -> int:
        """Send a control or command, and wait for nothing; a command's number."""
        assembly = Assembly(channel, method, **parts)
        self._socket.sendall(b"".join(frame.encoded for frame in frames_of(assembly)))
        self._next = (self._next + (channel == 1 and not assembly.is_control)) % (1 << 32)
        return self._next - 1

    def write(self, encoded: bytes, commands: int = 0) -> int:
        """Bytes as they are, which finish so many commands on channel 1; the last one's number."""
        self._socket.sendall(encoded)
        self._next = (self._next + commands) % (1 << 32)
        return self._next - 1

    def number_from(self, command_id: int) -> None:
        """Give the next command this number."""
        self.say(SessionCommandPoint(command_id, 0))
        self._next = command_id

    def end_writing(self) -> None:
        """Say no more, and read past all until the broker has hung up."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
            while self._socket.recv(1 << 16):
                pass

    def do(self, method: Any, **parts: Any) -> Any:
        """The same as `say`, until it is complete; its result, if it has one.

        Raises:
            AssertionError: It was refused: `exception` says why.
        """
        return self.wait_for(self.say(method, sync=True, **parts))

    def wait_for(self, number: int) -> Any:
        """Until a command is complete; its result, and what it raises, as of `do`."""
        while not contains(self._completed, number):
            self._read()
            assert self.exception is None, self.exception
        return self.results.get(number)

    def publish(self, queue: str, body: bytes, **said: Any) -> None:
        """Send a durable message, until it is complete."""
        self.do(MessageTransfer("", 1, 0), **content(queue, body, delivery_mode=2, **said))

    def subscribe(self, queue: str, name: str = "d", count: int = INFINITE, **said: Any) -> None:
        """Consume, with credit."""
        accept, acquire = said.pop("accept_mode", 0), said.pop("acquire_mode", 0)
        self.do(MessageSubscribe(queue, name, accept, acquire, **said))
        self.do(MessageFlow(name, 1, INFINITE))
        self.do(MessageFlow(name, 0, count))

    def work_in_branch(self, queue: str, xid: DtxXid, put: bytes = b"put") -> None:
        """Make a queue with `taken`; a branch takes that and puts `put`, and is ended."""
        self.do(QueueDeclare(queue, durable=True))
        self.publish(queue, b"taken")
        self.do(DtxSelect())
        self.subscribe(queue, count=1)
        taken = self.receive()
        assert self.do(DtxStart(xid)).status == DtxXaStatus.XA_OK
        self.publish(queue, put)
        self.do(MessageAccept(((taken.number, taken.number),)))
        assert self.do(DtxEnd(xid)).status == DtxXaStatus.XA_OK

    def wait_for_elsewhere(self, kind: type, count: int) -> None:
        """Until it was told so many of a kind on other channels."""
        while sum(isinstance(each, kind) for each in self.elsewhere) < count:
            self._read()

    def receive(self) -> OldMessage:
        """Wait for the next message."""
        while not self._came:
            self._read()
            assert self.exception is None, self.exception
        return self._came.popleft()

    def flushed(self, name: str = "d") -> list[OldMessage]:
        """Return all that is on the queue of a subscription, which has credit for it."""
        self.do(MessageFlush(name))
        messages = [*self._came]
        self._came.clear()
        return messages

    @property
    def is_told_nothing(self) -> bool:
        """True if nothing has come that was not read."""
        return not is_ready(self._socket, 0)

    def _wait_for(self, kind: type) -> None:
        while not any(isinstance(each, kind) for each in self._told):
            self._read()
        self._told.clear()

    def _read(self) -> None:
        received = self._socket.recv(1 << 16)
        assert received, "the broker hung up"
        for frame in self._frames.feed(received):
            taken = self._methods.take(frame)
            if frame.channel > 1:
                if isinstance(taken, Assembly):
                    self.elsewhere.append(taken.method)
            elif isinstance(taken, Assembly):
                self._hear(taken)
                if self._content.begin(taken):
                    self._take(taken)
            elif taken is not None:
                whole, _ = self._content.add(taken)
                if whole is not None:
                    self._take(whole)

    def _hear(self, assembly: Assembly) -> None:
        method = assembly.method
        self._told.append(method)
        if isinstance(method, SessionCompleted):
            self._completed = method.commands or ()
        elif isinstance(method, SessionCommandPoint):
            self._their_next = method.command_id
        elif isinstance(method, ExecutionException):
            self.exception = method
        elif isinstance(method, ExecutionResult):
            self.results[method.command_id] = method.value
        if not assembly.is_control:
            assembly.command_id, self._their_next = self._their_next, self._their_next + 1

    def _take(self, assembly: Assembly) -> None:
        if isinstance(assembly.method, MessageTransfer):
            assert assembly.command_id is not None
            body = b"" if assembly.body is None else assembly.body.payload
            header = assembly.header or HeaderSegment.of()
            self._came.append(OldMessage(assembly.command_id, header, body))
