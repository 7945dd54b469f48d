"""A queue that is a link's own: of a subscription, or of a node that the peer had us make.

It ends with the link's terminus (`links`), and is kept as the terminus is: if that survives a
restart, so do the messages.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from broker_shim.addressing.fqqn import BindingKey as QueueKey
from broker_shim.addressing.fqqn import name_of
from broker_shim.broker.address import AddressNode, ExchangeNode
from broker_shim.completion import OnComplete
from broker_shim.durability import TerminusDurability
from broker_shim.errors import StoreError
from broker_shim.links import LinkTerms, Terminus
from broker_shim.links.termini.owner import owner_of
from broker_shim.listener_1_0.attach.pending_attach import Step
from broker_shim.listener_1_0.links import Links
from broker_shim.store.interface import Queue
from sparkstore.core.queue_names import parts_of

if TYPE_CHECKING:
    from broker_shim.broker.virtual_host import Broker
    from broker_shim.listener_1_0.connection import Connection


def name_on(node: AddressNode | ExchangeNode, queue: str) -> str:
    """What the store calls a queue on what a subscription is to."""
    return name_of(QueueKey(node.address, queue)) if isinstance(node, AddressNode) else queue


def queue_of_before(terminus: Terminus) -> str | None:
    """The queue of a dynamic node that a link had before: it gets that one again.

    None if it had a queue of another kind: what a subscription has is not to be had by a dynamic
    node, which is not asked for what the subscription is.
    """
    terms = terminus.terms
    return terms.queue if terms is not None and terms.own.dynamic else None


def end_queue_of_before(links: Links, terminus: Terminus, own: str | None) -> list[Step]:
    """Ends the queue that was a link's own before, if from now on it has another, or none."""
    before = None if terminus.terms is None else terminus.terms.queue
    return [] if before in {None, own} else [partial(links.end_own, terminus)]


def dynamic_queue(connection: Connection, terminus: Terminus, terms: LinkTerms) -> Step:
    """Has the queue of a dynamic node: from now on it is this connection's."""
    broker = connection.broker

    def step(on_done: OnComplete) -> None:
        queue = queue_of_terms(broker, terms)
        made = partial(_made, broker, queue.name, lambda: terminus.is_over, on_done)

        def owned(error: StoreError | None) -> None:
            if error is None:
                own(broker, terminus)
                broker.queues[queue.name].maker = connection.number
            made(error)

        broker.create_queue(queue, owned)

    return step


def own(broker: Broker, terminus: Terminus) -> None:
    """The queue of a dynamic node is its user's: nobody else reads it (see `authorization`)."""
    terms = terminus.terms
    if terms is not None and terms.queue is not None and terms.own.dynamic:
        broker.queues[terms.queue].owner = owner_of(terminus.key.remote_container_id)


def subscription_queue(
    broker: Broker,
    terms: LinkTerms,
    node: AddressNode | ExchangeNode,
    is_over: Callable[[], bool],
) -> Step:
    """Has the queue of a subscription: on its address, or bound to its exchange.

    Args:
        broker: Whose.
        terms: Of the subscription.
        node: What it is to.
        is_over: Tells whether the subscription has ended meanwhile.
    """

    def step(on_done: OnComplete) -> None:
        queue = queue_of_terms(broker, terms)
        if queue.name in broker.queues:
            on_done(None)
            return
        made = partial(_made, broker, queue.name, is_over, on_done)
        if isinstance(node, AddressNode):
            broker.create_queue(queue, made)
        else:
            broker.subscribe(queue, node, made)

    return step


def queue_of_terms(broker: Broker, terms: LinkTerms) -> Queue:
    """The queue that is a link's own; on an address it is as the address has it."""
    assert terms.queue is not None
    is_kept = terms.durability > TerminusDurability.NONE
    tier = TerminusDurability.UNSETTLED_STATE if is_kept else TerminusDurability.NONE
    queue = Queue(terms.queue, tier)
    address, _ = parts_of(terms.queue)
    if terms.own.dynamic or address == terms.queue:
        return queue
    return broker.destinations.subscription(address, queue)


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
