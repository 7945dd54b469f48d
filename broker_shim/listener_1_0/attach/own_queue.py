"""A queue that is a link's own: of a subscription, or of a node that the peer had us make.

It ends with the link's terminus (`links`), and is kept as the terminus is: if that survives a
restart, so do the messages.

A link whose source is a multicast address or an exchange is served from a queue of its own. As
Qpid JMS has it (2.x), a durable subscription is a source that never expires; its container id is
the client id, and the link's name:

    link name            container   capabilities    subscription
    news                 client id   -               `news` of that client
    news, news|2, …      client id   shared          the same for all of them, of that client
    news|global, …       any         shared global   the same for everybody
    news|volatile1, …    client id   shared          of that client, until its last link ends
    news|global-volatile1, …         shared global   of everybody, until its last link ends

A shared subscription is a terminus that several links stand for; its key is that of its first
link, without a container if it is everybody's. The last two are those that are not durable.
Everybody is every client of one user, where users are told apart (`owners`).

What a subscription does not select is not routed to its queue: it would wait there for ever. The
same subscription again, from another attach, is served from the queue that is there. With another
address or selector it is a new subscription of that name: the queue is made anew, as JMS has it.
But it is not if others consume from it, who would lose it under their feet.

A name that the store would refuse is refused before the terminus is granted: else a terminus would
stay that can never have its queue.

Decision: a shared durable subscription is granted CONFIGURATION, not UNSETTLED_STATE, whatever was
asked. Its messages are for whichever consumer comes next, so what a consumer was sent that is gone
must go to the others. And Qpid JMS counts its links up, so the same name may never come back.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from broker_shim.addressing.fqqn import BindingKey as QueueKey
from broker_shim.addressing.fqqn import name_of
from broker_shim.addressing.topics import too_wild
from broker_shim.amqp_1_0.composites import Source
from broker_shim.amqp_1_0.definitions import AmqpError
from broker_shim.broker.orders.wiring_limit import CreatedEntity
from broker_shim.broker.queues.local_messages import NoLocal
from broker_shim.broker.virtual_host import Broker
from broker_shim.broker.wiring.address import AddressNode, ExchangeNode
from broker_shim.completion import OnComplete
from broker_shim.durability import TerminusDurability
from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.links import ExpiryPolicy, LinkEndpoint, LinkKey, LinkTerms, Role, Terminus
from broker_shim.links import Source as SourceValue
from broker_shim.links.termini.owner import owner_of
from broker_shim.listener_1_0.attach.capabilities import capabilities_of
from broker_shim.listener_1_0.conditions import Refusal
from broker_shim.listener_1_0.connections.connection import Connection
from broker_shim.listener_1_0.connections.links import key_of
from broker_shim.listener_1_0.connections.pending_attach import Step, room_for_queue, temporary_name
from broker_shim.listener_1_0.termini import (
    filter_set_of,
    granted_source,
    honoured_filters,
    keeps_out_local,
    peers_target,
)
from broker_shim.protocol_1_0.links.sender import SenderLink
from broker_shim.store.interface import Queue
from sparkstore.core.link_records import ENDS_WITH_LINK, NO_LOCAL, SELECTOR, TEMPORARY_OF
from sparkstore.core.queue_names import SUBSCRIPTION_PREFIX, is_temporary_topic, parts_of
from sparkstore.core.state_machine.arguments import check_name

SubscribedNode = AddressNode | ExchangeNode

_PLAIN = LinkTerms(Role.SENDER, SourceValue(expiry_policy=ExpiryPolicy.LINK_DETACH), None)
"""Of one of several links on a shared subscription: the subscription outlives it."""

DELIMITER = "|"
"""Between the name of a subscription and what Qpid JMS adds to it."""
_VOLATILE = "volatile"


_NOTHING = "FALSE"
"""The selector of a queue that keeps the name of a temporary topic: subscribers have their own."""


class Subscription(NamedTuple):
    """A subscription that outlives a link, or serves several.

    Attributes:
        key: Of its terminus.
        is_shared: Several links may be on it at once.
        is_volatile: It ends with the last of them.
    """

    key: LinkKey
    is_shared: bool
    is_volatile: bool


def subscription_of(
    key: LinkKey, capabilities: Container[str], *, is_durable: bool
) -> Subscription:
    """The subscription of a link with these capabilities of its source."""
    if "shared" not in capabilities:
        return Subscription(key, is_shared=False, is_volatile=False)
    is_global = "global" in capabilities
    name, _, _ = key.name.partition(DELIMITER)
    suffix = ("global" if is_global else "", "" if is_durable else _VOLATILE)
    name = DELIMITER.join([name, *filter(None, suffix)])
    container = owner_of(key.remote_container_id) if is_global else key.remote_container_id
    together = LinkKey(container, name, Role.SENDER)
    return Subscription(together, is_shared=True, is_volatile=not is_durable)


def is_volatile(key: LinkKey) -> bool:
    """Whether the key is of a shared subscription that ends with the last of its links."""
    _, delimiter, rest = key.name.rpartition(DELIMITER)
    return bool(delimiter) and rest == _VOLATILE


def looked_up(key: LinkKey, desired: Container[str]) -> LinkKey:
    """Find whose terminus an attach without a source means (how JMS unsubscribes)."""
    is_global = "global" in desired and "shared" in desired
    everybody = owner_of(key.remote_container_id)
    return key._replace(remote_container_id=everybody) if is_global else key


def queue_of(key: LinkKey) -> str:
    """The name of a subscription's queue: two subscriptions never have the same."""
    return f"{SUBSCRIPTION_PREFIX}{_escaped(key.remote_container_id)}.{_escaped(key.name)}"


