"""Both ends of our AMQP 1.0 machine in memory: a small client of our own, and proton's engine.

No socket and no clock: `now_s` is whatever the test says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, TypeVar

from proton import Collector, Connection, Endpoint, Transport

from broker_shim.amqp_1_0.composites import Attach, Begin, Composite, Flow, Open, Source, Target
from broker_shim.amqp_1_0.composites import Transfer as TransferFrame
from broker_shim.protocol_1_0 import connection as machine
from broker_shim.protocol_1_0 import events
from broker_shim.protocol_1_0.codec.composites import read_performative
from broker_shim.protocol_1_0.codec.frames import (
    AMQP_FRAME,
    AMQP_HEADER,
    FrameDecoder,
    encoded_frame,
    transfer_frame,
)
from broker_shim.protocol_1_0.peer_settings import Settings
from broker_shim.protocol_1_0.sasl.mechanisms import Anonymous
from broker_shim.protocol_1_0.session import Session

ANONYMOUS = {"ANONYMOUS": Anonymous}
SETTINGS = Settings("broker", max_sessions=8, max_links=16, requires_sasl=False)
E = TypeVar("E")


def server(settings: Settings = SETTINGS) -> machine.ServerConnection:
    return machine.ServerConnection(settings, ANONYMOUS, now_s=0.0)


def one_by_one(happened: Iterable[events.Event]) -> list[events.Event]:
    """Events in which each delivery that came whole has one of its own."""
    singles: list[events.Event] = []
    for event in happened:
        if isinstance(event, events.DeliveriesReceived):
            assert event.delivery.length == len(event.starts) == len(event.ends)
            singles += map(event.piece, range(event.delivery.length))
        else:
            singles.append(event)
    return singles


class Client:
    """Writes frames and reads what comes back; it keeps no rule of the protocol by itself.

    But it counts transfers: what a flow says of the next one is filled in by `send`.
    """

    def __init__(self, peer: machine.ServerConnection) -> None:
        self.peer = peer
        self.now_s = 0.0
        self.events: list[events.Event] = []
        self._decoder = FrameDecoder(1 << 30)
        self._has_header = False
        self._transfers: Counter[int] = Counter()

    def write(self, encoded: bytes) -> None:
        self.peer.receive_data(encoded, now_s=self.now_s)
        self.events += one_by_one(self.peer.events())

    def send(self, *performatives: Composite, channel: int = 0) -> None:
        encoded = b""
        for each in performatives:
            is_flow = isinstance(each, Flow)
            told = replace(each, next_outgoing_id=self._transfers[channel]) if is_flow else each
            encoded += encoded_frame(told, channel)
            self._transfers[channel] += isinstance(each, TransferFrame)
        self.write(encoded)

    def transfer(self, transfer: TransferFrame, payload: bytes, *, channel: int = 0) -> None:
        self._transfers[channel] += 1
        self.write(transfer_frame(channel, transfer, len(payload)) + payload)

    def read(self) -> list[tuple[int, Any, bytes]]:
        """What came since: channel, performative (None for a heartbeat), payload."""
        self._decoder.feed(b"".join(self.peer.data_to_send(now_s=self.now_s)))
        if not self._has_header:
            assert self._decoder.next_header() == AMQP_HEADER
            self._has_header = True
        found: list[tuple[int, Any, bytes]] = []
        while (frame := self._decoder.next_frame()) is not None:
            assert frame.kind == AMQP_FRAME
            if frame.start == frame.end:
                found.append((frame.channel, None, b""))
                continue
            performative, at = read_performative(frame.encoded, frame.start, frame.end)
            found.append((frame.channel, performative, frame.encoded[at : frame.end]))
        return found

    def performatives(self) -> list[Any]:
        return [performative for _, performative, _ in self.read()]

    def take(self, kind: type[E]) -> E:
        """The oldest event, which is of this kind."""
        event = self.events.pop(0)
        assert isinstance(event, kind), event
        return event

    def take_last(self, kind: type[E]) -> E:
        """The newest event of this kind."""
        return next(each for each in reversed(self.events) if isinstance(each, kind))

    def opened(self, **fields: Any) -> Client:
        self._decoder.max_frame_bytes = fields.get("max_frame_size", 1 << 30)
        self.write(AMQP_HEADER.encoded())
        self.send(Open("client", **fields))
        self.take(events.ConnectionOpened)
        self.peer.open()
        return self

    def begun(self, channel: int = 0, window: int = 2048, **fields: Any) -> Session:
        self._transfers[channel] = 0
        self.send(
            Begin(next_outgoing_id=0, incoming_window=window, outgoing_window=window, **fields),
            channel=channel,
        )
        session = self.take(events.SessionBegun).session
        session.begin()
        return session

    def sending(self, handle: int = 0, *, channel: int = 0, credit: int = 10, **fields: Any) -> Any:
        """Attach as a sender; the machine's receiving end, with credit given."""
        self.send(attach(handle, is_receiver=False, **fields), channel=channel)
        link = self.take(events.LinkAttached).link
        link.attach(source=link.remote.source, target=link.remote.target)
        if credit:
            link.flow(credit)
        self.read()
        return link

    def receiving(
        self, handle: int = 0, *, channel: int = 0, credit: int = 10, **fields: Any
    ) -> Any:
        """Attach as a receiver; the machine's sending end, with credit had."""
        self.send(attach(handle, is_receiver=True, **fields), channel=channel)
        link = self.take(events.LinkAttached).link
        link.attach(source=link.remote.source, target=link.remote.target)
        if credit:
            self.send(flow(handle, credit), channel=channel)
            self.take(events.FlowReceived)
        self.read()
        return link


