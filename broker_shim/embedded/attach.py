"""How a link is attached: what its address names, and which of our endpoints serves it.

A link is answered when all that it needs exists durably. A refused one is attached and detached
with the reason (AMQP 1.0 section 2.6.3), so that the client's library reports it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from cproton import (
    PN_COORDINATOR,
    PN_DIST_MODE_COPY,
    PN_RCV_FIRST,
    PN_SND_SETTLED,
    PN_UNSPECIFIED,
    pn_link_is_sender,
    pn_link_name,
    pn_link_open,
    pn_link_remote_rcv_settle_mode,
    pn_link_remote_snd_settle_mode,
    pn_link_remote_source,
    pn_link_remote_target,
    pn_link_set_max_message_size,
    pn_link_set_rcv_settle_mode,
    pn_link_set_snd_settle_mode,
    pn_link_source,
    pn_link_target,
    pn_terminus_get_address,
    pn_terminus_get_distribution_mode,
    pn_terminus_get_type,
    pn_terminus_is_dynamic,
    pn_terminus_set_address,
    pn_terminus_set_distribution_mode,
    pn_terminus_set_dynamic,
    pn_terminus_set_type,
)

from broker_shim.addressing.fqqn import BindingKey, name_of
from broker_shim.durability import TerminusDurability
from broker_shim.embedded.address import (
    AddressNode,
    AmbiguousNode,
    AnonymousNode,
    ExchangeNode,
    MalformedNode,
    Node,
    QueueNode,
    described,
)
from broker_shim.embedded.browsing import BrowsingLink
from broker_shim.embedded.conditions import (
    INVALID_FIELD,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    Refusal,
    refusal_of,
)
from broker_shim.embedded.incoming import IncomingLink
from broker_shim.embedded.outgoing import OutgoingLink
from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.store.interface import Queue

if TYPE_CHECKING:
    from broker_shim.embedded.connection import Connection

_PN_SOURCE, _PN_TARGET = 1, 2


class _Pending:
    """Stands for a link while what it needs is being created."""

    def __init__(self) -> None:
        self.is_gone = False

    def start(self) -> None:
        """Nothing yet."""

    def gone(self) -> None:
        """It ended before it began."""
        self.is_gone = True

    def on_flow(self) -> None:
        """Read again when it starts."""

    def on_delivery(self, delivery: Any) -> None:
        """It has no credit."""


def attach(connection: Connection, link: Any) -> None:
    """Serve a link that the peer opened, or refuse it."""
    if pn_link_is_sender(link):
        _attach_outgoing(connection, link)
    else:
        _attach_incoming(connection, link)


def _attach_incoming(connection: Connection, link: Any) -> None:
    remote = pn_link_remote_target(link)
    if pn_terminus_get_type(remote) == PN_COORDINATOR:
        _refuse(connection, link, Refusal(NOT_IMPLEMENTED, "AMQP transactions are not served"))
        return
    dynamic = bool(pn_terminus_is_dynamic(remote))
    address = None if dynamic else pn_terminus_get_address(remote)
    name = _temporary_name() if dynamic else address
    destinations = connection.broker.destinations
    node = QueueNode(name) if dynamic and name else destinations.node_of(name)
    if isinstance(node, AmbiguousNode | MalformedNode):
        _refuse_node(connection, link, node)
        return

    def ready() -> None:
        local = pn_link_target(link)
        pn_terminus_set_type(local, _PN_TARGET)
        pn_terminus_set_dynamic(local, dynamic)
        pn_terminus_set_address(local, name)
        _copy_source(link)
        pn_link_set_snd_settle_mode(link, pn_link_remote_snd_settle_mode(link))
        pn_link_set_rcv_settle_mode(link, PN_RCV_FIRST)
        pn_link_set_max_message_size(link, connection.broker.settings.max_message_bytes)
        pn_link_open(link)
        connection.attached(link, IncomingLink(connection, link, node))

    _when_there(connection, link, node, ready, is_temporary=dynamic)


def _attach_outgoing(connection: Connection, link: Any) -> None:
    remote = pn_link_remote_source(link)
    dynamic = bool(pn_terminus_is_dynamic(remote))
    address = _temporary_name() if dynamic else pn_terminus_get_address(remote)
    destinations = connection.broker.destinations
    node = QueueNode(address) if dynamic and address else destinations.source_of(address)
    match node:
        case AnonymousNode():
            _refuse(connection, link, Refusal(INVALID_FIELD, "a source needs an address"))
        case AmbiguousNode() | MalformedNode():
            _refuse_node(connection, link, node)
        case QueueNode(queue):
            ready = partial(_outgoing_ready, connection, link, address, queue, is_temporary=dynamic)
            _when_there(connection, link, node, ready, is_temporary=dynamic)
        case AddressNode() | ExchangeNode():
            _subscribe(connection, link, address, node)


def _subscribe(
    connection: Connection, link: Any, address: str, node: AddressNode | ExchangeNode
) -> None:
    """Serve the link from a queue of its own, which ends with it."""
    broker, queue = connection.broker, _temporary_name()
    if isinstance(node, AddressNode):
        queue = name_of(BindingKey(node.address, queue))
    elif node.routing_key is None and broker.router.needs_key(node.exchange):
        text = f"a direct exchange needs a routing key: {node.exchange}/KEY"
        _refuse(connection, link, Refusal(INVALID_FIELD, text))
        return
    ready = partial(_outgoing_ready, connection, link, address, queue, is_temporary=True)
    pending = _expect(connection, link)
    on_done = _answer(connection, link, pending, ready)
    if isinstance(node, AddressNode):
        broker.create_queue(broker.destinations.subscription(node.address, queue), on_done)
    else:
        broker.subscribe(queue, node, on_done)


def _outgoing_ready(
    connection: Connection, link: Any, address: str, queue_name: str, *, is_temporary: bool
) -> None:
    """Answer the attach with what is granted, and start to serve."""
    remote, local = pn_link_remote_source(link), pn_link_source(link)
    mode = pn_terminus_get_distribution_mode(remote)
    pn_terminus_set_type(local, _PN_SOURCE)
    pn_terminus_set_dynamic(local, pn_terminus_is_dynamic(remote))
    pn_terminus_set_address(local, address)
    pn_terminus_set_distribution_mode(local, mode)
    _copy_target(link)
    pn_link_set_snd_settle_mode(link, pn_link_remote_snd_settle_mode(link))
    pn_link_set_rcv_settle_mode(link, pn_link_remote_rcv_settle_mode(link))
    pn_link_open(link)
    queue = connection.broker.queues[queue_name]
    if mode == PN_DIST_MODE_COPY and not is_temporary:
        connection.attached(link, BrowsingLink(connection, link, queue))
        return
    holder = f"{connection.container}/{pn_link_name(link)}"
    is_settled = pn_link_remote_snd_settle_mode(link) == PN_SND_SETTLED
    endpoint = OutgoingLink(
        connection, link, queue, holder, is_settled=is_settled, is_temporary=is_temporary
    )
    connection.attached(link, endpoint)


def _when_there(
    connection: Connection,
    link: Any,
    node: Node,
    ready: Callable[[], None],
    *,
    is_temporary: bool,
) -> None:
    """Call `ready` when the node exists, on demand or not, and the link still does."""
    if not isinstance(node, QueueNode):
        ready()
        return
    pending = _expect(connection, link)
    on_done = _answer(connection, link, pending, ready)
    if is_temporary:
        connection.broker.create_queue(Queue(node.queue, TerminusDurability.NONE), on_done)
    else:
        connection.broker.ensure_queue(node.queue, on_done)


def _expect(connection: Connection, link: Any) -> _Pending:
    pending = _Pending()
    connection.expect(link, pending)
    return pending


def _answer(
    connection: Connection, link: Any, pending: _Pending, ready: Callable[[], None]
) -> Callable[[StoreError | None], None]:
    def on_done(error: StoreError | None) -> None:
        if pending.is_gone:
            return
        if error is None:
            ready()
        else:
            refusal = refusal_of(error)
            if isinstance(error, InvalidRequest):
                refusal = Refusal(NOT_FOUND, str(error))
            _refuse(connection, link, refusal)

    return on_done


def _refuse(connection: Connection, link: Any, refusal: Refusal) -> None:
    """Attach without a terminus, then detach with the reason.

    Proton's own default is an empty terminus, which to Qpid JMS is a link that was attached and
    then closed: its application is not told that the destination is wrong.
    """
    refused = pn_link_source(link) if pn_link_is_sender(link) else pn_link_target(link)
    pn_terminus_set_type(refused, PN_UNSPECIFIED)
    pn_link_open(link)
    connection.detach(link, refusal)


def _refuse_node(connection: Connection, link: Any, node: AmbiguousNode | MalformedNode) -> None:
    """Tell that a name names nothing.

    The candidates of an ambiguous one go to the broker's log: a client need not learn who else
    has a queue.
    """
    if isinstance(node, AmbiguousNode):
        connection.broker.destinations.warn(node.ambiguous)
    condition = NOT_FOUND if isinstance(node, AmbiguousNode) else INVALID_FIELD
    _refuse(connection, link, Refusal(condition, described(node)))


def _copy_source(link: Any) -> None:
    local = pn_link_source(link)
    pn_terminus_set_type(local, _PN_SOURCE)
    pn_terminus_set_address(local, pn_terminus_get_address(pn_link_remote_source(link)))


def _copy_target(link: Any) -> None:
    local = pn_link_target(link)
    pn_terminus_set_type(local, _PN_TARGET)
    pn_terminus_set_address(local, pn_terminus_get_address(pn_link_remote_target(link)))


def _temporary_name() -> str:
    return f"temporary-{uuid4().hex}"