def _escaped(text: str) -> str:
    """Without dots, so that these part the names, and without colons, which part address::queue."""
    return text.replace("%", "%25").replace(".", "%2E").replace(":", "%3A")


class Subscribed(NamedTuple):
    """A subscription that is about to serve a link.

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
    connection: Connection, link: SenderLink, node: SubscribedNode, answer: dict[Any, Any] | None
) -> Subscribed | Refusal:
    """Attach a link to its subscription, or tell why that may not be.

    Args:
        connection: The connection that the link is on.
        link: Attached by the peer, not answered yet.
        node: What it subscribes to.
        answer: The filter set to answer with, which is kept with the subscription.
    """
    broker, links, remote = connection.broker, connection.links, link.remote.source
    needs_key = isinstance(node, ExchangeNode) and broker.router.needs_key(node.exchange)
    if isinstance(node, ExchangeNode) and node.routing_key is None and needs_key:
        text = f"a direct exchange needs a routing key: {node.exchange}/KEY"
        return Refusal(AmqpError.INVALID_FIELD, text)
    subscription = subscription_of(
        key_of(connection, link),
        remote.capabilities or (),
        is_durable=bool(remote.durable) or remote.expiry_policy == ExpiryPolicy.NEVER,
    )
    known = links.registry.find(subscription.key)
    wild = _wild(broker, node) if known is None else None
    if wild is not None:
        return Refusal(AmqpError.INVALID_FIELD, wild)
    terms = _terms(connection, link, node, answer, subscription, known)
    if subscription.is_shared and _is_in_use(broker, known) and _differs(known, terms):
        text = "the subscription has consumers with another address or selector: close them first"
        return Refusal(AmqpError.RESOURCE_LOCKED, text)
    assert terms.queue is not None
    try:
        _check_names(terms.queue, node)
    except InvalidRequest as reason:
        return Refusal(
            AmqpError.INVALID_FIELD, f"{reason}: name the link, or the routing key, shorter"
        )
    endpoint = links.attach(connection, link)
    steps = _steps(connection, link, node, endpoint, subscription, terms)
    if keeps_out_local(terms.source) and not terms.own.lives_on:
        steps.append(partial(_keep_out, broker, terms.queue, NoLocal(connection.number)))
    if known is not None and _differs(known, terms):  # gone before the new one is granted
        steps.insert(0, partial(links.end_own, known))
    return Subscribed(endpoint, terms, terms.queue, steps)


def _keep_out(broker: Broker, queue: str, whose: NoLocal, on_done: OnComplete) -> None:
    """Route nothing of these to a queue; of one that lives on, its definition says it."""
    served = broker.queues.get(queue)
    if served is not None:
        served.no_local = whose
    on_done(None)


def _wild(broker: Broker, node: SubscribedNode) -> str | None:
    """Why nobody may subscribe by the pattern that a node names; None if it is none, or may be."""
    if isinstance(node, AddressNode) or not broker.router.reads_words(node.exchange):
        return None
    return too_wild(node.routing_key or "")


def _check_names(queue: str, node: SubscribedNode) -> None:
    """Check the names that a subscription needs of the store.

    Raises:
        InvalidRequest: It does not.
    """
    check_name(queue)
    if isinstance(node, ExchangeNode):
        check_name(node.routing_key or "")


def _steps(
    connection: Connection,
    link: SenderLink,
    node: SubscribedNode,
    endpoint: LinkEndpoint,
    subscription: Subscription,
    terms: LinkTerms,
) -> list[Step]:
    broker, links, terminus = connection.broker, connection.links, endpoint.terminus
    assert terms.queue is not None
    begin: list[Step] = [room_for_queue(connection, terms.queue), partial(links.quiet, endpoint)]
    key, user = subscription.key, connection.login.principal.name
    is_own = key == terminus.key
    queue = _subscription_queue(
        broker,
        key,
        terms,
        node,
        lambda: terminus.is_over if is_own else links.registry.find(key) is None,
        user,
    )
    if is_own:
        return [*begin, partial(links.grant, endpoint, terms), queue]
    if subscription.is_volatile:
        links.ends_with(link, key)
    grant = partial(links.grant, endpoint, _PLAIN)
    return [*begin, grant, partial(links.keep, key, terms), queue]


def _terms(
    connection: Connection,
    link: SenderLink,
    node: SubscribedNode,
    answer: dict[Any, Any] | None,
    subscription: Subscription,
    known: Terminus | None,
) -> LinkTerms:
    """Make the terms of the subscription that is asked for."""
    remote: Source = link.remote.source
    links, capabilities = connection.links, capabilities_of(connection.broker, node, remote)
    asked = TerminusDurability(remote.durable)
    if subscription.is_volatile:
        asked = TerminusDurability.NONE
    elif subscription.is_shared:
        asked = min(asked, TerminusDurability.CONFIGURATION)
    granted = links.registry.granted(asked)
    source = granted_source(remote, str(remote.address), granted, answer, capabilities)
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
    """Whether a link's terms are another subscription's than the one that is known by its name."""
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


def name_on(node: SubscribedNode, queue: str) -> str:
    """Name a subscription's queue as the store knows it."""
    return name_of(QueueKey(node.address, queue)) if isinstance(node, AddressNode) else queue


