"""How a link is attached: what its address names, and which of our endpoints serves it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_shim.amqp_1_0.composites import Coordinator, Target
from broker_shim.amqp_1_0.definitions import ReceiverSettleMode
from broker_shim.embedded.address import (
    AmbiguousNode,
    MalformedNode,
    QueueNode,
)
from broker_shim.embedded.allowing import refusal_of_act
from broker_shim.embedded.attach_source import attach_source
from broker_shim.embedded.attaching import (
    grant,
    refuse,
    refuse_node,
    same_source,
    temporary_name,
    when_there,
)
from broker_shim.embedded.coordinator import attach_coordinator
from broker_shim.embedded.incoming import IncomingLink
from broker_shim.protocol_1_0.receiver import ReceiverLink
from broker_shim.protocol_1_0.sender import SenderLink
from broker_shim.security.permissions import Act

if TYPE_CHECKING:
    from broker_shim.embedded.connection import Connection


def attach(connection: Connection, link: ReceiverLink | SenderLink) -> None:
    """Serve a link that the peer opened, or refuse it."""
    if isinstance(link, SenderLink):
        attach_source(connection, link)
    elif isinstance(link.remote.target, Coordinator):
        attach_coordinator(connection, link)
    else:
        _attach_incoming(connection, link)


def _attach_incoming(connection: Connection, link: ReceiverLink) -> None:
    remote: Target = link.remote.target or Target()
    name = temporary_name() if remote.dynamic else remote.address
    destinations = connection.broker.destinations
    node = QueueNode(name) if remote.dynamic and name else destinations.node_of(name)
    if isinstance(node, AmbiguousNode | MalformedNode):
        refuse_node(connection, link, node)
        return
    refusal = refusal_of_act(connection, Act.WRITE, node)
    if refusal is not None:
        refuse(connection, link, refusal)
        return

    def ready() -> None:
        grant(
            connection,
            link,
            IncomingLink(connection, link, node),
            source=same_source(link),
            target=Target(name, dynamic=remote.dynamic),
            rcv_settle_mode=ReceiverSettleMode.FIRST,
            max_message_size=connection.broker.settings.max_message_bytes,
        )

    when_there(connection, link, node, ready, is_temporary=remote.dynamic)
