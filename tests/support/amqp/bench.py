"""A broker in memory and one client, proton's engine, moved step by step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import proton

from broker_shim.broker.settings import BrokerSettings
from broker_shim.completion import OnComplete
from broker_shim.errors import StoreError
from broker_shim.listener_1_0.host import Amqp10Listener
from broker_shim.listener_1_0.messages.message import parse
from broker_shim.store.interface import (
    BrokerStore,
    Content,
    MessageHeader,
    OnLoaded,
    StoredMessage,
)
from broker_shim.store.memory import MemoryMessageStore
from broker_shim.store.remote.remote_store import RemoteMessageStore
from sparkstore.core.entries import Entry
from sparkstore.core.state_machine.call_values import AcquireCall, StoreCall
from tests.support.amqp.memory_broker import MemoryBroker

LIMIT_BYTES = 64 << 10


class Unreadable(MemoryMessageStore):
    """Messages that cannot be read, by id, until they are taken off this list."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: dict[int, StoreError] = {}
        self.acquired = 0
        self.refusals: list[StoreError] = []

    def load(self, message_id: int) -> StoredMessage:
        if message_id in self.errors:
            raise self.errors[message_id]
        return super().load(message_id)

    def at_hand(self, message_ids: Sequence[int]) -> dict[int, Content]:
        return super().at_hand([each for each in message_ids if each not in self.errors])

    def prefetch(self, message_ids: Sequence[int], on_loaded: OnLoaded) -> None:
        for message_id in message_ids:
            if message_id in self.errors:
                on_loaded(message_id, self.errors[message_id])
            else:
                super().prefetch([message_id], on_loaded)

    def headers(self, message_ids: Sequence[int]) -> list[MessageHeader | None]:
        for message_id in message_ids:
            if message_id in self.errors:
                raise self.errors[message_id]
        return super().headers(message_ids)

    def call(self, call: StoreCall, on_complete: OnComplete, *more: Any) -> None:
        if isinstance(call, AcquireCall):
            self.acquired += len(call.message_ids)
            if self.refusals:
                self._sink.finish(on_complete, self.refusals.pop())
                return
        super().call(call, on_complete, *more)


class EntriesAnew(Mapping[str, Mapping[int, Entry]]):
    """What is on the queues of a store that tells it as it was: asked each time.

    A member knows what it was granted (`broker_shim.members`); a broker of these tests has all.
    """

    def __init__(self, store: BrokerStore) -> None:
        self._store = store

    def __getitem__(self, queue: str) -> Mapping[int, Entry]:
        return self._store.recover().entries[queue]

    def __iter__(self) -> Iterator[str]:
        return iter(self._store.recover().entries)

    def __len__(self) -> int:
        return len(self._store.recover().entries)


class Bench(MemoryBroker):
    """A broker and one client, moved step by step."""

    def __init__(self, store: BrokerStore) -> None:
        entries = EntriesAnew(store) if isinstance(store, RemoteMessageStore) else None
        super().__init__(store, BrokerSettings(buffered_bytes=LIMIT_BYTES), entries)
        self.host = Amqp10Listener(self.broker)
        self.on_the_way = b""
        self.ours = self.host.connect(lambda: None)
        self.theirs, self.transport = proton.Connection(), proton.Transport()
        self.transport.bind(self.theirs)
        self.theirs.open()
        self.session = self.theirs.session()
        self.session.open()

    def to_broker(self) -> None:
        while self.transport.pending() > 0:
            self.step_to_broker()
            self.run()

    def step_to_broker(self) -> None:
        """All that the client has to say; nothing is handed out for it yet."""
        waiting = self.transport.pending()
        self.ours.receive(bytes(self.transport.peek(waiting) or b""))
        self.transport.pop(waiting)

    def to_client(self) -> None:
        while self.step_to_client():
            self.run()

    def step_to_client(self) -> int:
        """As much as the client takes at once; how many bytes."""
        if not self.on_the_way:
            self.on_the_way = self.ours.output()
        some = self.on_the_way[: self.transport.capacity()]
        self.on_the_way = self.on_the_way[len(some) :]
        if some:
            self.transport.push(some)
            self.ours.unsent(len(self.on_the_way))
        return len(some)

    def exchange(self) -> None:
        for _ in range(4):
            self.to_broker()
            self.to_client()

    def receiver(self, *, credit: int = 0, **options: int) -> Any:
        """Attach to q; what options say is set on the link."""
        link = self.session.receiver("r")
        link.source.address = "q"
        link.source.distribution_mode = options.get("distribution_mode", 0)
        link.snd_settle_mode = options.get("snd_settle_mode", proton.Link.SND_MIXED)
        link.open()
        self.exchange()
        link.flow(credit)
        return link

    def publish(self, count: int, body_bytes: int, *queues: str) -> list[StoreError | None]:
        answers: list[StoreError | None] = []
        encoded = bytes(proton.Message(body=b"x" * body_bytes, durable=True).encode())
        for _ in range(count):
            header, body = parse(encoded, now_us=0)
            self.broker.publish(header, body, queues or ("q",), answers.append)
        self.run()
        return answers


def received(link: Any) -> list[proton.Delivery]:
    """Deliveries that have come whole."""
    deliveries = []
    while link.current is not None and not link.current.partial:
        deliveries.append(link.current)
        link.advance()
    return deliveries
