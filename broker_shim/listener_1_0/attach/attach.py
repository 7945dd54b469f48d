"""How a link is attached: which kind it is, and what it needs if a client sends on it."""

from __future__ import annotations

from functools import partial

from broker_shim.amqp_1_0.composites import Coordinator, Target
from broker_shim.amqp_1_0.definitions import AmqpError, ReceiverSettleMode
from broker_shim.amqp_1_0.primitives import Symbol
from broker_shim.broker.flow.served_queues import ServedQueues
from broker_shim.broker.settings import DurableMessages
from broker_shim.broker.wiring.address import (
    AddressNode,
    Node,
    QueueNode,
)
from broker_shim.durability import TerminusDurability
from broker_shim.errors import StoreError
from broker_shim.links import LinkEndpoint, LinkTerms, Role
from broker_shim.links.termini.owner import owner_of
from broker_shim.listener_1_0.attach.capabilities import as_asked, capabilities_of
from broker_shim.listener_1_0.attach.own_queue import (
    looked_up,
    queue_of_before,
    steps_to,
)
from broker_shim.listener_1_0.attach.source import attach_source
from broker_shim.listener_1_0.authorization import refusal_of_link
from broker_shim.listener_1_0.conditions import Refusal, refusal_of
from broker_shim.listener_1_0.connections.connection import Connection
from broker_shim.listener_1_0.connections.links import key_of
from broker_shim.listener_1_0.connections.pending_attach import (
    AnyLink,
    go_through,
    grant,
    put_off,
    refusal_of_name,
    refuse,
)
from broker_shim.listener_1_0.connections.resumption import forget_settled, told_by_receiver
from broker_shim.listener_1_0.management.management_link import attach_management
from broker_shim.listener_1_0.receiving.coordinator import attach_coordinator
from broker_shim.listener_1_0.receiving.incoming_link import IncomingLink
from broker_shim.listener_1_0.receiving.received_deliveries import ReceivedDeliveries
from broker_shim.listener_1_0.termini import (
    as_source,
    as_target,
    granted_target,
    peers_source,
    wrong_with,
)
from broker_shim.protocol_1_0.links.receiver import ReceiverLink
from broker_shim.protocol_1_0.links.sender import SenderLink
from broker_shim.security.rules.rights import Act
from sparkstore.core.queue_names import MANAGEMENT, is_temporary_topic, shown


def attach(connection: Connection, link: ReceiverLink | SenderLink) -> None:
    """Serve a link that the peer opened, or refuse it."""
    if isinstance(link, ReceiverLink) and isinstance(link.remote.target, Coordinator):
        attach_coordinator(connection, link)  # it ends with its session, and is no terminus
        return
    if isinstance(link, ReceiverLink) and _names_management(link):
        attach_management(connection, link)
        return
    if not _may_be_kept(link):
        _attach_known(connection, link)
        return

    def known(error: StoreError | None) -> None:
        if is_wanted():
            links.waits_no_more(link)
            if error is None:
                _attach_known(connection, link)
            else:
                refuse(connection, link, refusal_of(error))

    links = connection.links
    is_wanted = put_off(connection, link)
    links.waits(connection, link)
    links.fetch(looked_up(key_of(connection, link), link.remote.desired_capabilities or ()), known)


def _names_management(link: ReceiverLink) -> bool:
    target = link.remote.target
    return target is not None and target.address == MANAGEMENT


def _may_be_kept(link: AnyLink) -> bool:
    """True if a link may be one that a store keeps, which another broker had so far."""
    ours = link.remote.target if isinstance(link, ReceiverLink) else link.remote.source
    return ours is None or ours.durable != TerminusDurability.NONE or bool(link.remote.unsettled)


def _attach_known(connection: Connection, link: AnyLink) -> None:
    """Attach a link now that what is kept of it is known here."""
    refusal = _refusal_of_new(connection, link) or _refusal_of_node(link)
    if refusal is not None:
        refuse(connection, link, refusal)
    elif isinstance(link, SenderLink):
        attach_source(connection, link)
    else:
        _attach_incoming(connection, link)


