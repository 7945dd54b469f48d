"""How a receiver's link is attached: what its source names and asks for, and who serves it.

A receiver without a source asks for a terminus that is there, and brings none of its own (AMQP
2.6.3). It is answered with the source that is kept of its link, or with none. It gets no messages,
and does not take the link from a consumer. Closing it ends the terminus: so Qpid JMS unsubscribes.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from broker_shim.amqp_1_0.composites import Source
from broker_shim.amqp_1_0.definitions import AmqpError, SenderSettleMode, StdDistMode
from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.broker.queues.queue_filter import is_filtered
from broker_shim.broker.wiring.address import (
    AddressNode,
    AmbiguousNode,
    AnonymousNode,
    ExchangeNode,
    MalformedNode,
    QueueNode,
)
from broker_shim.durability import TerminusDurability
from broker_shim.links import LinkEndpoint, LinkTerms, Role
from broker_shim.listener_1_0.attach.capabilities import as_asked, capabilities_of
from broker_shim.listener_1_0.attach.own_queue import (
    looked_up,
    queue_of_before,
    steps_to,
    subscribe,
)
from broker_shim.listener_1_0.authorization import (
    refusal_of_act,
    refusal_of_consumer,
    refusal_of_link,
)
from broker_shim.listener_1_0.conditions import Refusal
from broker_shim.listener_1_0.connections.connection import Connection
from broker_shim.listener_1_0.connections.links import key_of
from broker_shim.listener_1_0.connections.pending_attach import (
    Step,
    go_through,
    grant,
    put_off,
    refusal_of_name,
    refuse,
)
from broker_shim.listener_1_0.connections.resumption import (
    give_back_lost,
    resumed_sender,
)
from broker_shim.listener_1_0.connections.served_endpoint import ServedEndpoint
from broker_shim.listener_1_0.sending.browsing_link import BrowsingLink
from broker_shim.listener_1_0.sending.outgoing_link import OutgoingLink
from broker_shim.listener_1_0.termini import (
    Filters,
    as_source,
    as_target,
    granted_source,
    honoured_filters,
    peers_target,
    served_source,
)
from broker_shim.protocol_1_0.links.sender import SenderLink
from broker_shim.security.rules.rights import Act
from broker_shim.selectors import InvalidSelector, Selector
from sparkstore.core.queue_names import is_temporary_topic, shown

ServedNode = QueueNode | AddressNode | ExchangeNode
"""What messages can be received from."""


class Wanted(NamedTuple):
    """A receiver's wishes of its source, and what serves them.

    Attributes:
        endpoint: The attachment of its link.
        terms: To answer with.
        queue: What it is served from.
        filters: What of its filters is honoured.
        is_subscription: What it does not select is not routed to the queue.
        is_browser: It gets copies.
    """

    endpoint: LinkEndpoint
    terms: LinkTerms
    queue: str
    filters: Filters
    is_subscription: bool = False
    is_browser: bool = False


def attach_source(connection: Connection, link: SenderLink) -> None:
    """Serve a link on which the peer receives, or refuse it.

    Nothing is done for a peer that may not have it: its selector is compiled after that is known.
    """
    remote: Source | None = link.remote.source
    if remote is None:
        _look_up(connection, link)
        return
    if _served_node(connection, link) is None:
        return
    try:
        filters = honoured_filters(remote.filter)
    except InvalidSelector as reason:
        refuse(connection, link, Refusal(AmqpError.INVALID_FIELD, str(reason)))
        return
    if filters.text is None:
        _attach_to_node(connection, link, filters)
        return

    def compiled(selector: Selector | InvalidSelector) -> None:
        if not is_wanted():
            return
        connection.links.waits_no_more(link)
        if isinstance(selector, InvalidSelector):
            refuse(connection, link, Refusal(AmqpError.INVALID_FIELD, str(selector)))
        else:
            _attach_to_node(connection, link, filters._replace(selector=selector))

    is_wanted = put_off(connection, link)
    connection.links.waits(connection, link)
    spend = connection.turn.spend
    connection.broker.selector_compiler.compile(filters.text, compiled, is_wanted, spend)


def _served_node(connection: Connection, link: SenderLink) -> ServedNode | None:
    """Find the node that serves the peer; None if there is none, and the link is refused."""
    remote: Source = link.remote.source
    named = connection.broker.destinations.source_of
    node, no_topic = as_asked(connection.broker, remote, named)
    asked = granted_source(remote, None, TerminusDurability(remote.durable), None)
    stays = asked.lives_on and not isinstance(node, QueueNode)
    refusal = refusal_of_link(connection, Act.RECEIVE, node, remote.address, is_durable=stays)
    refusal = refusal or no_topic
    if isinstance(node, AnonymousNode):
        refusal = Refusal(AmqpError.INVALID_FIELD, "a source needs an address")
    if refusal is None and not remote.dynamic:
        refusal = refusal_of_consumer(connection, node)
    refusal = refusal or refusal_of_name(connection, node)
    if refusal is not None:
        refuse(connection, link, refusal)
        return None
    assert not isinstance(node, AnonymousNode | AmbiguousNode | MalformedNode)
    return node


def _attach_to_node(connection: Connection, link: SenderLink, filters: Filters) -> None:
    """Looked at once more: compiling may have taken a while."""
    node = _served_node(connection, link)
    if isinstance(node, QueueNode):
        _attach_to_queue(connection, link, node, filters)
    elif node is not None:
        _attach_to_subscription(connection, link, node, filters)


def _attach_to_subscription(
    connection: Connection, link: SenderLink, node: AddressNode | ExchangeNode, filters: Filters
) -> None:
    remote = link.remote.source
    if remote.durable and isinstance(node, AddressNode) and is_temporary_topic(node.address):
        text = "a temporary topic ends with its connection, so no subscription to it is durable"
        refuse(connection, link, Refusal(AmqpError.INVALID_FIELD, text))
        return
    is_shared = "shared" in (remote.capabilities or ())  # many clients have it
    answer = filters.answer if is_shared else filters.of_subscription
    subscribed = subscribe(connection, link, node, answer)
    if isinstance(subscribed, Refusal):
        refuse(connection, link, subscribed)
        return
    endpoint, terms, queue, steps = subscribed
    wanted = Wanted(endpoint, terms, queue, filters, is_subscription=True)
    _go_through(connection, link, steps, wanted)


def _attach_to_queue(
    connection: Connection, link: SenderLink, node: QueueNode, filters: Filters
) -> None:
    remote = link.remote.source
    is_browser = remote.distribution_mode == StdDistMode.COPY and not remote.dynamic
    durability = TerminusDurability(remote.durable)
    if is_browser:  # it holds nothing, so there is nothing unsettled to keep
        durability = min(durability, TerminusDurability.CONFIGURATION)
    endpoint = connection.links.attach(connection, link)
    queue = (remote.dynamic and queue_of_before(endpoint.terminus)) or node.queue
    granted = connection.links.registry.granted(durability)
    own = queue if remote.dynamic else None
    capabilities = capabilities_of(connection.broker, node, remote, own)
    source = granted_source(remote, _said(remote, queue), granted, filters.answer, capabilities)
    terms = LinkTerms(Role.SENDER, source, peers_target(link.remote.target), own)
    steps = steps_to(connection, endpoint, terms, own, queue)
    wanted = Wanted(endpoint, terms, queue, filters, is_browser=is_browser)
    _go_through(connection, link, steps, wanted)


def _go_through(
    connection: Connection, link: SenderLink, steps: list[Step], wanted: Wanted
) -> None:
    links, terminus = connection.links, wanted.endpoint.terminus
    queue = None if wanted.is_browser else wanted.queue  # a browser holds nothing
    last = partial(give_back_lost, links, terminus, link, queue)
    go_through(connection, link, [*steps, last], partial(_ready, connection, link, wanted))


def _said(remote: Source, queue: str) -> str:
    """The address to answer with: the peer's own word for the queue, if it had one."""
    return queue if remote.dynamic or not remote.address else str(remote.address)


