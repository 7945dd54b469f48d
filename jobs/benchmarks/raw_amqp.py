"""An AMQP 1.0 client that costs as little as Python allows, so that the broker is what is timed.

It drives proton's engine by its raw functions and encodes or decodes no message: it sends the same
bytes with a number in front of the body, and reads that number.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from typing import Any

from cproton import (
    PN_ACCEPTED,
    PN_DELIVERY,
    PN_LINK_REMOTE_OPEN,
    isnull,
    pn_collector,
    pn_collector_peek,
    pn_collector_pop,
    pn_connection,
    pn_connection_collect,
    pn_connection_open,
    pn_connection_set_container,
    pn_delivery,
    pn_delivery_pending,
    pn_delivery_settle,
    pn_delivery_update,
    pn_event_delivery,
    pn_event_type,
    pn_link_advance,
    pn_link_credit,
    pn_link_flow,
    pn_link_open,
    pn_link_recv,
    pn_link_send,
    pn_link_source,
    pn_link_target,
    pn_receiver,
    pn_sasl,
    pn_sasl_allowed_mechs,
    pn_sender,
    pn_session,
    pn_session_open,
    pn_terminus_set_address,
    pn_transport,
    pn_transport_bind,
    pn_transport_peek,
    pn_transport_pending,
    pn_transport_pop,
    pn_transport_push,
    pn_transport_set_max_frame,
)

HEAD = b"\x00Sp\xc0\x02\x01A\x00Su"
"""A durable message whose body is one binary: header section, then the start of its data."""
_READ_BYTES = 1 << 18


def encoded(number: int, size: int) -> bytes:
    """A durable message of `size` bytes of content, which begin with a number."""
    return HEAD + b"\xb0" + size.to_bytes(4, "big") + number.to_bytes(8, "big") + bytes(size - 8)


def number_in(message: bytes) -> int:
    """The number in a message as the broker passes it on; its header section may have grown."""
    start = message.index(b"\x00Su\xb0") + 8
    return int.from_bytes(message[start : start + 8], "big")


class Peer:
    """One connection with one session."""

    def __init__(self, url: str) -> None:
        host, port = url.removeprefix("amqp://").rsplit(":", 1)
        self.socket = socket.create_connection((host.strip("[]"), int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._collector, self._transport = pn_collector(), pn_transport()
        connection = pn_connection()
        pn_transport_set_max_frame(self._transport, 1 << 16)
        pn_sasl_allowed_mechs(pn_sasl(self._transport), "ANONYMOUS")
        pn_connection_set_container(connection, "bench")
        pn_connection_collect(connection, self._collector)
        pn_transport_bind(self._transport, connection)
        pn_connection_open(connection)
        self.session = pn_session(connection)
        pn_session_open(self.session)

    def write(self) -> None:
        """Send all that waits."""
        while (pending := pn_transport_pending(self._transport)) > 0:
            content = bytes(pn_transport_peek(self._transport, pending)[1])
            self.socket.sendall(content)
            pn_transport_pop(self._transport, len(content))

    def events(self) -> Iterator[Any]:
        """Wait for bytes; the events that they make."""
        received = self.socket.recv(_READ_BYTES)
        if not received:
            raise ConnectionError("the broker hung up")
        while received:
            taken = pn_transport_push(self._transport, received)
            received = received[taken:]
            while not isnull(event := pn_collector_peek(self._collector)):
                yield event
                pn_collector_pop(self._collector)


def send_all(url: str, address: str, first: int, count: int, size: int) -> float:
    """Send numbered messages as fast as credit allows, until each is settled; seconds."""
    peer = Peer(url)
    link = pn_sender(peer.session, "bench-sender")
    pn_terminus_set_address(pn_link_target(link), address)
    pn_link_open(link)
    peer.write()
    sent = settled = 0
    started = time.perf_counter()
    while settled < count:
        for event in peer.events():
            if pn_event_type(event) == PN_DELIVERY:
                pn_delivery_settle(pn_event_delivery(event))
                settled += 1
        while sent < count and pn_link_credit(link) > 0:
            pn_delivery(link, sent.to_bytes(8, "big"))
            pn_link_send(link, encoded(first + sent, size))
            pn_link_advance(link)
            sent += 1
        peer.write()
    peer.socket.close()
    return time.perf_counter() - started


class Receiver:
    """Takes messages in order and accepts each.

    Attributes:
        first_ms: From the credit to the first message.
        numbers: Of the messages, in the order in which they came.
    """

    def __init__(self, url: str, address: str, credit: int = 500) -> None:
        self._peer, self._credit = Peer(url), credit
        self._link = pn_receiver(self._peer.session, "bench-receiver")
        pn_terminus_set_address(pn_link_source(self._link), address)
        pn_link_open(self._link)
        self._peer.write()
        # The broker answers an attach before anything is asked of it.
        while not any(pn_event_type(event) == PN_LINK_REMOTE_OPEN for event in self._peer.events()):
            self._peer.write()
        self.first_ms = 0.0
        self.numbers: list[int] = []

    def take(self, count: int) -> float:
        """Receive and accept so many more; seconds from the credit to the last."""
        wanted = len(self.numbers) + count
        asked = started = time.perf_counter()
        given = min(self._credit, count)
        pn_link_flow(self._link, given)
        self._peer.write()
        while len(self.numbers) < wanted:
            before = len(self.numbers)
            for event in self._peer.events():
                if pn_event_type(event) == PN_DELIVERY:
                    self._receive(pn_event_delivery(event))
            if not self.first_ms and self.numbers:
                self.first_ms = (time.perf_counter() - asked) * 1e3
            more = min(len(self.numbers) - before, count - given)
            if more:
                pn_link_flow(self._link, more)
                given += more
            self._peer.write()
        return time.perf_counter() - started

    def close(self) -> None:
        """Hang up."""
        self._peer.socket.close()

    def _receive(self, delivery: Any) -> None:
        content = bytes(pn_link_recv(self._link, pn_delivery_pending(delivery))[1])
        self.numbers.append(number_in(content))
        pn_delivery_update(delivery, PN_ACCEPTED)
        pn_link_advance(self._link)
        pn_delivery_settle(delivery)
