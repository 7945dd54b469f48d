"""How a receiver's link is attached: what its source names and asks for, and who serves it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from broker_shim.addressing.fqqn import BindingKey, name_of
from broker_shim.amqp_1_0.composites import Source
from broker_shim.amqp_1_0.definitions import SenderSettleMode, StdDistMode
from broker_shim.embedded.address import (
    AddressNode,
    AmbiguousNode,
    AnonymousNode,
    ExchangeNode,
    MalformedNode,
    QueueNode,
)
from broker_shim.embedded.allowing import refusal_of_act
from broker_shim.embedded.attaching import (
    answer,
    expect,
    grant,
    refuse,
    refuse_node,
    same_target,
    temporary_name,
    when_there,
)
from broker_shim.embedded.browsing import BrowsingLink
from broker_shim.embedded.conditions import (
    INVALID_FIELD,
    RESOURCE_LOCKED,
    Refusal,
)
from broker_shim.embedded.filters import Filters, read_filters
from broker_shim.embedded.outgoing import OutgoingLink
from broker_shim.protocol_1_0.sender import SenderLink
from broker_shim.security.permissions import Act
from broker_shim.selectors import InvalidSelector
from sparkstore.queue_names import shown

if TYPE_CHECKING:
    from broker_shim.embedded.connection import Connection


class Wanted(NamedTuple):
    """What a receiver asked for.

    Attributes:
        address: As it said it.
        queue: What it is served from.
        filters: What of its filters is honoured.
        is_temporary: The queue ends with the link.
        is_subscription: The queue is the link's own, on an address or an exchange.
    """

    address: str
    queue: str
    filters: Filters
    is_temporary: bool
    is_subscription: bool = False


def attach_source(connection: Connection, link: SenderLink) -> None:
    """Serve a link on which the peer receives, or refuse it."""
    remote: Source = link.remote.source or Source()
    address = temporary_name() if remote.dynamic else remote.address
    destinations = connection.broker.destinations
    node = QueueNode(address) if remote.dynamic and address else destinations.source_of(address)
    try:
        filters = read_filters(remote.filter)
    except InvalidSelector as reason:
        refuse(connection, link, Refusal(INVALID_FIELD, str(reason)))
        return
    refusal = refusal_of_act(connection, Act.READ, node)
    if refusal is not None:
        refuse(connection, link, refusal)
        return
    match node:
        case AnonymousNode():
            refuse(connection, link, Refusal(INVALID_FIELD, "a source needs an address"))
        case AmbiguousNode() | MalformedNode():
            refuse_node(connection, link, node)
        case QueueNode(queue):
            wanted = Wanted(address or queue, queue, filters, is_temporary=remote.dynamic)
            ready = partial(_outgoing_ready, connection, link, wanted)
            when_there(connection, link, node, ready, is_temporary=remote.dynamic)
        case AddressNode() | ExchangeNode():
            _subscribe(connection, link, address or "", node, filters)


def _subscribe(
    connection: Connection,
    link: SenderLink,
    address: str,
    node: AddressNode | ExchangeNode,
    filters: Filters,
) -> None:
    """Serve the link from a queue of its own, which ends with it.

    Its selector decides what is routed there: what it does not want would wait for ever.
    """
    broker, queue = connection.broker, temporary_name()
    if isinstance(node, AddressNode):
        queue = name_of(BindingKey(node.address, queue))
    elif node.routing_key is None and broker.router.needs_key(node.exchange):
        text = f"a direct exchange needs a routing key: {node.exchange}/KEY"
        refuse(connection, link, Refusal(INVALID_FIELD, text))
        return
    wanted = Wanted(address, queue, filters, is_temporary=True, is_subscription=True)
    ready = partial(_outgoing_ready, connection, link, wanted)
    pending = expect(connection, link)
    on_done = answer(connection, link, pending, ready)
    if isinstance(node, AddressNode):
        broker.create_queue(broker.destinations.subscription(node.address, queue), on_done)
    else:
        broker.subscribe(queue, node, on_done)


def _outgoing_ready(connection: Connection, link: SenderLink, wanted: Wanted) -> None:
    """Answer the attach with what is granted, and start to serve."""
    queue = connection.broker.queues[wanted.queue]
    is_browser = _is_browser(link, wanted)
    if queue.arguments.exclusive and queue.consumer_count and not is_browser:
        text = f"queue {shown(wanted.queue)} is exclusive, and has a consumer: try again later"
        refuse(connection, link, Refusal(RESOURCE_LOCKED, text))
        return
    endpoint: BrowsingLink | OutgoingLink
    selector = wanted.filters.selector
    if is_browser:
        endpoint = BrowsingLink(connection, link, queue, selector)
    else:
        if wanted.is_subscription:
            queue.only, selector = selector, None
        endpoint = OutgoingLink(
            connection,
            link,
            queue,
            f"{connection.container}/{link.name}",
            is_settled=link.remote.snd_settle_mode == SenderSettleMode.SETTLED,
            is_temporary=wanted.is_temporary,
            selector=selector,
        )
    target = same_target(link)
    grant(connection, link, endpoint, source=_source(link, wanted), target=target)


def _is_browser(link: SenderLink, wanted: Wanted) -> bool:
    source = link.remote.source
    is_copy = source is not None and source.distribution_mode == StdDistMode.COPY
    return is_copy and not wanted.is_temporary


def _source(link: SenderLink, wanted: Wanted) -> Source:
    remote: Source = link.remote.source or Source()
    return Source(
        wanted.address,
        dynamic=remote.dynamic,
        distribution_mode=remote.distribution_mode,
        filter=wanted.filters.answer,
    )
