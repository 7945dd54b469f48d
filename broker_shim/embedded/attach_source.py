"""How a receiver's link is attached: what its source names and asks for, and who serves it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from cproton import (
    PN_DIST_MODE_COPY,
    PN_SND_SETTLED,
    pn_link_name,
    pn_link_open,
    pn_link_remote_rcv_settle_mode,
    pn_link_remote_snd_settle_mode,
    pn_link_remote_source,
    pn_link_set_rcv_settle_mode,
    pn_link_set_snd_settle_mode,
    pn_link_source,
    pn_terminus_get_address,
    pn_terminus_get_distribution_mode,
    pn_terminus_is_dynamic,
    pn_terminus_set_address,
    pn_terminus_set_distribution_mode,
    pn_terminus_set_dynamic,
    pn_terminus_set_type,
)

from broker_shim.addressing.fqqn import BindingKey, name_of
from broker_shim.embedded.address import (
    AddressNode,
    AmbiguousNode,
    AnonymousNode,
    ExchangeNode,
    MalformedNode,
    QueueNode,
)
from broker_shim.embedded.attaching import (
    answer,
    copy_target,
    expect,
    refuse,
    refuse_node,
    temporary_name,
    when_there,
)
from broker_shim.embedded.browsing import BrowsingLink
from broker_shim.embedded.conditions import (
    INVALID_FIELD,
    RESOURCE_LOCKED,
    Refusal,
)
from broker_shim.embedded.filters import Filters
from broker_shim.embedded.outgoing import OutgoingLink
from broker_shim.embedded.terminus_filters import filters_of, set_filters
from broker_shim.selectors import InvalidSelector
from sparkstore.queue_names import shown

if TYPE_CHECKING:
    from broker_shim.embedded.connection import Connection

_PN_SOURCE, _PN_TARGET = 1, 2


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


def attach_source(connection: Connection, link: Any) -> None:
    """Serve a link on which the peer receives, or refuse it."""
    remote = pn_link_remote_source(link)
    dynamic = bool(pn_terminus_is_dynamic(remote))
    address = temporary_name() if dynamic else pn_terminus_get_address(remote)
    destinations = connection.broker.destinations
    node = QueueNode(address) if dynamic and address else destinations.source_of(address)
    try:
        filters = filters_of(link)
    except InvalidSelector as reason:
        refuse(connection, link, Refusal(INVALID_FIELD, str(reason)))
        return
    match node:
        case AnonymousNode():
            refuse(connection, link, Refusal(INVALID_FIELD, "a source needs an address"))
        case AmbiguousNode() | MalformedNode():
            refuse_node(connection, link, node)
        case QueueNode(queue):
            wanted = Wanted(address, queue, filters, is_temporary=dynamic)
            ready = partial(_outgoing_ready, connection, link, wanted)
            when_there(connection, link, node, ready, is_temporary=dynamic)
        case AddressNode() | ExchangeNode():
            _subscribe(connection, link, address, node, filters)


def _subscribe(
    connection: Connection,
    link: Any,
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


def _outgoing_ready(connection: Connection, link: Any, wanted: Wanted) -> None:
    """Answer the attach with what is granted, and start to serve."""
    queue = connection.broker.queues[wanted.queue]
    is_browser = _is_browser(link, wanted)
    if queue.arguments.exclusive and queue.consumer_count and not is_browser:
        text = f"queue {shown(wanted.queue)} is exclusive, and has a consumer: try again later"
        refuse(connection, link, Refusal(RESOURCE_LOCKED, text))
        return
    _answer_source(link, wanted)
    pn_link_open(link)
    if is_browser:
        connection.attached(link, BrowsingLink(connection, link, queue, wanted.filters.selector))
        return
    selector = wanted.filters.selector
    if wanted.is_subscription:
        queue.only, selector = selector, None
    endpoint = OutgoingLink(
        connection,
        link,
        queue,
        f"{connection.container}/{pn_link_name(link)}",
        is_settled=pn_link_remote_snd_settle_mode(link) == PN_SND_SETTLED,
        is_temporary=wanted.is_temporary,
        selector=selector,
    )
    connection.attached(link, endpoint)


def _is_browser(link: Any, wanted: Wanted) -> bool:
    mode = pn_terminus_get_distribution_mode(pn_link_remote_source(link))
    return bool(mode == PN_DIST_MODE_COPY and not wanted.is_temporary)


def _answer_source(link: Any, wanted: Wanted) -> None:
    remote, local = pn_link_remote_source(link), pn_link_source(link)
    pn_terminus_set_type(local, _PN_SOURCE)
    pn_terminus_set_dynamic(local, pn_terminus_is_dynamic(remote))
    pn_terminus_set_address(local, wanted.address)
    pn_terminus_set_distribution_mode(local, pn_terminus_get_distribution_mode(remote))
    set_filters(link, wanted.filters)
    copy_target(link)
    pn_link_set_snd_settle_mode(link, pn_link_remote_snd_settle_mode(link))
    pn_link_set_rcv_settle_mode(link, pn_link_remote_rcv_settle_mode(link))
