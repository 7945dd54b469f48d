"""What an AMQP address means here. Pure.

    address                     a sender's messages go to             a receiver gets
    queue                       that queue                            its messages
    exchange                    its queues for the message's subject  a subscription to everything
    exchange/routing.key        its queues for that routing key       a subscription to that key
    (none)                      what the message's `to` says          -

The name of a queue wins over the same name of an exchange. The first `/` parts an exchange from its
key, and only if there is such an exchange: any other text is the name of a queue, slashes and all.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QueueNode:
    """A queue, there or not."""

    queue: str


@dataclass(frozen=True, slots=True)
class ExchangeNode:
    """An exchange; the routing key is None where the message's subject is."""

    exchange: str
    routing_key: str | None = None


@dataclass(frozen=True, slots=True)
class AnonymousNode:
    """Wherever each message's `to` says."""


Node = QueueNode | ExchangeNode | AnonymousNode


def node_of(address: str | None, *, queues: Container[str], exchanges: Container[str]) -> Node:
    """What an address names."""
    if not address:
        return AnonymousNode()
    if address in queues:
        return QueueNode(address)
    if address in exchanges:
        return ExchangeNode(address)
    exchange, slash, routing_key = address.partition("/")
    if slash and exchange in exchanges:
        return ExchangeNode(exchange, routing_key)
    return QueueNode(address)


def refusal_to_create(queue: str) -> str | None:
    """Why a queue of this name is not created on demand; None if it may be.

    `amq.` is kept for the broker's own names, so that a misspelt exchange is an error and not a
    queue; `::` will part address and queue (FQQN).
    """
    if queue.startswith("amq."):
        return f"{queue!r} does not exist, and names with amq. are not created on demand"
    if "::" in queue:
        return f"{queue!r} does not exist, and names with :: are not created on demand"
    return None