def attach(handle: int = 0, *, is_receiver: bool = False, **fields: Any) -> Attach:
    told = {"source": Source("q"), "target": Target("q"), **fields}
    told.setdefault("initial_delivery_count", None if is_receiver else 0)
    return Attach(f"link-{handle}", handle, is_receiver, **told)


def flow(handle: int | None = None, credit: int | None = None, **fields: Any) -> Flow:
    told = {"delivery_count": 0 if handle is not None else None, "next_incoming_id": 0, **fields}
    told.setdefault("incoming_window", 2048)
    return Flow(next_outgoing_id=0, outgoing_window=2048, handle=handle, link_credit=credit, **told)


class ProtonClient:
    """proton's engine as the client, bytes carried by hand to a machine of ours."""

    def __init__(
        self,
        settings: Settings = SETTINGS,
        *,
        max_frame_bytes: int = 0,
        cut: Callable[[bytes], Iterable[bytes]] = lambda encoded: [encoded],
    ) -> None:
        self.peer = server(settings)
        self.events: list[events.Event] = []
        self.collector = Collector()
        self.transport = Transport()
        if max_frame_bytes:
            self.transport.max_frame_size = max_frame_bytes
        if settings.requires_sasl:
            self.transport.sasl().allowed_mechs("ANONYMOUS")
        self.connection = Connection()
        self.connection.container = "proton"
        self.connection.collect(self.collector)
        self.transport.bind(self.connection)
        self._cut = cut

    def exchange(self) -> None:
        """Carry bytes both ways until neither side has any."""
        while True:
            pending = max(0, self.transport.pending())
            if pending:
                encoded = bytes(self.transport.peek(pending))
                self.transport.pop(pending)
                for piece in self._cut(encoded):
                    self.peer.receive_data(piece, now_s=0.0)
                self.events += one_by_one(self.peer.events())
            answer = b"".join(self.peer.data_to_send(now_s=0.0))
            is_answered = bool(answer)
            while answer and (room := self.transport.capacity()) > 0:
                self.transport.push(answer[:room])
                answer = answer[room:]
            assert not answer, self.transport.condition
            if not pending and not is_answered:
                return

    def take(self, kind: type[E]) -> E:
        """The oldest event, which is of this kind."""
        event = self.events.pop(0)
        assert isinstance(event, kind), event
        return event

    def begun(self, incoming_capacity: int = 0) -> tuple[Any, Session]:
        """Proton's session and ours, begun by both; capacity in bytes, 0 for any number."""
        theirs = self.connection.session()
        theirs.incoming_capacity = incoming_capacity
        self.connection.open()
        theirs.open()
        self.exchange()
        if isinstance(self.events[0], events.Authenticated):
            self.events.pop(0)
        self.take(events.ConnectionOpened)
        self.peer.open()
        ours = self.take(events.SessionBegun).session
        ours.begin()
        self.exchange()
        assert theirs.state & Endpoint.REMOTE_ACTIVE
        return theirs, ours