def _unavailable(
    connection: Connection, queue: QueueDispatch, *, is_browser: bool
) -> Refusal | None:
    """Why the queue cannot be had now, as somebody else has it, or be looked at here."""
    name = shown(queue.name)
    if connection.broker.claims.is_claimed(queue.name):
        text = f"queue {name} is another session's alone: try again later"
        return Refusal(AmqpError.RESOURCE_LOCKED, text)
    if connection.broker.claims.is_taken(queue, takes=not is_browser):
        text = f"queue {name} is exclusive, and has a consumer: try again later"
        return Refusal(AmqpError.RESOURCE_LOCKED, text)
    return None


def _ready(connection: Connection, link: SenderLink, wanted: Wanted) -> None:
    """Answer the attach with what is granted, and start to serve."""
    queue = connection.broker.queues.get(wanted.queue)
    if queue is None:
        text = f"queue {shown(wanted.queue)} was destroyed"
        refuse(connection, link, Refusal(AmqpError.NOT_FOUND, text))
        return
    refusal = _unavailable(connection, queue, is_browser=wanted.is_browser)
    if refusal is not None:
        refuse(connection, link, refusal)
        return
    source = wanted.terms.source
    assert source is not None
    endpoint: BrowsingLink | OutgoingLink
    selector = wanted.filters.selector
    held = connection.links.held.get(wanted.endpoint.terminus.key)
    resumed = resumed_sender(link, held) if held else None
    if wanted.is_browser:
        endpoint = BrowsingLink(connection, link, queue, selector)
    else:
        if wanted.is_subscription:
            queue.only = selector
            if is_filtered(connection.broker.definitions[wanted.queue]):
                selector = None
        endpoint = OutgoingLink(
            connection,
            link,
            queue,
            wanted.endpoint,
            is_settled=link.remote.snd_settle_mode == SenderSettleMode.SETTLED,
            selector=selector,
            resumed=resumed,
        )
    grant(
        connection,
        link,
        endpoint,
        source=served_source(source, link.remote.source),
        target=as_target(wanted.terms.target),
        unsettled=None if resumed is None else resumed.unsettled,
    )


class TerminusLookup(ServedEndpoint):
    """Serves a link without a source: with nothing."""

    def on_flow(self) -> None:
        """Give up credit that is to be drained; it is never used."""
        if not self.is_gone and self._link.is_draining:
            self._link.drained()


def _look_up(connection: Connection, link: SenderLink) -> None:
    """Answer a receiver that has no source."""
    key = looked_up(key_of(connection, link), link.remote.desired_capabilities or ())
    terminus = connection.links.registry.find(key)
    if terminus is None or terminus.terms is None or terminus.terms.source is None:
        text = "there is no such subscription: an attach without a source asks for one"
        refuse(connection, link, Refusal(AmqpError.NOT_FOUND, text))
        return
    address = terminus.terms.source.address
    node = connection.broker.destinations.source_of(address)
    refusal = refusal_of_act(connection, Act.RECEIVE, node, address)
    if refusal is not None:
        refuse(connection, link, refusal)
        return
    connection.links.looks_up(link, key)
    source, target = terminus.terms.source, peers_target(link.remote.target)
    grant(
        connection, link, TerminusLookup(link), source=as_source(source), target=as_target(target)
    )
