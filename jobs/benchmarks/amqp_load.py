"""AMQP 1.0 clients that cost next to nothing: bytes prepared once, answers counted, not decoded.

A sender's transfers all have one length, so what credit and window allow is one slice of one
buffer. A receiver looks at the header of each frame and accepts what it got in ranges. What tells
credit or windows is decoded; there are few such frames.
"""

from __future__ import annotations

import math
import selectors
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import count, pairwise

from broker_shim.amqp_1_0.composites import (
    Accepted,
    Attach,
    Begin,
    Close,
    Composite,
    Disposition,
    Flow,
    Open,
    SaslInit,
    Source,
    Target,
    Transfer,
)
from broker_shim.protocol_1_0.codec.composites import read_performative
from broker_shim.protocol_1_0.codec.frames import (
    AMQP_HEADER,
    SASL_FRAME,
    SASL_HEADER,
    encoded_frame,
    transfer_frame,
)

WINDOW = (1 << 31) - 1
CREDIT = 1_000
_READ_BYTES = 1 << 18
_TICK_S = 0.002
_NUMBERS = count(1)
"""Of connections: with one container id the second link of a name would steal the first."""
_HEADERS = {True: b"\x00\x53\x70\xc0\x02\x01\x41", False: b"\x00\x53\x70\xc0\x02\x01\x42"}
"""Header sections: durable or not."""


def message(
    size: int, *, durable: bool = True, number: int | None = None, have_properties: bool = False
) -> bytes:
    """A message with `size` bytes of data, and with a message id, if it has a number.

    With that it may have five application properties, whose values are its own and of one length.
    """
    named = b"" if number is None else b"\x00\x53\x73\xc0\x0a\x01\x80" + number.to_bytes(8, "big")
    if have_properties:
        named += _properties(number or 0)
    data = b"\x00\x53\x75\xb0" + size.to_bytes(4, "big") + bytes(size)
    return _HEADERS[durable] + named + data


def _properties(number: int) -> bytes:
    """Application properties: an order, a customer, a region, a price and a flag."""
    values = {
        "order": b"\xa1\x0eorder-%08d" % (number % 10**8),
        "customer": b"\x81" + (number * 7919).to_bytes(8, "big"),
        "region": b"\xa1\x05%05d" % (number % 97),
        "price": b"\x82" + struct.pack(">d", number / 8),
        "urgent": (b"\x41", b"\x42")[number % 2],
    }
    pairs = b"".join(
        b"\xa1" + bytes([len(key)]) + key.encode() + value for key, value in values.items()
    )
    return b"\x00\x53\x74\xd1" + struct.pack(">II", len(pairs) + 4, 10) + pairs


def transfers(count: int, payload: bytes) -> bytes:
    """So many deliveries from id 0, each of the same length."""
    return transfers_of([payload] * count)


def transfers_of(payloads: Sequence[bytes]) -> bytes:
    """A delivery of each, from id 0."""
    return b"".join(
        transfer_frame(0, Transfer(0, n, n.to_bytes(8, "big"), 0, settled=False), len(payload))
        + payload
        for n, payload in enumerate(payloads)
    )


