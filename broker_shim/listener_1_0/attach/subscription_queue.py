"""How a receiver's link gets the queue of its subscription, on an address or an exchange.

What a subscription does not select is not routed to its queue: it would wait there for ever. The
same subscription again, from another attach, is served from the queue that is there. With another
address or selector it is a new subscription of that name: the queue is made anew, as JMS has it;
unless others consume from it, who would lose it under their feet.

A name that the store would refuse is refused before the terminus is granted: else a terminus would
stay that can never have its queue.

Decision: a shared durable subscription is granted CONFIGURATION, not UNSETTLED_STATE, whatever was
asked. Its messages are for whichever consumer comes next; what a consumer was sent that is gone
must go to the others, and Qpid JMS counts its links up, so the same name may never come back.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from broker_shim.addressing.topics import too_wild
from broker_shim.amqp_1_0.composites import Source
from broker_shim.broker.address import AddressNode, ExchangeNode
from broker_shim.durability import TerminusDurability
from broker_shim.errors import InvalidRequest
from broker_shim.links import (
    ExpiryPolicy,
    LinkEndpoint,
    LinkTerms,
    Role,
    Terminus,
)
from broker_shim.links import Source as SourceValue
from broker_shim.listener_1_0.attach.filters import Filters
from broker_shim.listener_1_0.attach.own_queue import name_on, subscription_queue
from broker_shim.listener_1_0.attach.pending_attach import Step, temporary_name
from broker_shim.listener_1_0.attach.subscriptions import Subscription, queue_of, subscription_of
from broker_shim.listener_1_0.conditions import INVALID_FIELD, RESOURCE_LOCKED, Refusal
from broker_shim.listener_1_0.links import Links, key_of
from broker_shim.listener_1_0.termini import granted_source, peers_target
from broker_shim.protocol_1_0.links.sender import SenderLink
from sparkstore.core.state_machine.arguments import check_name

if TYPE_CHECKING:
    from broker_shim.broker.virtual_host import Broker
    from broker_shim.listener_1_0.connection import Connection

Node = AddressNode | ExchangeNode

_PLAIN = LinkTerms(Role.SENDER, SourceValue(expiry_policy=ExpiryPolicy.LINK_DETACH), None)
"""Of one of several links on a shared subscription: the subscription outlives it."""


class Subscribed(NamedTuple):
    """What serves a link on a subscription.

    Attributes:
        endpoint: The link's attachment.
        terms: To answer with: those of the subscription.
        queue: Of the subscription.
        steps: What has to be done first.
    """

    endpoint: LinkEndpoint
    terms: LinkTerms
    queue: str
    steps: list[Step]


def subscribe(
    connection: Connection, link: SenderLink, node: Node, filters: Filters
) -> Subscribed | Refusal:
    """Attach a link to its subscription."""
    broker, links, remote = connection.broker, connection.links, link.remote.source
    needs_key = isinstance(node, ExchangeNode) and broker.router.needs_key(node.exchange)
    if isinstance(node, ExchangeNode) and node.routing_key is None and needs_key:
        text = f"a direct exchange needs a routing key: {node.exchange}/KEY"
        return Refusal(INVALID_FIELD, text)
    subscription = subscription_of(
        key_of(connection, link),
        remote.capabilities or (),
        is_durable=bool(remote.durable) or remote.expiry_policy == ExpiryPolicy.NEVER,
    )
    known = links.registry.find(subscription.key)
    wild = _wild(broker, node) if known is None else None
    if wild is not None:
        return Refusal(INVALID_FIELD, wild)
    terms = _terms(links, link, node, filters, subscription, known)
    if subscription.is_shared and _is_in_use(broker, known) and _differs(known, terms):
        text = "the subscription has consumers with another address or selector: close them first"
        return Refusal(RESOURCE_LOCKED, text)
    assert terms.queue is not None
    try:
        _check_names(terms.queue, node)
    except InvalidRequest as reason:
        return Refusal(INVALID_FIELD, f"{reason}: name the link, or the routing key, shorter")
    endpoint = links.attach(connection, link)
    steps = _steps(connection, link, node, endpoint, subscription, terms)
    if known is not None and _differs(known, terms):  # gone before the new one is granted
        steps.insert(0, partial(links.end_own, known))
    return Subscribed(endpoint, terms, terms.queue, steps)


def _wild(broker: Broker, node: Node) -> str | None:
    """Why nobody may subscribe by the pattern that a node names; None if it is none, or may be."""
    if isinstance(node, AddressNode) or not broker.router.reads_words(node.exchange):
        return None
    return too_wild(node.routing_key or "")


def _check_names(queue: str, node: Node) -> None:
    """What a subscription needs of the store has names that it takes.

    Raises:
        InvalidRequest: It does not.
    """
    check_name(queue)
    if isinstance(node, ExchangeNode):
        check_name(node.routing_key or "")


def _steps(
    connection: Connection,
    link: SenderLink,
    node: Node,
    endpoint: LinkEndpoint,
    subscription: Subscription,
    terms: LinkTerms,
) -> list[Step]:
    broker, links, terminus = connection.broker, connection.links, endpoint.terminus
    quiet = partial(links.quiet, endpoint)
    if subscription.key == terminus.key:
        grant = partial(links.grant, endpoint, terms)
        queue = subscription_queue(broker, terms, node, lambda: terminus.is_over)
        return [quiet, grant, queue]
    if subscription.is_volatile:
        links.ends_with(link, subscription.key)
    queue = subscription_queue(
        broker, terms, node, lambda: links.registry.find(subscription.key) is None
    )
    grant = partial(links.grant, endpoint, _PLAIN)
    return [quiet, grant, partial(links.keep, subscription.key, terms), queue]


def _terms(
    links: Links,
    link: SenderLink,
    node: Node,
    filters: Filters,
    subscription: Subscription,
    known: Terminus | None,
) -> LinkTerms:
    """What the subscription is to be."""
    remote: Source = link.remote.source
    asked = TerminusDurability(remote.durable)
    if subscription.is_volatile:
        asked = TerminusDurability.NONE
    elif subscription.is_shared:
        asked = min(asked, TerminusDurability.CONFIGURATION)
    source = granted_source(
        remote, str(remote.address), links.registry.granted(asked), filters.answer
    )
    if subscription.is_shared and not subscription.is_volatile:
        source = replace(source, expiry_policy=ExpiryPolicy.NEVER, timeout_s=0)
    target = peers_target(link.remote.target)
    if source.lives_on or subscription.is_shared:
        queue = name_on(node, queue_of(subscription.key))
    elif known is not None and known.terms is not None and known.terms.queue is not None:
        queue = known.terms.queue
    else:
        queue = name_on(node, temporary_name())
    return LinkTerms(Role.SENDER, source, target, queue)


def _differs(known: Terminus | None, terms: LinkTerms) -> bool:
    """Whether these terms are another subscription's than what is known under this name."""
    if known is None or known.terms is None or known.terms.queue is None:
        return False
    before, after = known.terms.source, terms.source
    assert before is not None
    assert after is not None
    return (before.address, before.filters, known.terms.queue) != (
        after.address,
        after.filters,
        terms.queue,
    )


def _is_in_use(broker: Broker, known: Terminus | None) -> bool:
    name = None if known is None or known.terms is None else known.terms.queue
    queue = None if name is None else broker.queues.get(name)
    return queue is not None and queue.consumer_count > 0
