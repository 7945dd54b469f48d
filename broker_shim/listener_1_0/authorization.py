"""May this peer do that there? Permissions, held against what an address means here."""

from __future__ import annotations

from broker_shim.addressing.fqqn import key_of
from broker_shim.broker.address import (
    AddressNode,
    AmbiguousNode,
    AnonymousNode,
    ExchangeNode,
    Node,
    QueueNode,
)
from broker_shim.links.termini.owner import owner_of
from broker_shim.listener_1_0.attach.own_queue import PREFIX as SUBSCRIPTION
from broker_shim.listener_1_0.conditions import RESOURCE_LOCKED, UNAUTHORIZED_ACCESS, Refusal
from broker_shim.listener_1_0.connection import Connection
from broker_shim.security.rules.permissions import AccessTarget, Permission
from sparkstore.core.queue_names import TEMPORARY, TEMPORARY_PREFIX, shown

_MOST_CANDIDATES = 20
"""Of an ambiguous name: somebody may have made thousands."""


def place_of(node: Node) -> AccessTarget | None:
    """Where permissions look for a node; None for what names nothing by itself."""
    match node:
        case QueueNode(queue):
            key = key_of(queue)
            if _is_temporary(queue):
                return AccessTarget(TEMPORARY, key.queue, is_named_by_broker=True)
            return AccessTarget(key.address, key.queue)
        case AddressNode(address):
            return AccessTarget(address)
        case ExchangeNode(exchange, _):
            return AccessTarget(exchange)
        case _:
            return None


def refusal_of_link(
    connection: Connection,
    act: Permission,
    node: Node,
    said: str | None,
    *,
    is_durable: bool = False,
) -> Refusal | None:
    """Why the peer may not attach there; None if it may.

    It must be allowed to create what is not there, and a subscription that stays when it is gone.
    """
    refusal = refusal_of_act(connection, act, node, said)
    if refusal is None and (is_durable or _is_missing(connection, node)):
        refusal = refusal_of_act(connection, Permission.CREATE, node, said)
    return refusal


def refusal_of_consumer(connection: Connection, node: Node) -> Refusal | None:
    """Why the peer may not consume there, though it is allowed to; None if it may.

    A queue that the broker made for a connection, for answers, is consumed by that connection alone
    (JMS 2.0 section 6.2.2), or by its user's where the settings say so, or where that connection is
    not known here: it was another run's, or is another broker's on the same store. Administrators,
    where there are permissions, look at everything.
    """
    queue = connection.broker.queues.get(node.queue) if isinstance(node, QueueNode) else None
    if queue is None or queue.owner is None or queue.maker == connection.number:
        return None
    if queue.maker is None and queue.owner == owner_of(connection.container) != "":
        return None
    guard, place = connection.access.guard, place_of(node)
    is_admin = guard.has_permissions and guard.allows(
        connection.login.principal, Permission.ADMIN, place or AccessTarget("")
    )
    if is_admin or connection.broker.settings.temporary_queues == "user":
        return None
    text = f"queue {shown(queue.name)} is consumed by the connection that had it made alone"
    return Refusal(RESOURCE_LOCKED, text)


def _is_anothers(connection: Connection, act: Permission, node: Node) -> bool:
    """True if a client gets at this queue by its name only as an administrator.

    A subscriber gets at its queue by its subscription. And who may have the broker name a queue for
    answers is not to read the answers to others, though whoever answers knows the name: writing
    stays open. A queue that is not there yet is nobody's.
    """
    if not isinstance(node, QueueNode):
        return False
    name = key_of(node.queue).queue
    if name.startswith(SUBSCRIPTION):
        return True
    if act is not Permission.READ or not name.startswith(TEMPORARY_PREFIX):
        return False
    there = connection.broker.queues.get(node.queue)
    return there is not None and there.owner != owner_of(connection.container)


def _is_temporary(queue: str) -> bool:
    """True for a queue that the broker named; one on an address is that address' affair.

    `temporary-x::orders` is none: its short name is what others call their own.
    """
    key = key_of(queue)
    return key.address == key.queue and queue.startswith(TEMPORARY_PREFIX)


def _is_missing(connection: Connection, node: Node) -> bool:
    return isinstance(node, QueueNode) and node.queue not in connection.broker.queues


def may(connection: Connection, act: Permission, node: Node) -> bool:
    """True if the peer may do this there; nothing is written down."""
    return _denied(connection, act, node) is None


def refusal_of_act(
    connection: Connection, act: Permission, node: Node, said: str | None, *, is_told: bool = False
) -> Refusal | None:
    """Why the peer may not do this there; None if it may.

    The answer is in the peer's own words, and the same whether the node exists or not: it tells
    nobody what there is, nor on which address.

    Args:
        connection: The connection of the peer.
        act: What it wants to do.
        node: Where it wants to do it.
        said: What it called that; None: a queue that the broker is to name.
        is_told: The audit log has been told of one like it: a million messages of one link that
            are refused are one line, and a counter.
    """
    denied = _denied(connection, act, node)
    if denied is None:
        return None
    access, principal = connection.access, connection.login.principal
    access.guard.refused(access.remote, principal, *denied, is_told=is_told)
    text = f"{shown(principal.name)} has no permission to {denied[0]} {shown(said or TEMPORARY)}"
    return Refusal(UNAUTHORIZED_ACCESS, text)


def _denied(
    connection: Connection, act: Permission, node: Node
) -> tuple[Permission, AccessTarget] | None:
    """What the peer would have to be allowed, and is not; None if it may.

    That a name is ambiguous is told to who may use one of the queues that it could mean.
    """
    if isinstance(node, AmbiguousNode):
        some = node.ambiguous.candidates[:_MOST_CANDIDATES]
        denied = [_denied(connection, act, QueueNode(queue)) for queue in some]
        return None if None in denied else denied[0]
    guard, principal = connection.access.guard, connection.login.principal
    if isinstance(node, AnonymousNode) and not guard.allows_anywhere(principal, act):
        return act, AccessTarget(
            ""
        )  # what its messages say is looked at one by one, if it has any place
    place = place_of(node)
    if place is None:
        return None
    if _is_anothers(connection, act, node):
        act = Permission.ADMIN
    return None if guard.allows(principal, act, place) else (act, place)
