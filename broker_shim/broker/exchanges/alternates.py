"""The queues that a message goes to when it leaves its queue for an alternate exchange.

It is routed there as when it was sent: by its subject, or by its application properties. It never
comes back to the queue that it leaves: were that bound to its own alternate, a message could be
rejected there for ever. A message that goes to no queue leaves the store.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from broker_shim.broker.address import ExchangeNode, Node
from broker_shim.broker.queue_host import QueueHost
from broker_shim.store.interface import MessageHeader


class RoutingHost(QueueHost, Protocol):
    """The virtual host, as far as routing goes."""

    def queues_for(self, node: Node, header: MessageHeader) -> set[str]:
        """The queues that a message sent to a node goes to; none if it routes nowhere."""

    def selecting(self, names: Iterable[str], header: MessageHeader) -> tuple[str, ...]:
        """Keep those queues whose selector does not refuse a message that is routed to them."""


def alternate_queues(
    host: RoutingHost, exchange: str, header: MessageHeader, message_id: int, queue: str
) -> dict[str, bool]:
    """The queues that a message goes to from `queue`, each with whether it has it already."""
    routed = host.queues_for(ExchangeNode(exchange), header) - {queue}
    selecting = sorted(host.selecting(routed, header))
    return {name: host.calls.entry(name, message_id) is not None for name in selecting}
