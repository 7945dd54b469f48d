"""The meaning of an AMQP address for this broker. Pure.

    address             a sender's messages go to             a receiver gets
    queue               that queue                            its messages
    address::queue      that queue on that address            its messages
    address             multicast: all its queues             a subscription: a queue of its own
                        anycast: one of its queues            its queue, if it has only one
    exchange            its queues for the message's subject  a subscription to everything
    exchange/key        its queues for that routing key       a subscription to that key
    (none)              what the message's `to` says          -

A name is looked up in this order: a queue by its whole name, an exchange, an exchange and a key, an
address that has queues, a queue by its short name. The first `/` parts an exchange from a key, and
only if there is such an exchange. Any other text is a queue that is not there yet, slashes and all.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass

from broker_shim.addressing.bindings import AddressManager, Ambiguous, Binding, Routing
from broker_shim.addressing.fqqn import key_of
from broker_shim.addressing.topics import too_long
from broker_shim.errors import InvalidRequest
from sparkstore.core.queue_names import (
    MANAGEMENT,
    SEPARATOR,
    TEMPORARY,
    canonical,
    is_reserved,
    is_temporary_topic,
    shown,
)


@dataclass(frozen=True, slots=True)
class QueueNode:
    """A queue, there or not, by what the store calls it."""

    queue: str


@dataclass(frozen=True, slots=True)
class AddressNode:
    """An address: its routing decides between its queues.

    Attributes:
        address: The name that its queues are on.
        is_topic: A link asked for a topic: all its queues get each message, whatever others say,
            and one that nobody subscribes to is no error.
    """

    address: str
    is_topic: bool = False


@dataclass(frozen=True, slots=True)
class ExchangeNode:
    """An exchange; the routing key is None where the message's subject is.

    Attributes:
        exchange: The name of the exchange.
        routing_key: The key of all messages; None: of each, its subject.
        is_topic: A link asked for a topic: a message that nobody subscribes to is no error.
    """

    exchange: str
    routing_key: str | None = None
    is_topic: bool = False


@dataclass(frozen=True, slots=True)
class AnonymousNode:
    """The node of a link without an address: each message's `to` says where it goes."""


@dataclass(frozen=True, slots=True)
class AmbiguousNode:
    """A short name of queues on several addresses: it names none of them."""

    ambiguous: Ambiguous


@dataclass(frozen=True, slots=True)
class MalformedNode:
    """A text that can name nothing."""

    reason: str


@dataclass(frozen=True, slots=True)
class PatternNode:
    """Every queue on the addresses that fit a policy's pattern, also those to come.

    No address names one: only orders about policies do.
    """

    match: str


Node = QueueNode | AddressNode | ExchangeNode | AnonymousNode | AmbiguousNode | MalformedNode
RoutingOf = Callable[[str], Routing]


def node_of(
    address: str | None,
    *,
    addresses: AddressManager,
    exchanges: Container[str],
    routing_of: RoutingOf = lambda _address: Routing.ANYCAST,
) -> Node:
    """Find the node that an address names."""
    if not address:
        return AnonymousNode()
    reason = too_long(address)
    if reason is not None:
        return MalformedNode(reason)
    try:
        resolved = addresses.resolve(address)
    except InvalidRequest as refusal:
        return _exchange(address, exchanges) or MalformedNode(str(refusal))
    if isinstance(resolved, Binding) and resolved.name == address:
        # Its own address may be one of several queues.
        is_shared = resolved.key.address == address and routing_of(address) is Routing.MULTICAST
        return AddressNode(address) if is_shared else QueueNode(address)
    return _exchange(address, exchanges) or _named(address, resolved, addresses, routing_of)


def _exchange(address: str, exchanges: Container[str]) -> ExchangeNode | None:
    if address in exchanges:
        return ExchangeNode(address)
    exchange, slash, routing_key = address.partition("/")
    return ExchangeNode(exchange, routing_key) if slash and exchange in exchanges else None


def _named(
    address: str,
    resolved: Binding | Ambiguous | None,
    addresses: AddressManager,
    routing_of: RoutingOf,
) -> Node:
    """Find the node of a name that is neither a queue's whole name nor an exchange's."""
    if address in addresses and not is_temporary_topic(address):  # one that is gone names nothing
        return AddressNode(address)
    if isinstance(resolved, Binding):
        return QueueNode(resolved.name)
    if isinstance(resolved, Ambiguous):
        return AmbiguousNode(resolved)
    is_address = SEPARATOR not in address and not is_reserved(address)
    if is_address and routing_of(address) is Routing.MULTICAST:
        return AddressNode(address)
    return QueueNode(canonical(address))


def described(node: Node) -> str:
    """A node for a client that is told why its message goes nowhere; of bounded length."""
    match node:
        case QueueNode(queue):
            return f"there is no queue {shown(queue)}"
        case AddressNode(address):
            return f"no queue is on address {shown(address)}"
        case ExchangeNode(exchange, key):
            of_key = "" if key is None else f" for {shown(key)}"
            return f"exchange {shown(exchange)} has no queue{of_key}"
        case AnonymousNode():
            return "it says no `to`"
        case AmbiguousNode(ambiguous):
            count = len(ambiguous.candidates)
            return f"{shown(ambiguous.name)} is on {count} addresses: say address::queue"
        case MalformedNode(reason):
            return reason


def refusal_to_create(queue: str, exchanges: Container[str] = ()) -> str | None:
    """Why a queue of this name is not created on demand; None if it may be.

    `amq.` is kept for the broker's own names, so that a misspelt exchange is an error and not a
    queue. A queue on an exchange's name would look as if it were bound to it. `temporary` is kept,
    too (`is_reserved`).
    """
    address = key_of(queue).address
    if queue == MANAGEMENT:
        return f"{queue} takes requests; answers come to a queue, as of a dynamic source"
    if is_reserved(queue):
        return f"{shown(queue)} does not exist, and names with {TEMPORARY!r} are the broker's"
    if address.startswith("amq."):
        return f"{shown(queue)} does not exist, and names with amq. are not created on demand"
    if address in exchanges and address != queue:
        return f"{shown(queue)} does not exist, and {shown(address)} is an exchange: bind a queue"
    return None
