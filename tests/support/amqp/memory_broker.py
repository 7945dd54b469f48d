"""The one broker in memory that tests move step by step, whatever its store and its listener."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from broker_shim.broker.metrics import Metrics
from broker_shim.broker.settings import BrokerSettings
from broker_shim.broker.storage.inbox import Inbox
from broker_shim.broker.storage.store_calls import StoreCalls
from broker_shim.broker.virtual_host import Broker
from broker_shim.errors import StoreError
from broker_shim.listener_1_0.messages.common_header import AmqpCommonHeader
from broker_shim.store.interface import BrokerStore
from sparkstore.core.entries import Entry
from tests.support.readiness import is_ready

TIMEOUT_S = 20


class MemoryBroker:
    """A broker without a loop, a socket or a clock: nothing happens until a test says so.

    Attributes:
        inbox: What the store's answers come by.
        fatal: What the store said for which a broker would end.
        delayed: What the broker asked to be called for later, each with the seconds until then.
        calls: What is under way at the store.
        broker: The broker itself.
    """

    def __init__(
        self,
        store: BrokerStore,
        settings: BrokerSettings = BrokerSettings(),  # noqa: B008  # a value, and frozen
        entries: Mapping[str, Mapping[int, Entry]] | None = None,
    ) -> None:
        self.inbox, self.fatal = Inbox(), list[StoreError]()
        self.delayed: list[tuple[float, Callable[[], None]]] = []
        self.calls = StoreCalls(store, self.inbox, self.fatal.append, entries=entries)
        self.broker = Broker(self.calls, settings, Metrics(), self._call_later, AmqpCommonHeader)

    def run(self) -> None:
        """Until the store has answered everything."""
        self.broker.dispatch()
        while self._is_waiting():
            self.take_answers()
            self.broker.dispatch()

    def run_delayed(self) -> None:
        """Make the calls that were put off, and run."""
        self.make_delayed_calls()
        self.run()

    def make_delayed_calls(self) -> None:
        """Make the calls that were put off, but none that they put off."""
        delayed, self.delayed[:] = self.delayed[:], []
        for _delay_s, call in delayed:
            call()

    def take_answers(self) -> None:
        """Wait until the store has answered something, and tell the broker all that it did."""
        assert is_ready(self.inbox, TIMEOUT_S), "no answer of the store"
        self.inbox.drain()

    def close(self) -> None:
        """Let go of what the system lent; nothing of it moves any more."""
        # What is collected later must not write to a descriptor that is another's by then.
        self.inbox.post = lambda *_posted: None  # type: ignore[method-assign]
        self.inbox.close()

    def _is_waiting(self) -> bool:
        """True while the store owes an answer that comes by itself."""
        return bool(self.calls.open_count)

    def _call_later(self, delay_s: float, call: Callable[[], None]) -> None:
        self.delayed.append((delay_s, call))
