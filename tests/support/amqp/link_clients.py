"""A broker in memory and clients that write frames: attach, detach and resume as they like."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import proton

from broker_shim.amqp_1_0.composites import (
    Attach,
    Begin,
    Close,
    Composite,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    SaslInit,
    Source,
    Target,
)
from broker_shim.amqp_1_0.composites import Transfer as TransferFrame
from broker_shim.broker.settings import BrokerSettings
from broker_shim.links import LinkRegistry, MemoryUnsettledStore
from broker_shim.listener_1_0.host import Amqp10Listener
from broker_shim.protocol_1_0.codec.composites import read_performative
from broker_shim.protocol_1_0.codec.frames import (
    AMQP_HEADER,
    SASL_FRAME,
    SASL_HEADER,
    FrameDecoder,
    encoded_frame,
    transfer_frame,
)
from broker_shim.serve.broker_recovery import recover
from broker_shim.sockets.access import LOOPBACK, Access
from broker_shim.store.interface import BrokerStore
from broker_shim.store.json.json_link_store import JsonLinkStore
from broker_shim.store.json.json_store import JsonMessageStore
from broker_shim.store.link_stores import link_stores_of
from broker_shim.store.memory import MemoryMessageStore
from tests.support.amqp.memory_broker import MemoryBroker
from tests.support.stores.stores import RecordedMessageStore

_FRAME_BYTES = 30_112
"""Of a frame that the client sends, unless it takes smaller ones itself: the broker takes it."""
_AROUND_BYTES = 112
"""Of such a frame, what is no content."""
WINDOW = 1 << 16
"""Frames that the client takes before it says that it takes more, which it never does."""


class Place:
    """Where a broker keeps what it keeps; a crash leaves it."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self._folder = kind, folder
        self._log: list[bytes] = []

    def open(self) -> tuple[BrokerStore, LinkRegistry]:
        """Its store, and its links."""
        if self.kind == "memory":
            store: BrokerStore = MemoryMessageStore()
        elif self.kind == "json":
            store = JsonMessageStore(self._folder / "wiring.json")
            links = JsonLinkStore(self._folder / "links.json")
            return store, LinkRegistry(links, MemoryUnsettledStore())
        else:
            store = RecordedMessageStore(self._log)
        return store, LinkRegistry(*link_stores_of(store))


class House(MemoryBroker):
    """A broker, moved step by step; opened on the same place again it is a restart."""

    def __init__(self, place: Place, settings: BrokerSettings | None = None) -> None:
        self.place = place
        self.store, self.registry = place.open()
        self._is_answering = True
        self.settings = settings or BrokerSettings()
        super().__init__(self.store, self.settings)
        self.host = Amqp10Listener(self.broker, self.registry)
        recover(self.store, self.host)
        self.run()

    @contextmanager
    def store_that_does_not_answer(self) -> Iterator[None]:
        """What the store completes in here is known when this ends."""
        held: list[tuple[Any, Any]] = []
        post, guard = self.inbox.post, threading.Lock()

        def hold(call: Any, told: object, _weight: int = 1) -> None:
            with guard:
                if self._is_answering:
                    post(call, told)
                else:
                    held.append((call, told))

        self.inbox.post = hold  # type: ignore[method-assign]
        self._is_answering = False
        yield
        assert self.calls.open_count
        with guard:
            self._is_answering = True
            for call, told in held:
                post(call, told)
        self.run()

    def close(self) -> None:
        """Let go of what the system lent; nothing of it moves any more."""
        if isinstance(self.store, RecordedMessageStore):
            self.store.sink.close()  # its thread posts to the inbox until then
        super().close()

    def _is_waiting(self) -> bool:
        return self._is_answering and super()._is_waiting()

    def restarted(self) -> House:
        """As after kill -9: connections end without a word."""
        if self.place.kind == "json":
            self.store.close()
            self.registry._keeping._link_store.close()  # its lock is the process's
        self.close()
        return House(self.place, self.settings)


