"""A broker in memory and small clients of AMQP 0-10, moved step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from broker_shim.amqp_0_10.commands import ExecutionSync, MessageFlow, MessageSubscribe
from broker_shim.amqp_0_10.commands import MessageTransfer as Transfer
from broker_shim.amqp_0_10.controls import (
    ConnectionOpen,
    ConnectionStartOk,
    ConnectionTuneOk,
    SessionAttach,
    SessionCommandPoint,
    SessionCompleted,
)
from broker_shim.amqp_0_10.structs import MessageDeliveryProperties, MessageProperties
from broker_shim.broker.settings import BrokerSettings
from broker_shim.broker.wiring.routing import DEFAULT_EXCHANGES
from broker_shim.completion import nobody
from broker_shim.framing.assembly import Assembly, MethodReader, frames_of
from broker_shim.framing.frames import PROTOCOL_HEADER, Frame, FrameReader
from broker_shim.framing.order import FramingLimits
from broker_shim.framing.segments import BodySegment, HeaderSegment
from broker_shim.framing.sequences import Ranges, contains
from broker_shim.handlers.content import ContentCollector
from broker_shim.handlers.handler_chain import InsertionPoints
from broker_shim.listener_0_10.host import Amqp010Listener
from broker_shim.security.guard import Guard
from broker_shim.sockets.access import Access
from broker_shim.store.interface import BrokerStore, Exchange, Queue
from broker_shim.store.memory import MemoryMessageStore
from sparkstore.core.state_machine.call_values import CreateCall
from tests.support.amqp.memory_broker import MemoryBroker

INFINITE = 0xFFFFFFFF
_LONG_S = 10.0
"""What shall be done after a shorter time is done at once."""

Found = TypeVar("Found")


class Bench010(MemoryBroker):
    """A broker over a store, and the listener of AMQP 0-10 on it."""

    def __init__(
        self,
        store: BrokerStore | None = None,
        settings: BrokerSettings = BrokerSettings(),  # noqa: B008  # a value, and frozen
        points: InsertionPoints = InsertionPoints(),  # noqa: B008  # likewise
    ) -> None:
        self._timers: list[Callable[[], None]] = []
        super().__init__(store or MemoryMessageStore(), settings)
        self.host = Amqp010Listener(self.broker, points)
        self.clients: list[Client010] = []
        for name, kind in DEFAULT_EXCHANGES.items():
            self.calls.make(CreateCall(exchange := Exchange(name, kind)), nobody)
            self.broker.router.add_exchange(exchange)
        self.broker.create_queue(Queue("q"), lambda _error: None)
        self.run()

    def _call_later(self, delay_s: float, call: Callable[[], None]) -> None:
        if delay_s < _LONG_S:
            super()._call_later(delay_s, call)
        else:
            self._timers.append(call)

    def pass_time(self) -> None:
        """All that should be done after a long time is done."""
        timers, self._timers = self._timers, []
        for call in timers:
            super()._call_later(0.0, call)
        self.run()

    def client(self, guard: Guard | None = None) -> Client010:
        """A client that has said nothing yet."""
        access = Access() if guard is None else Access(guard)
        self.clients.append(Client010(self, access))
        return self.clients[-1]

    def opened(self) -> Client010:
        """A client with a session on channel 1."""
        client = self.client()
        client.open()
        client.attach()
        return client

    def run(self) -> None:
        """Until nothing is under way any more."""
        while True:
            self.broker.dispatch()
            for client in self.clients:
                client.exchange()
            if self.delayed:
                self.make_delayed_calls()
            elif self.calls.open_count:
                self.take_answers()
            elif not self.broker.is_dispatch_due and not any(
                client.has_more for client in self.clients
            ):
                return

    def step(self) -> None:
        """Bytes go back and forth, and no answer of the store is taken."""
        for client in self.clients:
            client.exchange()


class Client010:
    """What a client says and is told; all of it on channel 1, but for the connection's controls.

    Attributes:
        told: All methods that it was told, in order.
        received: Messages: the transfer, its number, header and body.
        had_bodies: Of each of these, whether it had a body segment.
        completed: What session.completed named.
    """

    def __init__(self, bench: Bench010, access: Access) -> None:
        self._bench = bench
        self.connection = bench.host.connect(lambda: None, access)
        self._reader, self._methods = FrameReader(), MethodReader(FramingLimits())
        self._content = ContentCollector(wants_body=True)
        self._to_send = bytearray()
        self._header = b""
        self.told: list[Any] = []
        self.received: list[tuple[Transfer, int, HeaderSegment, bytes]] = []
        self.had_bodies: list[bool] = []
        self.completed: Ranges = ()
        self._their_next = 0
        self.next_id = 0

    @property
    def has_more(self) -> bool:
        """True while something goes back and forth."""
        connection = self.connection
        has_output = connection.room_bytes < connection.broker.settings.buffered_bytes
        return (
            bool(self._to_send) or has_output or (connection.has_more and not connection.is_closed)
        )

    def exchange(self) -> None:
        """Bytes go both ways."""
        sent, self._to_send = bytes(self._to_send), bytearray()
        if sent:
            self.connection.receive(sent)
        elif self.connection.has_more:
            self.connection.go_on(1 << 30)
        came = self.connection.output()
        self.connection.unsent(0)
        if self._header != PROTOCOL_HEADER:
            self._header += came
            self._header, came = self._header[:8], self._header[8:]
        for frame in self._reader.feed(came):
            self._take(frame)

    def _take(self, frame: Frame) -> None:
        taken = self._methods.take(frame)
        if isinstance(taken, Assembly):
            self._hear(taken)
            if not self._content.begin(taken):
                return
        elif taken is None:
            return
        else:
            whole, _ = self._content.add(taken)
            if whole is None:
                return
            taken = whole
        if isinstance(taken.method, Transfer):
            assert taken.command_id is not None
            header = taken.header or HeaderSegment.of()
            body = b"" if taken.body is None else taken.body.payload
            self.received.append((taken.method, taken.command_id, header, body))
            self.had_bodies.append(taken.body is not None)

    def _hear(self, assembly: Assembly) -> None:
        method = assembly.method
        self.told.append(method)
        if isinstance(method, SessionCompleted):
            self.completed = method.commands or ()
        if isinstance(method, SessionCommandPoint):
            self._their_next = method.command_id
        if not assembly.is_control:
            assembly.command_id, self._their_next = self._their_next, self._their_next + 1

    def write(self, encoded: bytes) -> None:
        """Have some bytes sent."""
        self._to_send += encoded

    def say(self, method: Any, channel: int = 1, **parts: Any) -> int:
        """Have a control or command sent, and wait for nothing; a command's number."""
        assembly = Assembly(channel, method, **parts)
        for frame in frames_of(assembly, 4_096):
            self.write(frame.encoded)
        if assembly.is_control:
            return -1
        self.next_id += 1
        return self.next_id - 1

    def do(self, method: Any, **parts: Any) -> int:
        """The same, and wait until nothing is under way."""
        number = self.say(method, **parts)
        self._bench.run()
        return number

    def open(
        self, mechanism: str = "ANONYMOUS", response: bytes = b"", frame_bytes: int = 65_535
    ) -> None:
        """Open the connection, for frames of so many bytes at most."""
        self.write(PROTOCOL_HEADER)
        self.say(ConnectionStartOk({}, mechanism, response, "en_US"), 0)
        self.say(ConnectionTuneOk(200, frame_bytes, 0), 0)
        self.say(ConnectionOpen(""), 0)
        self._bench.run()

    def lose(self) -> None:
        """Its connection is lost."""
        self._to_send.clear()
        self.connection.receive(b"")
        self._bench.run()

    def attach(self, name: bytes = b"session") -> None:
        """Have a session on channel 1."""
        self.do(SessionAttach(name))

    def send(
        self, routing_key: str, body: bytes = b"body", *, exchange: str = "", **said: Any
    ) -> int:
        """Send a message, and wait until nothing is under way."""
        return self.do(Transfer(exchange, 1, 0), **content(routing_key, body, **said))

    def subscribe(self, queue: str, destination: str = "d", **said: Any) -> None:
        """Consume from a queue, without end of credit."""
        accept, acquire = said.pop("accept_mode", 0), said.pop("acquire_mode", 0)
        self.say(MessageSubscribe(queue, destination, accept, acquire, **said))
        for unit in (0, 1):
            self.say(MessageFlow(destination, unit, INFINITE))
        self._bench.run()

    def sync(self) -> bool:
        """Ask for execution.sync; True if it is complete."""
        return self.is_complete(self.do(ExecutionSync(), sync=True))

    def is_complete(self, number: int) -> bool:
        """True if the client was told that a command is complete."""
        return contains(self.completed, number)

    def of(self, kind: type[Found]) -> list[Found]:
        """What it was told of one kind."""
        return [each for each in self.told if isinstance(each, kind)]

    @property
    def bodies(self) -> list[bytes]:
        """The bodies of what it received."""
        return [body for _, _, _, body in self.received]

    @property
    def numbers(self) -> Sequence[int]:
        """The numbers of what it received."""
        return [number for _, number, _, _ in self.received]


def content(routing_key: str, body: bytes = b"body", **said: Any) -> dict[str, Any]:
    """Header and body of a message; `said` of its delivery or message properties."""
    names = MessageDeliveryProperties.__dataclass_fields__
    delivery = {key: value for key, value in said.items() if key in names}
    message = {key: value for key, value in said.items() if key not in names}
    header = HeaderSegment.of(
        MessageDeliveryProperties(routing_key=routing_key, **delivery),
        MessageProperties(content_length=len(body), **message),
    )
    return {"header": header, "body": BodySegment(body) if body else None}
