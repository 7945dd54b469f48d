"""A client of a broker in memory that declares transactions; proton's engine."""

from __future__ import annotations

from typing import Any

import proton
from cproton import pn_data_clear, pn_delivery_local, pn_disposition_data
from proton import Delivery, Described, Message, symbol

from broker_shim.serve.broker_recovery import recover
from broker_shim.store.interface import BrokerStore, Queue
from tests.support.amqp.bench import Bench

DECLARED, TRANSACTIONAL = 0x33, 0x34


OUTCOMES = {Delivery.ACCEPTED: 0x24, Delivery.RELEASED: 0x26, Delivery.MODIFIED: 0x27}


class Client(Bench):
    """A broker that has started on a store, with a queue q; a client with a coordinator."""

    def __init__(self, store: BrokerStore, **arguments: Any) -> None:
        super().__init__(store)
        self.store = store
        recover(store, self.host)
        self.broker.create_queue(Queue("q", arguments=arguments), lambda _error: None)
        self.run()
        self._tags = 0
        self.coordinator = self.coordinate()
        self.sender = self.sending("q")

    def coordinate(self, outcomes: str | None = None, name: str = "txn") -> Any:
        link = self.session.sender(name)
        link.target.type = proton.Terminus.COORDINATOR
        link.target.capabilities.put_object(symbol("amqp:local-transactions"))
        if outcomes is not None:
            link.source.outcomes.put_object(symbol(outcomes))
        link.open()
        self.exchange()
        return link

    def sending(self, address: str, session: Any = None) -> Any:
        name = f"to {address}" if session is None else f"to {address} on another session"
        link = (session or self.session).sender(name)
        link.target.address = address
        link.open()
        self.exchange()
        return link

    def command(self, body: object, link: Any = None, *, settled: bool = False) -> Delivery:
        link = link or self.coordinator
        delivery = link.delivery(self.tag())
        link.send(bytes(Message(body).encode()))
        link.advance()
        if settled:
            delivery.settle()
        return delivery

    def tag(self) -> str:
        self._tags += 1
        return f"t{self._tags}"

    def declare(self, link: Any = None) -> bytes:
        delivery = self.command(Described(symbol("amqp:declare:list"), [None]), link)
        self.exchange()
        assert delivery.remote_state == DECLARED
        return bytes(delivery.remote.data[0])

    def discharge(self, txn_id: bytes, *, fail: bool = False) -> Delivery:
        delivery = self.command(Described(symbol("amqp:discharge:list"), [txn_id, fail]))
        self.exchange()
        return delivery

    def publish_one(self, body: object, link: Any = None, **more: Any) -> None:
        """Send a message in no transaction."""
        link = link or self.sender
        link.delivery(self.tag())
        link.send(bytes(Message(body, durable=True, **more).encode()))
        link.advance()
        self.exchange()

    def post(self, txn_id: bytes, body: object, link: Any = None, **more: Any) -> Delivery:
        delivery = self.write(txn_id, body, link, **more)
        self.exchange()
        return delivery

    def write(
        self, txn_id: bytes, body: object, link: Any = None, *, settled: bool = False, **more: Any
    ) -> Delivery:
        link = link or self.sender
        delivery: Delivery = link.delivery(self.tag())
        delivery.local.data = [txn_id]
        delivery.update(TRANSACTIONAL)
        link.send(bytes(Message(body, durable=True, **more).encode()))
        link.advance()
        if settled:
            delivery.settle()
        return delivery

    def retire(
        self,
        txn_id: bytes,
        delivery: Delivery,
        outcome: object = Delivery.ACCEPTED,
        fields: tuple[object, ...] = (),
        *,
        settled: bool = True,
    ) -> None:
        # Proton adds a second state to the first one otherwise, and sends what cannot be read.
        pn_data_clear(pn_disposition_data(pn_delivery_local(delivery._impl)))
        delivery.local.data = [txn_id, Described(proton.ulong(int(outcome)), list(fields))]
        delivery.update(TRANSACTIONAL)
        if settled:
            delivery.settle()
        self.exchange()

    @property
    def bodies(self) -> list[object]:
        """What is on q, in order, held or not."""
        entries = self.store.recover().entries.get("q", {})
        found = []
        for message_id in entries:
            loaded = self.store.load(message_id)
            message = Message()
            message.decode((loaded.header.header or b"") + loaded.body)
            body = message.body
            found.append(bytes(body) if isinstance(body, memoryview) else body)
        return found

    def counts(self) -> list[int]:
        return [entry.delivery_count for entry in self.store.recover().entries["q"].values()]