class RawPeer:
    """One connection with one session, open and begun."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""
        self.socket.sendall(SASL_HEADER.encoded())
        self._header()
        self._until("sasl-mechanisms")
        self.socket.sendall(encoded_frame(SaslInit("ANONYMOUS"), kind=SASL_FRAME))
        self._until("sasl-outcome")
        self.socket.sendall(AMQP_HEADER.encoded())
        self._header()
        begin = Begin(next_outgoing_id=0, incoming_window=WINDOW, outgoing_window=WINDOW)
        self.send(
            Open(f"load-{next(_NUMBERS)}", hostname="127.0.0.1", max_frame_size=1 << 16), begin
        )
        self._until("begin")

    def send(self, *performatives: Composite) -> None:
        """Frames without payload."""
        self.socket.sendall(b"".join(map(encoded_frame, performatives)))

    def frames(self) -> Iterator[tuple[bytes, int, int]]:
        """Wait for bytes; the frames that are whole: bytes, where the body starts, where it ends.

        Raises:
            ConnectionError: The broker hung up.
        """
        received = self.socket.recv(_READ_BYTES)
        if not received:
            raise ConnectionError("the broker hung up")
        encoded, at = self._received + received, 0
        while len(encoded) - at >= 4:
            end = at + int.from_bytes(encoded[at : at + 4], "big")
            if end > len(encoded):
                break
            if end - at > 8:
                yield encoded, at + 8, end
            at = end
        self._received = encoded[at:]

    def close(self) -> None:
        """Say goodbye and wait until the broker has."""
        self.send(Close())
        with suppress(OSError):
            while self.socket.recv(_READ_BYTES):
                pass
        self.socket.close()

    def _header(self) -> None:
        """It may have come together with what was before it: some brokers do not wait for ours."""
        while len(self._received) < 8:
            self._received += self.socket.recv(8 - len(self._received))
        header, self._received = self._received[:8], self._received[8:]
        assert header[:4] == b"AMQP", header

    def _until(self, name: str) -> None:
        names: set[str] = set()
        while name not in names:
            names = {read_performative(*frame)[0].NAME for frame in self.frames()}


class LoadSender:
    """Sends what was prepared, as fast as it may, or so many deliveries a second.

    Attributes:
        settled: Deliveries that the broker has settled.
    """

    def __init__(
        self,
        port: int,
        address: str,
        stream: bytes,
        count: int,
        most_unsettled: int = WINDOW,
        per_second: float = math.inf,
    ) -> None:
        self.peer = RawPeer(port)
        self._stream, self._count = memoryview(stream), count
        self._size = len(stream) // count
        self._most_unsettled, self._per_second = most_unsettled, per_second
        self._sent = self._limit = self._window = self.settled = 0
        source, target = Source("load"), Target(address)
        self.peer.send(
            Attach("s", 0, False, source=source, target=target, initial_delivery_count=0)
        )
        self._began_s = time.perf_counter()

    @property
    def is_done(self) -> bool:
        """True once everything is settled."""
        return self.settled >= self._count

    def step(self) -> None:
        """Read what came, send what may go."""
        for encoded, start, end in self.peer.frames():
            answer = read_performative(encoded, start, end)[0]
            if isinstance(answer, Disposition):
                assert isinstance(answer.state, Accepted), answer
                self.settled += (
                    (answer.first if answer.last is None else answer.last) - answer.first + 1
                )
            elif isinstance(answer, Flow):
                self._window = (answer.next_incoming_id or 0) + answer.incoming_window
                if answer.handle is not None:
                    self._limit = (answer.delivery_count or 0) + (answer.link_credit or 0)
            else:
                assert isinstance(answer, Attach), answer
        self.write()

    def write(self) -> None:
        """Send what may go."""
        may_wait = self.settled + self._most_unsettled
        due = (time.perf_counter() - self._began_s) * self._per_second
        until = int(min(self._limit, self._window, self._count, may_wait, due))
        if until > self._sent:
            self.peer.socket.sendall(self._stream[self._sent * self._size : until * self._size])
            self._sent = until


def send_all(
    port: int, address: str | Sequence[str], streams: Sequence[bytes], count: int
) -> float:
    """Send each stream of `count` deliveries on a connection of its own; seconds until settled.

    With one address all go there, with several each stream has its own.
    """
    addresses = [address] * len(streams) if isinstance(address, str) else address
    senders = [
        LoadSender(port, address, stream, count)
        for address, stream in zip(addresses, streams, strict=True)
    ]
    with selectors.DefaultSelector() as selector:
        for sender in senders:
            selector.register(sender.peer.socket, selectors.EVENT_READ, sender)
        started = time.perf_counter()
        while not all(sender.is_done for sender in senders):
            for key, _ in selector.select(60):
                key.data.step()
        took = time.perf_counter() - started
    for sender in senders:
        sender.peer.close()
    return took


def send_paced(port: int, address: str, stream: bytes, count: int, per_second: float) -> float:
    """Send so many deliveries a second on one connection; seconds until all are settled."""
    sender = LoadSender(port, address, stream, count, per_second=per_second)
    started = time.perf_counter()
    with selectors.DefaultSelector() as selector:
        selector.register(sender.peer.socket, selectors.EVENT_READ)
        while not sender.is_done:
            if selector.select(_TICK_S):
                sender.step()
            else:
                sender.write()
    took = time.perf_counter() - started
    sender.peer.close()
    return took


def send_in_turn(port: int, address: str, stream: bytes, count: int) -> list[float]:
    """Send one delivery after the other, each when the one before is settled; ms that each took."""
    sender = LoadSender(port, address, stream, count, most_unsettled=1)
    times: list[float] = []
    while not sender.is_done:
        before = sender.settled
        sender.step()
        if sender.settled > before:
            times.append(time.perf_counter())
    sender.peer.close()
    return _gaps_ms(times)


def receive_in_turn(port: int, address: str, count: int) -> list[float]:
    """Take deliveries with a credit of 1; ms from the acceptance of one to the next one's arrival.

    What accepts a delivery and what asks for the next go out together, as clients send them.
    """
    peer = RawPeer(port)
    source, target = Source(address), Target("load")
    peer.send(Attach("r", 0, True, source=source, target=target), _credit(0, 1))
    times: list[float] = []
    while len(times) < count:
        for encoded, start, end in peer.frames():
            if encoded[start + 2] == Transfer.CODE:
                delivery_id = read_performative(encoded, start, end)[0].delivery_id
                times.append(time.perf_counter())
                accepted = Disposition(True, delivery_id, settled=True, state=Accepted())
                more = [_credit(len(times), 1)] if len(times) < count else []
                peer.send(accepted, *more)
    peer.close()
    return _gaps_ms(times)


def _gaps_ms(times: Sequence[float]) -> list[float]:
    return [(after - before) * 1e3 for before, after in pairwise(times)]


def receive_all(port: int, address: str, count: int) -> float:
    """Receive and accept so many; seconds from the credit to the last."""
    peer = RawPeer(port)
    source, target = Source(address), Target("load")
    peer.send(Attach("r", 0, True, source=source, target=target))
    started, got, credited = time.perf_counter(), 0, 0
    peer.send(_credit(0))
    while got < count:
        first = None
        before = got
        for encoded, start, end in peer.frames():
            if encoded[start + 2] == Transfer.CODE:
                if first is None:
                    first = read_performative(encoded, start, end)[0].delivery_id
                got += 1
        if first is not None:
            last = first + got - before - 1
            peer.send(Disposition(True, first, last, settled=True, state=Accepted()))
        if got - credited >= CREDIT // 2:
            peer.send(_credit(got))
            credited = got
    took = time.perf_counter() - started
    peer.close()
    return took


def _credit(count: int, credit: int = CREDIT) -> Flow:
    return Flow(
        next_incoming_id=count,
        incoming_window=WINDOW,
        next_outgoing_id=0,
        outgoing_window=WINDOW,
        handle=0,
        delivery_count=count,
        link_credit=credit,
    )


def attach_idle(port: int, links: int, address: str) -> RawPeer:
    """A connection with so many links that receive, and no credit."""
    peer = RawPeer(port)
    for number in range(links):
        source = Source(address)
        peer.send(Attach(f"idle-{number}", number, True, source=source, target=Target("load")))
    attached = 0
    while attached < links:
        for encoded, start, _end in peer.frames():
            attached += encoded[start + 2] == Attach.CODE
    return peer
