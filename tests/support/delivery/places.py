"""Where deliveries are tested: a broker alone, and a broker that is a member of a store service.

Both serve both protocols. Their loops are moved by the test, and their timers go by a clock that
the test moves. The service has a loop of its own, so a test waits for what it is to see there.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

from broker_shim.broker.delivery.delivery_locks import LockTimer
from broker_shim.broker.metrics import Metrics
from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.broker.settings import BrokerSettings
from broker_shim.broker.storage.inbox import Inbox
from broker_shim.broker.storage.store_calls import StoreCalls
from broker_shim.broker.virtual_host import Broker, MakeQueue
from broker_shim.errors import CorruptData, StoreError
from broker_shim.listener_0_10.host import Amqp010Listener
from broker_shim.listener_1_0.host import Amqp10Listener
from broker_shim.members.membership import Membership
from broker_shim.serve.broker_recovery import recover
from broker_shim.serve.headers import all_headers
from broker_shim.serve.members import join
from broker_shim.sockets.served_connection import ConnectionHost
from broker_shim.store.interface import BrokerStore, ExchangeBindingKey, Queue
from broker_shim.store.local import LocalMessageStore
from broker_shim.store.remote.greeting import MemberIdentity
from broker_shim.store.remote.remote_store import RemoteMessageStore
from sparkstore.core.fold import Entry, State
from sparkstore.core.state_machine.call_values import BindCall
from sparkstore.operations.administration import AdminAction, Order
from tests.support.amqp.timers import Clock
from tests.support.delivery.damage import DamagedDeltaStore, DamagedRecordedStore
from tests.support.readiness import is_ready
from tests.support.stores.controls import ServicedRoot
from tests.support.stores.stores import DELTA_CONFIG, done

TIMEOUT_S = 20.0
_POLL_S = 0.02
_DECIDED = {
    *("expired", "dead_lettered", "replaced", "not_durable"),
    *("died_expired", "died_over_delivered", "died_rejected", "died_cycle"),
}


class Side:
    """One protocol of a place, as its clients are given it.

    Attributes:
        host: The listener.
        broker: The virtual host.
        run: Moves the broker until nothing is under way there.
    """

    def __init__(self, host: Any, broker: Broker, run: Callable[[], None]) -> None:
        self.host: ConnectionHost = host
        self.broker, self.run = broker, run


class Losable(Protocol):
    """A client, as far as its place goes."""

    def lose(self) -> None:
        """Lose the connection."""


class DeliveryPlace(ABC):
    """A broker that a test moves.

    Attributes:
        clock: Of the broker's timers.
        broker: The broker that clients are connected to.
        amqp_1_0: Its listener of AMQP 1.0.
        amqp_0_10: Its listener of AMQP 0-10.
        drivers: The clients of this broker, in their order.
        end_turn: Sends what a member's store has put off to the end of a turn.
        exchangers: Called in each round: clients that have bytes for the broker, or take some.
    """

    def __init__(self, settings: BrokerSettings) -> None:
        self.settings = settings
        self.fatal: list[StoreError] = []
        self.end_turn: Callable[[], None] = lambda: None
        self.begin()

    def begin(self) -> None:
        """Start a broker on what is there."""
        self.clock, self.inbox = Clock(), Inbox()
        self.exchangers: list[Callable[[], bool]] = []
        self.drivers: list[Losable] = []
        self.start()
        assert not self.fatal

    def serve(
        self,
        store: BrokerStore,
        entries: Mapping[str, Mapping[int, Entry]] | None = None,
        make_queue: MakeQueue = QueueDispatch,
    ) -> Amqp10Listener:
        """Make the broker and its listeners."""
        self.calls = StoreCalls(store, self.inbox, self.fatal.append, entries=entries)
        self.broker = Broker(
            self.calls, self.settings, Metrics(), self.clock.later, all_headers(), make_queue
        )
        self.broker.lock_timer = LockTimer(self.clock.later, lambda: self.clock.now_s)
        host = Amqp10Listener(self.broker)
        older = Amqp010Listener(self.broker)
        self.amqp_1_0 = Side(host, self.broker, self.run)
        self.amqp_0_10 = Side(older, self.broker, self.run)
        return host

    @property
    @abstractmethod
    def store(self) -> LocalMessageStore:
        """The store that has the messages: where programs beside the broker call it."""

    @abstractmethod
    def start(self) -> None:
        """Open the store, and serve it."""

    @abstractmethod
    def crash(self) -> None:
        """End the broker as a kill does, and start it again."""

    @abstractmethod
    def damage(self, message_id: int) -> None:
        """Have the content of a message be unreadable from now on."""

    @abstractmethod
    def count(self, name: str) -> int:
        """A counter of the broker; of the service's, if it counts what that alone decides."""

    def run(self) -> None:
        """Move the broker until nothing is under way that ends by itself."""
        has_more = True
        while has_more:
            self.broker.dispatch()
            exchanged = [exchange() for exchange in self.exchangers]
            self.end_turn()
            has_more = any(exchanged)
            if self.calls.open_count:
                assert is_ready(self.inbox, TIMEOUT_S), "no answer of the store"
                has_more = True
            has_more = bool(self.inbox.drain()) or has_more or self.broker.is_dispatch_due
            has_more = self._make_due() or has_more

    def _make_due(self) -> bool:
        is_due = any(at_s <= self.clock.now_s for at_s, _call in self.clock.timers)
        self.clock.pass_s(0.0)
        return is_due

    def pass_s(self, seconds: float) -> None:
        """Have some time pass, and move the broker."""
        self.clock.pass_s(seconds)
        self.run()

    def until(self, is_so: Callable[[], object], what: str) -> None:
        """Move the broker, and have time pass, until something is so."""
        limit_s = time.monotonic() + TIMEOUT_S
        self.run()
        while not is_so():
            assert not self.fatal, self.fatal
            assert time.monotonic() < limit_s, f"not within {TIMEOUT_S:g} s: {what}"
            is_ready(self.inbox, _POLL_S)
            self.pass_s(_POLL_S)

    def await_expiry(self, queue: str) -> None:
        """Wait until all is too old that is on a queue, and does not live for long."""
        limit_us = time.time_ns() // 1000 + int(TIMEOUT_S * 1_000_000)
        ends = [each.expires_at or 0 for each in self.entries(queue).values()]
        last_us = max(end for end in ends if end < limit_us)
        self.until(lambda: time.time_ns() // 1000 > last_us, "the time has come")

    def create(self, name: str, **arguments: Any) -> None:
        """Create a queue with these arguments."""
        self._wait(lambda done: self.broker.create_queue(Queue(name, arguments=arguments), done))
        self.until(lambda: name in self.broker.queues, f"queue {name} is there")

    def bind(self, exchange: str, queue: str, key: str = "") -> None:
        """Bind a queue to an exchange of the broker."""
        bound = ExchangeBindingKey(exchange, queue, key)
        self._wait(lambda done: self.calls.make(BindCall(bound, {}), done))
        self.broker.router.bind(exchange, key, queue)

    def set_policy(self, name: str, match: str, **arguments: Any) -> None:
        """Have the broker that decides set a policy, or delete it if it says nothing."""
        act = AdminAction.SET_POLICY if arguments else AdminAction.DELETE_POLICY
        order = Order(act, key=name, match=match, arguments=arguments)
        self._wait(lambda done: self.decide(order, done))

    @abstractmethod
    def decide(self, order: Order, on_done: Callable[[StoreError | None], None]) -> None:
        """Give an order to the broker that decides."""

    def destroy(self, queue: str) -> None:
        """Delete a queue, as an administrator does."""
        order = Order(AdminAction.DELETE_QUEUE, queue, force=True)
        self._wait(
            lambda done: self.broker.administration.order(order, lambda error, _told: done(error))
        )
        self.until(lambda: queue not in self.broker.queues, f"{queue} is gone")

    def _wait(self, call: Callable[[Callable[[StoreError | None], None]], object]) -> None:
        answers: list[StoreError | None] = []
        call(answers.append)
        self.until(lambda: answers, "the store's answer")
        assert answers == [None]

    @abstractmethod
    def state(self) -> AbstractContextManager[State]:
        """What the store has decided, which does not change meanwhile."""

    def entries(self, queue: str) -> dict[int, Entry]:
        """What the store has on a queue."""
        with self.state() as state:
            there = state.queues.get(queue)
            return {} if there is None else dict(there.entries.items())

    def has(self, queue: str) -> bool:
        """True if there is a queue of this name."""
        with self.state() as state:
            return queue in state.queues

    def held(self, queue: str) -> list[str | None]:
        """Who holds the messages of a queue, in its order; None: it waits."""
        return [entry.acquired_by for entry in self.entries(queue).values()]

    def await_depth(self, queue: str, depth: int) -> None:
        """Wait until so many messages are on a queue."""
        self.until(lambda: len(self.entries(queue)) == depth, f"{depth} messages on {queue}")

    @contextmanager
    def claimed(self, queue: str) -> Iterator[None]:
        """A program takes all messages of a queue in a transaction, and undoes that at the end."""
        transaction = self.store.begin()
        for message_id in self.entries(queue):
            done(self.store.dequeue, message_id, queue, None, transaction=transaction)
        yield
        done(self.store.abort, transaction)

    @property
    def position(self) -> int:
        """The last position of the store: what it was made to write down."""
        with self.state() as state:
            return state.position

    def close(self) -> None:
        """End it."""
        assert not self.fatal
        # What is collected later must not write to a descriptor that is another's by then.
        self.inbox.post = lambda *_posted: None  # type: ignore[method-assign]
        self.inbox.close()


class Alone(DeliveryPlace):
    """A broker with a store of its own."""

    def __init__(self, settings: BrokerSettings) -> None:
        self._log: list[bytes] = []
        super().__init__(settings)

    @property
    def store(self) -> LocalMessageStore:
        """The broker's."""
        return self._store

    @contextmanager
    def state(self) -> Iterator[State]:
        """Decided on this thread."""
        yield self._store.machine.state

    def start(self) -> None:
        """Recover what the list of records has."""
        self._store = DamagedRecordedStore(self._log)
        recover(self._store, self.serve(self._store))
        self.run()

    def decide(self, order: Order, on_done: Callable[[StoreError | None], None]) -> None:
        """To the one broker."""
        self.broker.administration.order(order, lambda error, _told: on_done(error))

    def crash(self) -> None:
        """Its connections end without a word."""
        self.close()
        self.begin()

    def damage(self, message_id: int) -> None:
        """See `DeliveryPlace.damage`."""
        self._store.errors[message_id] = CorruptData("planted by a test")

    def count(self, name: str) -> int:
        """Of the one broker."""
        return int(getattr(self.broker.metrics, name))

    def close(self) -> None:
        """End the store, whose thread posts until then, first."""
        self._store.sink.close()
        super().close()


class AtMember(DeliveryPlace):
    """A broker that is a member of a service in this process."""

    def __init__(self, settings: BrokerSettings, service: ServicedRoot) -> None:
        self._service, self._name = service, f"m{uuid4()}"
        super().__init__(settings)

    @property
    def store(self) -> LocalMessageStore:
        """The service's."""
        return self._service.store

    @contextmanager
    def state(self) -> Iterator[State]:
        """Under the lock of the service's store."""
        with self._service.store.look() as machine:
            yield machine.state

    def start(self) -> None:
        """Connect a new process of the same name."""
        identity = MemberIdentity(self._name, str(uuid4()))
        self._remote = RemoteMessageStore(self._service.path, identity, recovers_entries=False)
        membership = Membership(self._remote, self.inbox)
        join(
            self._remote,
            self.serve(self._remote, membership.entries, membership.make_queue),
            membership,
        )
        self.end_turn = self._remote.turns.begin(lambda: True)
        self.run()

    def decide(self, order: Order, on_done: Callable[[StoreError | None], None]) -> None:
        """To that of the service, on the thread of its loop."""
        deciding = self._service.dispatcher.broker
        assert deciding is not None

        def told(error: StoreError | None, _told: object) -> None:
            self.inbox.post(on_done, error)

        self._service.post(lambda: deciding.administration.order(order, told))

    def crash(self) -> None:
        """Its process ends, and another begins."""
        self.close()
        self.begin()

    def damage(self, message_id: int) -> None:
        """See `DeliveryPlace.damage`."""
        assert isinstance(self._service.store, DamagedDeltaStore)
        self._service.store.errors[message_id] = CorruptData("planted by a test")

    def count(self, name: str) -> int:
        """Of the member; of the broker that decides for it, what becomes of a queue's messages.

        What a member's clients send and get is counted there. Each message counts at one of them.
        """
        deciding = self._service.dispatcher.broker
        there = 0 if deciding is None or name not in _DECIDED else getattr(deciding.metrics, name)
        return int(getattr(self.broker.metrics, name)) + int(there)

    def close(self) -> None:
        """End the connection."""
        self._remote.close()
        super().close()


class Home:
    """Makes places of one kind, and ends what they share.

    Attributes:
        kind: "alone" or "at a member".
    """

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self._service = None if kind == "alone" else _service(folder)
        self._places: list[DeliveryPlace] = []

    def place(self, settings: BrokerSettings = BrokerSettings()) -> DeliveryPlace:  # noqa: B008
        """A broker of its own, with these settings."""
        there: DeliveryPlace
        there = Alone(settings) if self._service is None else AtMember(settings, self._service)
        self._places.append(there)
        return there

    def end_places(self) -> None:
        """End the brokers, but not what they share."""
        places, self._places = self._places, []
        for each in places:
            for driver in each.drivers:
                driver.lose()
            each.close()

    def close(self) -> None:
        """End all of it."""
        self.end_places()
        if self._service is not None:
            self._service.stop()


HOMES = ("alone", "at a member")


def _service(folder: Path) -> ServicedRoot:
    return ServicedRoot(folder / "root", config=DELTA_CONFIG, store_of=DamagedDeltaStore)
