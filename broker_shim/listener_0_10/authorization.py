"""May this peer do that there? Permissions, held against what a name means here."""

from __future__ import annotations

from broker_shim.addressing.fqqn import key_of
from broker_shim.amqp_0_10.definitions import ExecutionErrorCode
from broker_shim.broker.address import AddressNode, ExchangeNode, Node, QueueNode
from broker_shim.framing.errors import RemoteCommandError
from broker_shim.security.rules.permissions import AccessTarget, Permission
from broker_shim.sockets.access import Access
from broker_shim.sockets.login import Login
from sparkstore.core.queue_names import TEMPORARY_PREFIX, shown

_OWN = ("subscription-", TEMPORARY_PREFIX)
"""How queues begin that the broker named for a client of AMQP 1.0: they are that client's own."""


def check(access: Access, login: Login, act: Permission, node: Node, said: str) -> None:
    """See that a peer may do this there.

    Args:
        access: How the peer got in.
        login: Who it is.
        act: What it wants to do.
        node: Where it wants to do it.
        said: What it called that.

    Raises:
        RemoteCommandError: It may not; the audit log was told.
    """
    place = _place_of(node)
    if place is None:
        return
    if isinstance(node, QueueNode) and act is not Permission.WRITE and _is_owned(node.queue):
        act = Permission.ADMIN
    if access.guard.allows(login.principal, act, place):
        return
    access.guard.refused(access.remote, login.principal, act, place)
    text = f"{shown(login.principal.name)} has no permission to {act} {shown(said)}"
    raise RemoteCommandError(ExecutionErrorCode.UNAUTHORIZED_ACCESS, text)


def may(access: Access, login: Login, act: Permission, node: Node) -> bool:
    """Whether `check` would let it pass; nobody is told."""
    place = _place_of(node)
    return place is None or access.guard.allows(login.principal, act, place)


def _is_owned(queue: str) -> bool:
    return key_of(queue).queue.startswith(_OWN)


def _place_of(node: Node) -> AccessTarget | None:
    match node:
        case QueueNode(queue):
            key = key_of(queue)
            return AccessTarget(key.address, key.queue)
        case AddressNode(address):
            return AccessTarget(address)
        case ExchangeNode(exchange, _):
            return AccessTarget(exchange)
        case _:
            return None