class Client:
    """One connection with one session."""

    def __init__(
        self, house: House, container: str = "client", access: Access = LOOPBACK, **fields: Any
    ) -> None:
        self.house = house
        self.ours = house.host.connect(lambda: None, access)
        if access.remote.certificate_name is not None:
            init = encoded_frame(SaslInit("EXTERNAL", b""), kind=SASL_FRAME)
            self.ours.receive(SASL_HEADER.encoded() + init)
            self.ours.output()
        self.frames: list[tuple[Any, bytes]] = []
        self._decoder = FrameDecoder(fields.get("max_frame_size", 1 << 20))
        self._has_header = False
        self._together: bytes | None = None
        frame_bytes = min(_FRAME_BYTES, fields.get("max_frame_size", _FRAME_BYTES))
        self._piece_bytes = frame_bytes - _AROUND_BYTES
        self._tags = 0
        self._delivery_id = self._frames_out = 0
        self.write(AMQP_HEADER.encoded())
        self.send(Open(container, **fields))
        self.send(Begin(next_outgoing_id=0, incoming_window=WINDOW, outgoing_window=WINDOW))
        self.take(Open)
        self.take(Begin)

    def write(self, encoded: bytes) -> None:
        """Bytes to the broker, and what it answers."""
        if self._together is not None:
            self._together += encoded
            return
        self.ours.receive(encoded)
        self.settle_down()

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is written in here comes as one read of the broker."""
        self._together = b""
        yield
        encoded, self._together = self._together, None
        self.write(encoded)

    def send(self, *performatives: Composite) -> None:
        """Frames on channel 0."""
        self.write(b"".join(encoded_frame(each, 0) for each in performatives))

    def settle_down(self) -> None:
        """Read until the broker has no more to say."""
        self.house.run()
        self.ours.unsent(0)  # as a peer tells whenever it was asked to write
        while encoded := self.ours.output():
            self._decoder.feed(encoded)
            self.ours.unsent(0)
            self.house.run()
        if not self._has_header and self._decoder.next_header() is not None:
            self._has_header = True
        while self._has_header and (frame := self._decoder.next_frame()) is not None:
            if frame.start != frame.end:
                told, at = read_performative(frame.encoded, frame.start, frame.end)
                self.frames.append((told, frame.encoded[at : frame.end]))

    def take(self, kind: type) -> Any:
        """The oldest frame of a kind; those before it are passed over."""
        self.settle_down()
        for index, (told, _payload) in enumerate(self.frames):
            if isinstance(told, kind):
                del self.frames[: index + 1]
                return told
        message = f"no {kind.__name__} among {self.frames}"
        raise AssertionError(message)

    def taken(self, kind: type) -> list[tuple[Any, bytes]]:
        """All frames of a kind; the others stay."""
        self.settle_down()
        found = [each for each in self.frames if isinstance(each[0], kind)]
        self.frames = [each for each in self.frames if not isinstance(each[0], kind)]
        return found

    def attach(self, name: str, handle: int = 0, **fields: Any) -> Attach:
        """Attach as a receiver, or as a sender if `is_receiver` is False; the answer."""
        is_receiver = fields.pop("is_receiver", True)
        told = {"target": Target(), "source": Source(), **fields}
        told.setdefault("initial_delivery_count", None if is_receiver else 0)
        self.send(Attach(name, handle, is_receiver, **told))
        answer: Attach = self.take(Attach)
        return answer

    def credit(self, count: int, handle: int = 0, delivery_count: int = 0) -> None:
        """Give credit on a link."""
        self.send(
            Flow(
                next_incoming_id=0,
                incoming_window=WINDOW,
                next_outgoing_id=self._frames_out,
                outgoing_window=WINDOW,
                handle=handle,
                delivery_count=delivery_count,
                link_credit=count,
            )
        )

    def transfers(self) -> list[tuple[bytes, Any]]:
        """(tag, body) of the deliveries that came."""
        return [
            (told.delivery_tag, _body_of(payload)) for told, payload in self.taken(TransferFrame)
        ]

    def deliver(self, tag: bytes, body: object, handle: int = 0, **fields: Any) -> int:
        """Send a message; its delivery id."""
        payload = bytes(proton.Message(body, durable=True).encode())
        return self.deliver_encoded(tag, payload, handle, **fields)

    def deliver_encoded(self, tag: bytes, payload: bytes, handle: int = 0, **fields: Any) -> int:
        """The same, of a message as it is."""
        transfer = TransferFrame(handle, self._delivery_id, tag, 0, **fields)
        self._delivery_id += 1
        size = self._piece_bytes
        cuts = range(0, max(1, len(payload)), size)
        for piece in (payload[at : at + size] for at in cuts[:-1]):
            self._transfer(replace(transfer, more=True), piece)
        last = payload[cuts[-1] :]
        self._transfer(transfer, last)
        return self._delivery_id - 1

    def _transfer(self, transfer: TransferFrame, payload: bytes) -> None:
        self._frames_out += 1
        self.write(transfer_frame(0, transfer, len(payload)) + payload)

    def begin_delivery(self, tag: bytes, handle: int = 0, **fields: Any) -> None:
        """The first frame of a message; none follows."""
        payload = bytes(proton.Message("x" * 100, durable=True).encode())[:50]
        told = {"more": True, **fields}
        transfer = TransferFrame(handle, self._delivery_id, tag, 0, **told)
        self._delivery_id += 1
        self._transfer(transfer, payload)

    def deliver_piece(self, tag: bytes, piece: bytes, handle: int = 0, *, more: bool) -> None:
        """Send a part of a message, which is sent so to its end."""
        transfer = TransferFrame(handle, self._delivery_id, tag, 0, more=more)
        self._delivery_id += not more
        self._transfer(transfer, piece)

    def send_free(self, tag: bytes, handle: int = 0, **fields: Any) -> None:
        """A transfer that tells how a delivery stands, without a message."""
        transfer = TransferFrame(handle, self._delivery_id, tag, 0, **fields)
        self._delivery_id += 1
        self._transfer(transfer, b"")

    def dispose(
        self,
        first: int,
        state: Any,
        *,
        last: int | None = None,
        settled: bool = True,
        as_sender: bool = False,
    ) -> None:
        """Tell the state of a delivery, or of a range of them."""
        self.send(Disposition(not as_sender, first, last, settled, state))

    def detach(self, handle: int = 0, *, closed: bool = False) -> Detach:
        """Detach a link; the answer."""
        self.send(Detach(handle, closed=closed))
        answer: Detach = self.take(Detach)
        return answer

    def end_session(self) -> None:
        """End the session."""
        self.send(End())

    def close(self) -> None:
        """Close the connection."""
        self.send(Close())

    def vanish(self) -> None:
        """The socket is gone."""
        self.ours.receive(b"")
        self.ours.lost()
        self.house.run()


def _body_of(payload: bytes) -> Any:
    message = proton.Message()
    message.decode(payload)
    return message.body
