"""Check what a peer may do there: permissions, held against what a name means here.

One rule for all protocols: each listener says in its own words what is refused. Nothing is written
down here, and nobody is told.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from broker_shim.addressing.fqqn import key_of
from broker_shim.broker.virtual_host import Broker
from broker_shim.broker.wiring.address import (
    AddressNode,
    AmbiguousNode,
    AnonymousNode,
    ExchangeNode,
    Node,
    PatternNode,
    QueueNode,
)
from broker_shim.links.termini.owner import owner_of
from broker_shim.security.rules.permissions import AccessTarget, Permission, Principal
from broker_shim.security.rules.rights import RIGHTS, Act
from broker_shim.sockets.access import Access
from broker_shim.sockets.owners import owned
from broker_shim.store.interface import MessageHeader
from sparkstore.core.queue_names import (
    SUBSCRIPTION_PREFIX,
    TEMPORARY,
    TEMPORARY_PREFIX,
    is_temporary_topic,
    shown,
)


class KnownUser(Protocol):
    """The login of a client, as far as its rights go."""

    @property
    def principal(self) -> Principal:
        """Return the user, with its roles."""


class RightsSeeker(Protocol):
    """A client, as far as its rights go. On the loop's thread only."""

    @property
    def broker(self) -> Broker:
        """Return the virtual host that the client asks something of."""

    @property
    def access(self) -> Access:
        """Return how the client got in."""

    @property
    def login(self) -> KnownUser:
        """Return the login of the client."""

    @property
    def number(self) -> int:
        """Return the number of its connection; 0 if it has none."""


_MOST_CANDIDATES = 20
"""Of an ambiguous name: somebody may have made thousands."""


class Denial(NamedTuple):
    """The permission that a peer lacks, and the place of it."""

    right: Permission
    place: AccessTarget


def place_of(node: Node) -> AccessTarget | None:
    """Return the place where permissions look for a node; None for what names nothing by itself."""
    match _as_named(node):
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


def denied(client: RightsSeeker, right: Permission, node: Node | PatternNode) -> Denial | None:
    """Return the permission that a client lacks to do this on a node; None if it lacks none.

    It is the same whether the node exists or not. That a name is ambiguous is told to who may use
    one of the queues that it could mean.
    """
    if isinstance(node, AmbiguousNode):
        some = node.ambiguous.candidates[:_MOST_CANDIDATES]
        denials = [denied(client, right, QueueNode(queue)) for queue in some]
        return None if None in denials else denials[0]
    guard, principal = client.access.guard, client.login.principal
    if isinstance(node, PatternNode):
        is_allowed = guard.allows_all_of(principal, right, node.match)
        return None if is_allowed else Denial(right, AccessTarget(node.match))
    if isinstance(node, AnonymousNode) and not guard.allows_anywhere(principal, right):
        # What its messages say is looked at one by one, if it has any place.
        return Denial(right, AccessTarget(""))
    place = place_of(node)
    if place is None:
        return None
    if _is_anothers(client, right, node):
        right = RIGHTS[Act.USE_ANOTHERS]
    return None if guard.allows(principal, right, place) else Denial(right, place)


def may_do_something(client: RightsSeeker, node: Node) -> bool:
    """True if the client may do anything on a node: then it may know that the node exists."""
    return any(denied(client, right, node) is None for right in Permission)


def is_reserved_for_another(client: RightsSeeker, node: Node) -> bool:
    """True if a client may not consume from a queue, though it has the permission.

    A queue that the broker made for a connection, for answers, is consumed by that connection alone
    (JMS 2.0 section 6.2.2), or by its user's where the settings say so, or where that connection is
    not known here: it was another run's, or is another broker's on the same store. Administrators,
    where there are permissions, look at everything.
    """
    node = _as_named(node)
    queue = client.broker.queues.get(node.queue) if isinstance(node, QueueNode) else None
    if queue is None or queue.owner is None or queue.maker == client.number:
        return False
    if queue.maker is None and queue.owner == _owner(client) != "":
        return False
    guard, place = client.access.guard, place_of(node)
    is_admin = guard.has_permissions and guard.allows(
        client.login.principal, Permission.ADMIN, place or AccessTarget("")
    )
    return not is_admin and client.broker.settings.temporary_queues != "user"


def is_impersonation(client: RightsSeeker, header: MessageHeader) -> bool:
    """True if a message says that it is from a user whom its sender may not speak for.

    Receivers, selectors and SQL take a user-id for true, so it is checked before a message is
    taken, on every way in (AMQP 1.0 section 3.2.4, and the rule "authentication" of 0-10).
    """
    guard, user_id = client.access.guard, header.user_id
    return bool(user_id) and not guard.allows_user_id(client.login.principal, user_id or "")


def impersonation_text(client: RightsSeeker, user_id: str) -> str:
    """Tell why a message under another user's id is refused, and what to do."""
    name = shown(client.login.principal.name)
    return (
        f"{name} may not send as {shown(user_id)}: send with the user-id of the login or without"
        " one, or be named in impersonators of [security]"
    )


def _is_anothers(client: RightsSeeker, right: Permission, node: Node) -> bool:
    """True if a client gets at this queue by its name only as an administrator.

    A subscriber gets at its queue by its subscription. And who may have the broker name a queue for
    answers is not to read the answers to others, nor to take them away, though whoever answers
    knows the name: writing stays open. A queue that is not there yet is nobody's.
    """
    node = _as_named(node)
    if not isinstance(node, QueueNode):
        return False
    name = key_of(node.queue).queue
    if name.startswith(SUBSCRIPTION_PREFIX):
        return True
    if right is Permission.WRITE or not name.startswith(TEMPORARY_PREFIX):
        return False
    queue = client.broker.queues.get(node.queue)
    return queue is not None and queue.owner != _owner(client)


def _as_named(node: Node) -> Node:
    """Judge a temporary topic by the queue of its name, which tells whose it is."""
    if isinstance(node, AddressNode) and is_temporary_topic(node.address):
        return QueueNode(node.address)
    return node


def _owner(client: RightsSeeker) -> str:
    """Return the prefix of the user's container ids; "" for a client without a name."""
    return owner_of(owned("", client.login.principal.name))


def _is_temporary(queue: str) -> bool:
    """True for a queue that the broker named; one on an address is that address' affair.

    `temporary-x::orders` is none: its short name is what others call their own.
    """
    key = key_of(queue)
    return key.address == key.queue and queue.startswith(TEMPORARY_PREFIX)
