"""AMQP 1.0 over one broker: what all of its connections share, at its start and while it serves."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial

from broker_shim.broker.virtual_host import Broker
from broker_shim.broker.wiring.address import ExchangeNode
from broker_shim.completion import wait_for
from broker_shim.errors import InvalidRequest
from broker_shim.links import (
    LinkKey,
    LinkRegistry,
    LinkTerms,
    MemoryUnsettledStore,
    NoLinkStore,
    Terminus,
)
from broker_shim.listener_1_0.attach.attach import attach
from broker_shim.listener_1_0.attach.own_queue import own, queue_of_terms
from broker_shim.listener_1_0.connections.connection import Connection
from broker_shim.listener_1_0.connections.containers import Containers
from broker_shim.listener_1_0.connections.links import Links
from broker_shim.listener_1_0.termini import filter_set_of, read_filters
from broker_shim.selectors import InvalidSelector
from broker_shim.sockets.access import LOOPBACK, Access
from broker_shim.store.interface import WiringCalls
from sparkstore.core.queue_names import shown

_log = logging.getLogger(__name__)


class Amqp10Listener:
    """The broker as clients of this protocol see it. On the loop's thread only.

    Attributes:
        broker: The queues; it tells `links` what becomes of those that are a link's own.
        links: What attached, on any connection, and what lives on without one.
        containers: The connections that are open, by whose they are.
    """

    def __init__(self, broker: Broker, registry: LinkRegistry | None = None) -> None:
        """Begin; without a registry whose stores keep links, none survives a restart."""
        if registry is None:
            registry = LinkRegistry(NoLinkStore(), MemoryUnsettledStore())
        self.broker = broker
        self.links = Links(broker, registry)
        self.containers = Containers()
        broker.queue_owners.append(self.links)

    def connect(self, has_output: Callable[[], None], access: Access = LOOPBACK) -> Connection:
        """Make a connection for a peer that came in.

        Args:
            has_output: Called whenever the connection has bytes for its peer.
            access: How the peer got in, and what it is offered.
        """
        return Connection(self.broker, self.links, self.containers, attach, has_output, access)

    def recover_own_queues(
        self, store: WiringCalls, termini: Iterable[Terminus], timeout_s: float
    ) -> None:
        """Have the queue of each link that has one, and route there what it selects.

        A queue that is missing is made anew: the broker ended while the link was attached for the
        first time, or while it was being closed. Nothing that its client was told is lost.

        A terminus that can never have its queue ends, and the log says so. No client was told that
        it has one, and one link must not keep the broker from starting, now and ever after.

        Args:
            store: Its calls are made here, and waited for: the loop does not run yet.
            termini: All that were recovered.
            timeout_s: How long to wait for the calls that one terminus needs, in seconds.

        Raises:
            StoreError: The store does not answer, or has ended.
        """
        for terminus in termini:
            terms = terminus.terms
            if terms is None or terms.queue is None:
                continue
            try:
                self._have(store, terminus.key, terms, timeout_s)
            except (InvalidRequest, InvalidSelector) as reason:
                key = terminus.key
                text = "link %s of %s cannot have its queue, so it ends: %s"
                _log.error(text, shown(key.name), shown(key.remote_container_id), reason)
                over = self.links.registry.drop(key)
                if over is not None:
                    self.links.finish(over)
            else:
                own(self.broker, terminus)

    def _have(self, store: WiringCalls, key: LinkKey, terms: LinkTerms, timeout_s: float) -> None:
        """Have the queue of a link, bound as its source says, and route there what it selects."""
        broker, source = self.broker, terms.source
        selects = None if source is None or source.dynamic else source
        if terms.queue not in broker.queues:
            queue = queue_of_terms(broker, key, terms)
            node = None if selects is None else broker.destinations.source_of(selects.address)
            wait_for([partial(store.create, queue)], timeout_s)
            broker.serve(queue)
            if isinstance(node, ExchangeNode):
                bound = broker.binding_of(queue.name, node)
                wait_for([partial(store.bind, bound, {})], timeout_s)
                broker.router.bind(bound.exchange, bound.binding_key, bound.queue)
        if selects is not None and terms.queue is not None:
            filters = read_filters(filter_set_of(selects))
            broker.queues[terms.queue].only = filters.selector