def queue_of_before(terminus: Terminus) -> str | None:
    """The queue of a dynamic node that a link had before: it gets that one again.

    None if it had a queue of another kind. A dynamic node is not asked for what a subscription is,
    so it does not get what a subscription has.
    """
    terms = terminus.terms
    return terms.queue if terms is not None and terms.own.dynamic else None


def steps_to(
    connection: Connection,
    endpoint: LinkEndpoint,
    terms: LinkTerms,
    own: str | None,
    queue: str | None,
) -> list[Step]:
    """List what an attach needs before it is answered: what was the link's own before ends first.

    Args:
        connection: The connection that the link is on.
        endpoint: The link's attachment.
        terms: To be granted.
        own: The queue that will be made for this link alone, if one will be.
        queue: The queue that it is attached to, if it is to one: else this is created on demand.
    """
    links, terminus = connection.links, endpoint.terminus
    before = None if terminus.terms is None else terminus.terms.queue
    steps: list[Step] = [partial(links.quiet, endpoint)]
    if before not in {None, own}:
        steps.append(partial(links.end_own, terminus))
    if own is not None:
        steps.append(room_for_queue(connection, own))
    elif queue is not None:
        user = connection.login.principal.name
        steps.append(partial(connection.broker.ensure_queue_for, user, queue))
    steps.append(partial(links.grant, endpoint, terms))
    if own is not None:
        steps.append(_dynamic_queue(connection, terminus, terms))
    return steps


