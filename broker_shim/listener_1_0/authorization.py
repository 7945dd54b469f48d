"""May this peer do that there? The rule of all protocols, and why a peer of AMQP 1.0 may not."""

from __future__ import annotations

from broker_shim.amqp_1_0.definitions import AmqpError
from broker_shim.broker.wiring.address import AddressNode, Node, PatternNode, QueueNode
from broker_shim.listener_1_0.conditions import Refusal
from broker_shim.listener_1_0.connections.connection import Connection
from broker_shim.security.rules.rights import RIGHTS, Act
from broker_shim.sockets.authorization import (
    denied,
    impersonation_text,
    is_reserved_for_another,
)
from sparkstore.core.queue_names import TEMPORARY, shown


def refusal_of_link(
    connection: Connection,
    act: Act,
    node: Node,
    address: str | None,
    *,
    is_durable: bool = False,
) -> Refusal | None:
    """Why the peer may not attach there; None if it may.

    It must be allowed to create what is not there, and a subscription that stays when it is gone.
    """
    refusal = refusal_of_act(connection, act, node, address)
    if refusal is None and is_durable:
        refusal = refusal_of_act(connection, Act.SUBSCRIBE_DURABLY, node, address)
    if refusal is None and _is_missing(connection, node):
        refusal = refusal_of_act(connection, Act.MAKE_QUEUE, node, address)
    return refusal


def refusal_of_consumer(connection: Connection, node: Node) -> Refusal | None:
    """Why the peer may not consume there, though it is allowed to; None if it may."""
    if not is_reserved_for_another(connection, node):
        return None
    name = node.address if isinstance(node, AddressNode) else getattr(node, "queue", "")
    text = f"{shown(name)} is consumed by the connection that had it made alone"
    return Refusal(AmqpError.RESOURCE_LOCKED, text)


def _is_missing(connection: Connection, node: Node) -> bool:
    if isinstance(node, AddressNode):
        return node.is_topic and not connection.broker.destinations.is_multicast(node.address)
    return isinstance(node, QueueNode) and node.queue not in connection.broker.queues


def may(connection: Connection, act: Act, node: Node) -> bool:
    """True if the peer may do this there; nothing is written down."""
    return denied(connection, RIGHTS[act], node) is None


def refusal_of_act(
    connection: Connection,
    act: Act,
    node: Node | PatternNode,
    address: str | None,
    *,
    is_told: bool = False,
) -> Refusal | None:
    """Why the peer may not do this there; None if it may.

    The answer is in the peer's own words, and the same whether the node exists or not: it tells
    nobody what there is, nor on which address.

    Args:
        connection: The connection of the peer.
        act: What it wants to do.
        node: Where it wants to do it.
        address: What it called that; None: a queue that the broker is to name.
        is_told: The audit log has been told of one like it: a million messages of one link that
            are refused are one line, and a counter.
    """
    denial = denied(connection, RIGHTS[act], node)
    if denial is None:
        return None
    access, principal = connection.access, connection.login.principal
    access.guard.refused(access.remote, principal, *denial, is_told=is_told)
    target = shown(address or TEMPORARY)
    text = f"{shown(principal.name)} has no permission to {denial.right} {target}"
    return Refusal(AmqpError.UNAUTHORIZED_ACCESS, text)


def refusal_of_user_id(connection: Connection, user_id: str, *, is_told: bool) -> Refusal:
    """Why a message is not taken that says it is from somebody else; `is_told` as above."""
    access, principal = connection.access, connection.login.principal
    access.guard.refused_user_id(access.remote, principal, user_id, is_told=is_told)
    return Refusal(AmqpError.UNAUTHORIZED_ACCESS, impersonation_text(connection, user_id))
