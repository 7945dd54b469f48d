"""AMQP 1.0 over one broker: what all of its connections share, and how one is made of it."""

from __future__ import annotations

from collections.abc import Callable

from broker_shim.broker.virtual_host import Broker
from broker_shim.links import LinkRegistry, MemoryUnsettledStore, NoLinkStore
from broker_shim.listener_1_0.access import LOOPBACK, Access
from broker_shim.listener_1_0.attach.attach import attach
from broker_shim.listener_1_0.connection import Connection
from broker_shim.listener_1_0.containers import Containers
from broker_shim.listener_1_0.links import Links


class Host:
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
