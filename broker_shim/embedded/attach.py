"""How a link is attached: what its address names, and which of our endpoints serves it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cproton import (
    PN_COORDINATOR,
    PN_RCV_FIRST,
    pn_link_is_sender,
    pn_link_open,
    pn_link_remote_snd_settle_mode,
    pn_link_remote_target,
    pn_link_set_max_message_size,
    pn_link_set_rcv_settle_mode,
    pn_link_set_snd_settle_mode,
    pn_link_target,
    pn_terminus_get_address,
    pn_terminus_get_type,
    pn_terminus_is_dynamic,
    pn_terminus_set_address,
    pn_terminus_set_dynamic,
    pn_terminus_set_type,
)

from broker_shim.embedded.address import (
    AmbiguousNode,
    MalformedNode,
    QueueNode,
)
from broker_shim.embedded.attach_source import attach_source
from broker_shim.embedded.attaching import (
    copy_source,
    refuse,
    refuse_node,
    temporary_name,
    when_there,
)
from broker_shim.embedded.conditions import (
    NOT_IMPLEMENTED,
    Refusal,
)
from broker_shim.embedded.incoming import IncomingLink

if TYPE_CHECKING:
    from broker_shim.embedded.connection import Connection

_PN_SOURCE, _PN_TARGET = 1, 2


def attach(connection: Connection, link: Any) -> None:
    """Serve a link that the peer opened, or refuse it."""
    if pn_link_is_sender(link):
        attach_source(connection, link)
    else:
        _attach_incoming(connection, link)


def _attach_incoming(connection: Connection, link: Any) -> None:
    remote = pn_link_remote_target(link)
    if pn_terminus_get_type(remote) == PN_COORDINATOR:
        refuse(connection, link, Refusal(NOT_IMPLEMENTED, "AMQP transactions are not served"))
        return
    dynamic = bool(pn_terminus_is_dynamic(remote))
    address = None if dynamic else pn_terminus_get_address(remote)
    name = temporary_name() if dynamic else address
    destinations = connection.broker.destinations
    node = QueueNode(name) if dynamic and name else destinations.node_of(name)
    if isinstance(node, AmbiguousNode | MalformedNode):
        refuse_node(connection, link, node)
        return

    def ready() -> None:
        local = pn_link_target(link)
        pn_terminus_set_type(local, _PN_TARGET)
        pn_terminus_set_dynamic(local, dynamic)
        pn_terminus_set_address(local, name)
        copy_source(link)
        pn_link_set_snd_settle_mode(link, pn_link_remote_snd_settle_mode(link))
        pn_link_set_rcv_settle_mode(link, PN_RCV_FIRST)
        pn_link_set_max_message_size(link, connection.broker.settings.max_message_bytes)
        pn_link_open(link)
        connection.attached(link, IncomingLink(connection, link, node))

    when_there(connection, link, node, ready, is_temporary=dynamic)
