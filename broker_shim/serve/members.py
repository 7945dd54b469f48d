"""Several brokers on one set of queues, put together: the service's side, and a member's.

The parts are told in `broker_shim.members`; in a process without AMQP there is a `DecidingThread`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from broker_shim.broker.settings import BrokerSettings
from broker_shim.broker.storage.inbox import Inbox
from broker_shim.broker.storage.loop import Loop
from broker_shim.listener_1_0.host import Amqp10Listener
from broker_shim.members.inquiries import Inquiries
from broker_shim.members.member_dispatcher import MemberDispatcher
from broker_shim.members.membership import Membership
from broker_shim.members.wiring_rows import applied, rows_of
from broker_shim.serve.bind_address import listening_socket, parse_loopback
from broker_shim.serve.broker_recovery import Absent, create_wiring
from broker_shim.serve.deciding_thread import DecidingThread, release_lost
from broker_shim.service.members import attached_at, known_members
from broker_shim.service.service import Service
from broker_shim.service.service_options import ServiceAddresses
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import BrokerStore, MessageStore
from broker_shim.store.remote.remote_store import RemoteMessageStore
from sparkstore.config import StoreConfig
from sparkstore.control.audit import write_audit
from sparkstore.core.link_records import link_key

if TYPE_CHECKING:
    from broker_shim.serve.http.http_server import HttpServer

_log = logging.getLogger(__name__)


class ServedBeside(NamedTuple):
    """The service that serves members beside a broker, and asks them."""

    service: Service
    inquiries: Inquiries


def members_of(store: MessageStore) -> Absent:
    """The members that may come back, and their links."""
    with _delta(store).look() as machine:
        names = known_members(machine.state)
        texts = attached_at(machine.state, names)
    return Absent(frozenset(names), {text: link_key(text) for text in texts})


def decide_for(
    store: MessageStore, settings: BrokerSettings, http: HttpServer | None
) -> DecidingThread:
    """A broker that decides, in a process without AMQP, over a store that nobody serves yet.

    Raises:
        StoreError: The store has ended.
        TimeoutError: It took too long to give back what an earlier broker held.
    """
    release_lost(_delta(store))
    deciding = DecidingThread(_delta(store), settings, http=http)
    deciding.expire()
    return deciding


def serve_store(
    store: MessageStore,
    addresses: ServiceAddresses,
    config: StoreConfig,
    dispatcher: MemberDispatcher,
    settings: BrokerSettings,
) -> Service:
    """Serve a store to members; of the settings what holds for their transactions.

    Raises:
        InvalidRequest: A path cannot be that of a socket.
        OSError: It cannot be bound.
        StoreError: The store has ended.
    """
    opened = addresses.open(lambda text: listening_socket(parse_loopback(text, "--store-listen")))
    most, grace_s = config.max_message_bytes, config.member_grace_s
    timeout_s = settings.transaction_timeout_s
    return Service(_delta(store), opened, most, write_audit, dispatcher, grace_s, timeout_s)


def serve_beside(
    store: MessageStore,
    addresses: ServiceAddresses,
    config: StoreConfig,
    loop: Loop,
    inbox: Inbox,
    host: Amqp10Listener,
) -> ServedBeside:
    """`serve_store` beside the broker that decides for all members.

    Called on the loop's thread, or before it runs, after `recover`.
    """
    dispatcher = MemberDispatcher(
        _delta(store), loop, inbox, lambda _state: host.broker, host.links.moved
    )
    dispatcher.start()
    host.links.elsewhere, dispatcher.links = dispatcher, host.links
    service = serve_store(store, addresses, config, dispatcher, host.broker.settings)
    return ServedBeside(service, dispatcher.inquiries)


def _delta(store: MessageStore) -> DeltaMessageStore:
    assert isinstance(store, DeltaMessageStore)
    return store


def membership_of(store: MessageStore, inbox: Inbox) -> Membership:
    """Make the membership that keeps a member's broker alike to its service."""
    assert isinstance(store, RemoteMessageStore)
    return Membership(store, inbox)


def join(
    store: BrokerStore, host: Amqp10Listener, membership: Membership, timeout_s: float = 600.0
) -> None:
    """Make a member's broker as the service has it, and keep it so.

    Raises:
        StoreError: The service refused; what the settings say cannot be made of what is there.
    """
    broker = host.broker
    for row in rows_of(store.recover()):
        applied(broker, row)
    create_wiring(store, broker, timeout_s)
    membership.begin(broker, host.links.moved)
    host.links.elsewhere = membership
    _log.info("a member of the service, with %d queues", len(broker.queues))


def send_by_turns(store: BrokerStore, loop: Loop) -> None:
    """Have a member's store send at the end of each turn of the loop what the turn asked for."""
    assert isinstance(store, RemoteMessageStore)
    loop.at_end_of_turn(store.turns.begin(loop.is_in_turn))
