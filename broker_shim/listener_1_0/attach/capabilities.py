"""Capabilities of a source or a target (AMQP 1.0 section 3.5.3): which are asked, which hold.

An answer names those of the capabilities that were asked for that are true of its link. Qpid JMS
asks by the kind of its destination: `queue`, `topic`, `temporary-queue`, `temporary-topic`; and of
a shared subscription also for `shared`, and `global` where it is everybody's.

Who asks for a topic is never given a share of a queue: that would lose messages without a word. It
gets a multicast address, which is made for it, or is refused. Who asks for a queue on an address
that is none is served, and the answer leaves the word out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from broker_shim.amqp_1_0.composites import Source, Target
from broker_shim.amqp_1_0.definitions import AmqpError
from broker_shim.broker.flow.served_queues import ServedQueues
from broker_shim.broker.wiring.address import AddressNode, ExchangeNode, Node, QueueNode
from broker_shim.errors import InvalidRequest
from broker_shim.listener_1_0.conditions import Refusal
from broker_shim.listener_1_0.connections.pending_attach import temporary_name
from sparkstore.core.link_records import TEMPORARY_OF
from sparkstore.core.queue_names import is_temporary_topic, shown

_log = logging.getLogger(__name__)

_TOPICS = frozenset({"topic", "temporary-topic"})


class LinkNode(NamedTuple):
    """The facts of a link that its capabilities depend on.

    Attributes:
        node: What it is attached to.
        is_source: The peer receives.
        is_own: The broker names the node, for this link.
        is_temporary: The broker named the node, for a client.
        asked: The capabilities that the peer asked for.
    """

    node: Node
    is_source: bool
    is_own: bool
    is_temporary: bool
    asked: frozenset[str]

    @property
    def is_topic(self) -> bool:
        """True if each subscriber of the node gets each message."""
        return isinstance(self.node, ExchangeNode) or (
            isinstance(self.node, AddressNode) and self.node.is_topic
        )

    @property
    def is_queue(self) -> bool:
        """True if one consumer gets a message of the node."""
        return isinstance(self.node, QueueNode) or (
            isinstance(self.node, AddressNode) and not self.node.is_topic
        )

    @property
    def is_shared(self) -> bool:
        """True if other links may be on the same subscription."""
        is_subscription = self.is_source and self.is_topic and not self.is_own
        return is_subscription and "shared" in self.asked


CAPABILITIES: Mapping[str, Callable[[LinkNode], bool]] = MappingProxyType(
    {
        "queue": lambda link: link.is_queue,
        "temporary-queue": lambda link: link.is_queue and link.is_temporary,
        "topic": lambda link: link.is_topic,
        "temporary-topic": lambda link: link.is_topic and link.is_temporary,
        "shared": lambda link: link.is_shared,
        "global": lambda link: link.is_shared,
    }
)
"""Capability → whether it is true of a link. Others are left out of every answer."""


def _asks_topic(remote: Source | Target) -> bool:
    """True if a peer asks that each subscriber of the node gets each message."""
    return not _TOPICS.isdisjoint(remote.capabilities or ())


def as_asked(
    broker: ServedQueues, remote: Source | Target, named: Callable[[Any], Node]
) -> tuple[Node, Refusal | None]:
    """Find the node for a peer that may ask for a topic, or why there is none.

    Args:
        broker: Knows which addresses are multicast.
        remote: The peer's source or target.
        named: Tells what an address names. A node that is dynamic is named here.
    """
    is_topic = _asks_topic(remote)
    if remote.dynamic:
        return QueueNode(temporary_name(is_topic=is_topic)), None
    node = named(remote.address)
    if not is_topic:
        return node, None
    try:
        return broker.destinations.as_topic(node), None
    except InvalidRequest as reason:
        return node, Refusal(AmqpError.NOT_FOUND, str(reason))


def capabilities_of(
    broker: ServedQueues, node: Node, remote: Source | Target, own: str | None = None
) -> tuple[str, ...]:
    """The capabilities that were asked for and hold, in the peer's order; others go to the log.

    Args:
        broker: Knows which queues it named, and which addresses are multicast.
        node: What the link is attached to.
        remote: The peer's source or target.
        own: The queue or topic that the broker names for this link.
    """
    asked = [str(name) for name in remote.capabilities or ()]
    if not asked:
        return ()
    if isinstance(node, AddressNode):
        name = node.address
        node = AddressNode(name, is_topic=node.is_topic or broker.destinations.is_multicast(name))
    elif own is not None and is_temporary_topic(own):
        node = AddressNode(own, is_topic=True)
    is_own, is_source = own is not None, isinstance(remote, Source)
    is_temporary = is_own or _is_temporary(broker, node)
    link = LinkNode(node, is_source, is_own, is_temporary, frozenset(asked))
    held = tuple(name for name in asked if name in CAPABILITIES and CAPABILITIES[name](link))
    for name in asked:
        if name in CAPABILITIES and name not in held:
            where = shown(str(remote.address or own or ""))
            text = "a link to %s asks for the capability %r, which does not hold there"
            broker.destinations.log_once(text, where, name)
    return held


def _is_temporary(broker: ServedQueues, node: Node) -> bool:
    if isinstance(node, AddressNode):
        return is_temporary_topic(node.address)
    definition = broker.definitions.get(node.queue) if isinstance(node, QueueNode) else None
    return definition is not None and TEMPORARY_OF in definition.arguments
