"""A broker in memory over a store whose completions a test holds back."""

from __future__ import annotations

from pathlib import Path

from broker_shim.links import LinkRegistry
from broker_shim.store.interface import BrokerStore
from broker_shim.store.link_stores import link_stores_of
from tests.support.amqp.link_clients import House, Place
from tests.support.stores.stores import HeldMessageStore


class HeldPlace(Place):
    """Where a broker is over a store whose completions are held back."""

    def __init__(self) -> None:
        super().__init__("held", Path())
        self.log: list[bytes] = []

    def open(self) -> tuple[BrokerStore, LinkRegistry]:
        """Its store, and its links."""
        store = HeldMessageStore(self.log)
        return store, LinkRegistry(*link_stores_of(store))


class HeldHouse(House):
    """A broker that is moved on until only what is held keeps it from going further."""

    store: HeldMessageStore

    def run(self) -> None:
        """Until it waits for a completion that is held, or for nothing at all."""
        self.broker.dispatch()
        self.store.wait()
        while self.inbox.drain():
            self.broker.dispatch()
            self.store.wait()