def _refusal_of_new(connection: Connection, link: AnyLink) -> Refusal | None:
    """Refuse one terminus more than there may be; None if there may, or it is none.

    What one user makes must not keep others out, where users are told apart.
    """
    key, registry = key_of(connection, link), connection.links.registry
    is_look_up = isinstance(link, SenderLink) and link.remote.source is None
    if is_look_up or registry.find(key) is not None:
        return None
    settings = connection.broker.settings
    of_user = (
        registry.counted.of(owner_of(key.remote_container_id))
        if connection.access.guard.tells_apart
        else 0
    )
    if len(registry) >= settings.max_termini:
        text = f"{len(registry)} links"
    elif of_user >= settings.max_termini_per_user:
        text = f"{of_user} links of {shown(connection.login.principal.name)}"
    else:
        return None
    text += " are attached or live on: close some that are not used"
    return Refusal(AmqpError.RESOURCE_LIMIT_EXCEEDED, text)


def _refusal_of_node(link: AnyLink) -> Refusal | None:
    """Refuse what an attach asks of its node and cannot have; None if it can."""
    asked = link.remote.target if isinstance(link, ReceiverLink) else link.remote.source
    wrong = None if asked is None else wrong_with(asked)
    return None if wrong is None else Refusal(AmqpError.INVALID_FIELD, wrong)


def _attach_incoming(connection: Connection, link: ReceiverLink) -> None:
    if link.remote.target is None and link.remote.source is None:
        refuse(
            connection,
            link,
            Refusal(AmqpError.INVALID_FIELD, "an attach needs a source or a target"),
        )
        return
    broker, remote = connection.broker, link.remote.target or Target()
    node, no_topic = as_asked(broker, remote, broker.destinations.node_of)
    refusal = refusal_of_link(connection, Act.SEND, node, remote.address) or no_topic
    refusal = refusal or refusal_of_name(connection, node)
    if refusal is not None:
        refuse(connection, link, refusal)
        return
    endpoint = connection.links.attach(connection, link)
    before = queue_of_before(endpoint.terminus)
    if remote.dynamic and before is not None:
        node = QueueNode(before)
    own = node.queue if remote.dynamic and isinstance(node, QueueNode) else None
    durability = connection.links.registry.granted(TerminusDurability(remote.durable))
    capabilities = capabilities_of(broker, node, remote, own)
    target = granted_target(remote, own or remote.address, durability, capabilities)
    terms = LinkTerms(Role.RECEIVER, peers_source(link.remote.source), target, own)
    queue = node.queue if isinstance(node, QueueNode) else None
    steps = steps_to(connection, endpoint, terms, own, queue)
    steps.append(partial(forget_settled, connection.links, endpoint, link))
    sent_to = _sent_to(node, own)
    go_through(connection, link, steps, partial(_ready, connection, link, endpoint, sent_to))


def _sent_to(node: Node, own: str | None) -> Node:
    """The node of a link's messages: the subscribers of a topic that was made for it, too."""
    is_topic = own is not None and is_temporary_topic(own)
    return AddressNode(own, is_topic=True) if own is not None and is_topic else node


def _ready(connection: Connection, link: ReceiverLink, endpoint: LinkEndpoint, node: Node) -> None:
    """Answer, with what is known of earlier deliveries."""
    broker, terminus = connection.broker, endpoint.terminus
    terms = terminus.terms
    assert terms is not None
    answering = ReceivedDeliveries(connection.links, endpoint, link)
    is_second = link.remote.rcv_settle_mode == ReceiverSettleMode.SECOND
    notes_all = is_second or terms.own.outlives_session or bool(terminus.unsettled)
    unsettled = told_by_receiver(link, terminus.unsettled)
    grant(
        connection,
        link,
        IncomingLink(connection, link, node, answering, notes_all=notes_all),
        source=as_source(terms.source),
        target=as_target(terms.target),
        max_message_size=broker.settings.max_message_bytes,
        unsettled=unsettled,
        properties=_announced(broker),
    )


def _announced(broker: ServedQueues) -> dict[Symbol, Symbol] | None:
    """Tell the peer what becomes of durable messages where the store does not keep them."""
    durable = broker.settings.durable_messages
    if durable is DurableMessages.KEPT:
        return None
    return {Symbol("durable-messages"): Symbol(durable)}