def _dynamic_queue(connection: Connection, terminus: Terminus, terms: LinkTerms) -> Step:
    """Have the queue of a dynamic node: from now on it is this connection's."""
    broker = connection.broker

    def step(on_done: OnComplete) -> None:
        queue = queue_of_terms(broker, terminus.key, terms)
        made = partial(_made, broker, queue.name, lambda: terminus.is_over, on_done)

        def owned(error: StoreError | None) -> None:
            if error is None:
                own(broker, terminus)
                broker.queues[queue.name].maker = connection.number
            made(error)

        make = partial(broker.create_queue, queue)
        user = connection.login.principal.name
        broker.wiring_limit.make(user, CreatedEntity(queue.name), make, owned)

    return step


def own(broker: Broker, terminus: Terminus) -> None:
    """The queue of a dynamic node is its user's: nobody else reads it (see `authorization`)."""
    terms = terminus.terms
    if terms is not None and terms.queue is not None and terms.own.dynamic:
        broker.queues[terms.queue].owner = owner_of(terminus.key.remote_container_id)


def _subscription_queue(
    broker: Broker,
    key: LinkKey,
    terms: LinkTerms,
    node: SubscribedNode,
    is_over: Callable[[], bool],
    user: str,
) -> Step:
    """Have the queue of a subscription: on its address, or bound to its exchange.

    Args:
        broker: Creates the queue.
        key: Of the subscription's terminus.
        terms: Of the subscription.
        node: What it is to.
        is_over: Tells whether the subscription has ended meanwhile.
        user: The name of the user who has it made.
    """

    def step(on_done: OnComplete) -> None:
        queue = queue_of_terms(broker, key, terms)
        if queue.name in broker.queues:
            on_done(None)
            return
        made = partial(_made, broker, queue.name, is_over, on_done)
        make = partial(broker.create_queue, queue)
        if not isinstance(node, AddressNode):
            make = partial(broker.subscribe, queue, node)
        broker.wiring_limit.make(user, CreatedEntity(queue.name), make, made)

    return step


def queue_of_terms(broker: Broker, key: LinkKey, terms: LinkTerms) -> Queue:
    """The queue that is a link's own; on an address it is as the address has it.

    Its arguments tell every broker on the store what is the link's own in it: what a subscription
    selects, and whose messages it is not to have. They also tell whose answers a dynamic node is
    for, and that it is nobody's when this broker is gone. One that several links are on, of
    whatever brokers, goes with the last of them instead.
    """
    assert terms.queue is not None
    is_kept = terms.durability > TerminusDurability.NONE
    tier = TerminusDurability.UNSETTLED_STATE if is_kept else TerminusDurability.NONE
    queue = Queue(terms.queue, tier)
    arguments: dict[str, Any] = {}
    if terms.own.dynamic:
        arguments[TEMPORARY_OF] = owner_of(key.remote_container_id)
        if terms.role is Role.RECEIVER and is_temporary_topic(terms.queue):
            arguments[SELECTOR] = _NOTHING
    else:
        address, _ = parts_of(terms.queue)
        if address != terms.queue:
            queue = broker.destinations.subscription(address, queue)
        text = None if terms.source is None else honoured_filters(filter_set_of(terms.source)).text
        if text is not None:
            arguments[SELECTOR] = text
        if keeps_out_local(terms.source) and terms.own.lives_on:
            arguments[NO_LOCAL] = key.remote_container_id
    if not is_kept:
        arguments["auto_delete" if is_volatile(key) else ENDS_WITH_LINK] = True
    return replace(queue, arguments={**queue.arguments, **arguments})


def _made(
    broker: Broker,
    name: str,
    is_over: Callable[[], bool],
    on_done: OnComplete,
    error: StoreError | None,
) -> None:
    if error is None and is_over():  # nobody else would end it
        broker.destroy_queue(name)
    on_done(error)
