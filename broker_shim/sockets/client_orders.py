"""Carry out a client's order about queues, exchanges or bindings: rights, names, the audit log.

One rule for all protocols. Each listener reads an order in its own words, has `needed_acts` looked
at before anything else of it is told, and says in its own words what is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from broker_shim.broker.orders.administration import OnPurged, OnTold
from broker_shim.broker.virtual_host import Broker
from broker_shim.broker.wiring.address import (
    AmbiguousNode,
    ExchangeNode,
    Node,
    PatternNode,
    QueueNode,
)
from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.security.rules.rights import Act
from broker_shim.sockets.served_connection import ServedConnection
from sparkstore.control.audit import AuditEvent, audit_order
from sparkstore.core.policies import Policy
from sparkstore.core.queue_names import canonical, shown
from sparkstore.core.wiring_arguments import ALTERNATE_EXCHANGE
from sparkstore.operations.administration import AdminAction, Order
from sparkstore.operations.bulk import Answer

_WRITTEN_DOWN = frozenset(
    {
        *(AdminAction.ALTER_QUEUE, AdminAction.DELETE_QUEUE),
        *(AdminAction.DELETE_EXCHANGE, AdminAction.REMOVE_BINDING),
    }
)


class _Needed(NamedTuple):
    """The acts of an order: at its queue, at its exchange, on all that its policy covers."""

    at_queue: Act | None = None
    at_exchange: Act | None = None
    of_policy: Act | None = None


_NEEDED: Mapping[AdminAction, _Needed] = {
    AdminAction.CREATE_QUEUE: _Needed(Act.MAKE_QUEUE),
    AdminAction.ALTER_QUEUE: _Needed(Act.ALTER_QUEUE),
    AdminAction.DELETE_QUEUE: _Needed(Act.DELETE_QUEUE),
    AdminAction.CREATE_EXCHANGE: _Needed(None, Act.MAKE_EXCHANGE),
    AdminAction.DELETE_EXCHANGE: _Needed(None, Act.DELETE_EXCHANGE),
    AdminAction.ADD_BINDING: _Needed(Act.BIND_QUEUE, Act.BIND_TO_EXCHANGE),
    AdminAction.REMOVE_BINDING: _Needed(Act.UNBIND, Act.BIND_TO_EXCHANGE),
    AdminAction.SET_POLICY: _Needed(of_policy=Act.SET_POLICY),
    AdminAction.DELETE_POLICY: _Needed(of_policy=Act.SET_POLICY),
}
"""An order that is not listed is refused."""


class NeededAct(NamedTuple):
    """An act that an order needs the right to.

    Attributes:
        act: What is done.
        node: Where it is done.
        name: What the client called that.
    """

    act: Act
    node: Node | PatternNode
    name: str


def needed_acts(
    order: Order, policies: Sequence[Policy], queue: Node | None = None
) -> Iterator[NeededAct]:
    """Tell all acts that an order needs the right to; all of them are looked at first.

    Args:
        order: With the names as the client said them.
        policies: Those there are: to replace or delete one needs the right to what it covers.
        queue: What it means by the queue (`queue_meant`); None: a queue of just that name.

    Raises:
        InvalidRequest: Nothing says what the order needs, so nobody may give it.
    """
    needed = _NEEDED.get(order.act)
    if needed is None:
        message = f"{order.act}: no right is defined for it, so no client may order it"
        raise InvalidRequest(message)
    at_queue, at_exchange, of_policy = needed
    if at_queue is not None:
        yield NeededAct(at_queue, queue or QueueNode(order.queue), order.queue)
    if at_exchange is not None:
        yield NeededAct(at_exchange, ExchangeNode(order.exchange), order.exchange)
    if of_policy is not None:
        replaced = (policy.match for policy in policies if policy.name == order.key)
        for match in filter(None, (order.match, *replaced)):
            yield NeededAct(of_policy, PatternNode(match), match)
    dead_letters = order.arguments.get("dead_letter_queue")
    if isinstance(dead_letters, str) and dead_letters:
        yield NeededAct(Act.DIVERT, QueueNode(canonical_or_empty(dead_letters)), dead_letters)
    alternate = order.arguments.get(ALTERNATE_EXCHANGE)
    if isinstance(alternate, str) and alternate:
        yield NeededAct(Act.DIVERT, ExchangeNode(alternate), alternate)


def queue_meant(broker: Broker, name_given: str) -> Node:
    """Find the node that a client means by a queue's name: there, or to be of this name.

    Raises:
        InvalidRequest: It is no name.
    """
    name = canonical(name_given)
    if name not in broker.queues:
        node: Node = broker.destinations.source_of(name_given)
        is_there = isinstance(node, QueueNode) and node.queue in broker.queues
        if is_there or isinstance(node, AmbiguousNode):
            return node
    return QueueNode(name)


def canonical_or_empty(given: str) -> str:
    """Return the store's name of a queue; of what is no name "", which names nothing."""
    try:
        return canonical(given)
    except InvalidRequest:
        return ""


def plain_arguments(arguments: Mapping[Any, Any] | None) -> dict[str, Any]:
    """Turn arguments into values that the store keeps: text, numbers, true, false, null.

    Raises:
        InvalidRequest: One is something else.
    """
    return {str(name): _plain(name, value) for name, value in (arguments or {}).items()}


def _plain(name: object, value: Any) -> str | int | float | bool | None:
    if value is None or isinstance(value, bool):
        return value
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind(value)
    message = f"argument {shown(str(name))} is of a type that the broker does not keep"
    raise InvalidRequest(message)


def carry_out(connection: ServedConnection, order: Order, on_told: OnTold) -> None:
    """Have the broker do what a client orders; `on_told` when it is durable, or refused.

    The audit log says who had what altered or destroyed, and what was refused, as of an
    administrator. What is made is not written down: clients make queues with every connection.
    """
    user = connection.login.principal.name

    def done(error: StoreError | None, answer: dict[str, Any]) -> None:
        if order.act in _WRITTEN_DOWN:
            access = connection.access
            audit_order(access.guard.audit, str(access.remote), order, answer, error, user)
        on_told(error, answer)

    connection.broker.administration.order(order, done, user=user)


def purge(connection: ServedConnection, queue: str, on_purged: OnPurged) -> None:
    """Have what waits on a queue taken off it, and written down."""

    def purged(error: StoreError | None, total: Answer) -> None:
        connection.access.guard.audit(
            AuditEvent.ADMINISTRATION,
            peer=connection.access.remote,
            user=connection.login.principal.name,
            act="purge-queue",
            queue=queue,
            done=total.done,
            error=error,
        )
        on_purged(error, total)

    connection.broker.administration.purge(queue, lambda _answer: True, purged)
