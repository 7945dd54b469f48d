"""Several brokers on one set of queues, put together: the service's side, and a member's.

The parts are told in `broker_shim.members`. In a process without AMQP the broker that decides has a
loop on a thread of its own, and is not made before a member asks for it.
"""

from __future__ import annotations

import logging
import threading

from broker_shim.broker.metrics import Metrics
from broker_shim.broker.settings import BrokerSettings
from broker_shim.broker.storage.inbox import Inbox
from broker_shim.broker.storage.loop import Loop
from broker_shim.broker.storage.store_calls import StoreCalls
from broker_shim.broker.virtual_host import Broker
from broker_shim.errors import StoreError
from broker_shim.listener_1_0.host import Host
from broker_shim.listener_1_0.messages.headers import HEADERS
from broker_shim.members.dispatcher import MemberDispatcher
from broker_shim.members.membership import Membership
from broker_shim.members.wiring_rows import apply, rows_of
from broker_shim.serve.bind_address import listening_socket, parse_loopback
from broker_shim.serve.recovery import create_wiring
from broker_shim.service.members import known_members
from broker_shim.service.options import Doors
from broker_shim.service.service import Service
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import MessageStore
from broker_shim.store.remote.store import RemoteMessageStore
from sparkstore.config import StoreConfig
from sparkstore.control.audit import write_audit

_log = logging.getLogger(__name__)


class DecidingThread:
    """The loop of the broker that decides for members, in a process that serves no AMQP.

    Attributes:
        dispatcher: For the service.
    """

    def __init__(self, store: MessageStore, settings: BrokerSettings) -> None:
        self._inbox = Inbox()
        self._loop = Loop(self._inbox)
        self._store, self._settings = store, settings
        self.dispatcher = MemberDispatcher(
            _delta(store), self._loop, self._inbox, self._make_broker
        )
        self._thread = threading.Thread(target=self._loop.run, name="dispatch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Hand nothing out any more, before the store is closed."""
        self._loop.stop()
        self._thread.join()
        self._loop.close()

    def _make_broker(self) -> Broker:
        """A broker with all that is on the queues; nobody but members consumes from it."""
        calls = StoreCalls(self._store, self._inbox, _log_end)
        broker = Broker(calls, self._settings, Metrics(), self._loop.later, HEADERS)
        self._loop.at_end_of_turn(broker.dispatch)
        there = self._store.recover()
        for row in rows_of(there):
            apply(broker, row)
        for name, queue in broker.queues.items():
            entries = there.entries.get(name, {})
            queue.recovered((i, e.priority, e.delivery_count) for i, e in entries.items())
        return broker


def _log_end(error: StoreError) -> None:
    _log.critical("the store has ended: %s", error)


def members_of(store: MessageStore) -> list[str]:
    """Names of the members that may come back."""
    with _delta(store).look() as machine:
        return known_members(machine.state)


def serve_doors(
    store: MessageStore, doors: Doors, config: StoreConfig, dispatcher: MemberDispatcher
) -> Service:
    """Serve a store to members.

    Raises:
        InvalidRequest: A path cannot be that of a socket.
        OSError: It cannot be bound.
        StoreError: The store has ended.
    """
    opened = doors.open(lambda text: listening_socket(parse_loopback(text, "--store-listen")))
    most, grace_s = config.max_message_bytes, config.member_grace_s
    return Service(_delta(store), opened, most, write_audit, dispatcher, grace_s)


def serve_beside(
    store: MessageStore,
    doors: Doors,
    config: StoreConfig,
    loop: Loop,
    inbox: Inbox,
    host: Host,
) -> Service:
    """`serve_doors` beside the broker that decides for all members.

    Called on the loop's thread, or before it runs, after `recover`.
    """
    dispatcher = MemberDispatcher(_delta(store), loop, inbox, lambda: host.broker, host.links.moved)
    dispatcher.start()
    host.links.elsewhere = dispatcher
    return serve_doors(store, doors, config, dispatcher)


def _delta(store: MessageStore) -> DeltaMessageStore:
    assert isinstance(store, DeltaMessageStore)
    return store


def membership_of(store: MessageStore, inbox: Inbox) -> Membership:
    """What keeps a member's broker alike to its service."""
    assert isinstance(store, RemoteMessageStore)
    return Membership(store, inbox)


def join(store: MessageStore, host: Host, membership: Membership, timeout_s: float = 600.0) -> None:
    """Make a member's broker as the service has it, and keep it so.

    Raises:
        StoreError: The service refused; what the settings say cannot be made of what is there.
    """
    broker = host.broker
    for row in rows_of(store.recover()):
        apply(broker, row)
    create_wiring(store, broker, timeout_s)
    membership.begin(broker, host.links.moved)
    host.links.elsewhere = membership
    _log.info("a member of the service, with %d queues", len(broker.queues))
