"""May this peer do that there? The rule of all protocols; a refusal ends an AMQP 0-10 session.

What a command names is looked at before it is told whether that is there: not found and not allowed
look alike to who may do nothing there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_shim.amqp_0_10.definitions import ExecutionErrorCode
from broker_shim.broker.wiring.address import Node, PatternNode, QueueNode
from broker_shim.errors import InvalidRequest
from broker_shim.framing.errors import RemoteCommandError
from broker_shim.listener_0_10.refusals import illegal_argument, locked, not_found
from broker_shim.security.rules.permissions import AccessTarget, Permission
from broker_shim.security.rules.rights import RIGHTS, Act
from broker_shim.sockets import client_orders
from broker_shim.sockets.authorization import (
    Denial,
    denied,
    impersonation_text,
    is_impersonation,
    may_do_something,
)
from broker_shim.store.interface import MessageHeader
from sparkstore.core.queue_names import canonical, shown

if TYPE_CHECKING:
    from broker_shim.listener_0_10.sessions.session import Amqp010Session


def check(session: Amqp010Session, act: Act, node: Node | PatternNode, name: str) -> None:
    """Check that a session's peer may do this there.

    Args:
        session: The session; `Amqp010Session`.
        act: What it wants to do.
        node: Where it wants to do it.
        name: What it called that.

    Raises:
        RemoteCommandError: It may not; the audit log was told.
    """
    denial = denied(session.connection, RIGHTS[act], node)
    if denial is not None:
        raise _refused(session, denial, name)


def may(session: Amqp010Session, act: Act, node: Node) -> bool:
    """Whether `check` would let it pass; nobody is told."""
    return denied(session.connection, RIGHTS[act], node) is None


def check_something(session: Amqp010Session, name: str, *nodes: Node) -> None:
    """Check that a session's peer may do anything at one of these, so may know of it.

    Raises:
        RemoteCommandError: It may not; the audit log was told.
    """
    if not any(may_do_something(session.connection, node) for node in nodes):
        denial = denied(session.connection, Permission.READ, nodes[0])
        assert denial is not None, "what names nothing is denied to nobody"
        raise _refused(session, denial, name)


def check_anywhere(session: Amqp010Session, name: str) -> None:
    """Check that a session's peer may take from, or send to, any place at all.

    Raises:
        RemoteCommandError: There is none; the audit log was told.
    """
    connection = session.connection
    guard, principal = connection.access.guard, connection.login.principal
    rights = (Permission.READ, Permission.WRITE)
    if not any(guard.allows_anywhere(principal, right) for right in rights):
        raise _refused(session, Denial(Permission.WRITE, AccessTarget("")), name)


def check_user_id(session: Amqp010Session, header: MessageHeader) -> None:
    """Check that a message is from whom it says it is.

    Raises:
        RemoteCommandError: Its sender may not speak for that user; the audit log was told.
    """
    connection = session.connection
    if header.user_id and is_impersonation(connection, header):
        access = connection.access
        access.guard.refused_user_id(access.remote, connection.login.principal, header.user_id)
        text = impersonation_text(connection, header.user_id)
        raise RemoteCommandError(ExecutionErrorCode.UNAUTHORIZED_ACCESS, text)


def name_of(given: str) -> str:
    """Name the queue that a command means as the store does.

    Raises:
        RemoteCommandError: It is no name.
    """
    if not given:
        raise RemoteCommandError(ExecutionErrorCode.INVALID_ARGUMENT, "a queue needs a name")
    try:
        return canonical(given)
    except InvalidRequest as reason:
        raise illegal_argument(str(reason)) from reason


def existing(session: Amqp010Session, given: str, act: Act) -> str:
    """The name of a queue that is there, also by its short name, at which one may do this.

    Raises:
        RemoteCommandError: It is not, or one may not, whether it is there or not.
    """
    return existing_at(session, act, named(session, given), given)


def named(session: Amqp010Session, given: str) -> Node:
    """Find the node that a command means by a queue's name: there, or to be of this name.

    Raises:
        RemoteCommandError: It is no name.
    """
    name_of(given)
    return client_orders.queue_meant(session.broker, given)


def existing_at(session: Amqp010Session, act: Act, node: Node, given: str) -> str:
    """Name the queue that a node of `named` is, at which a session may do this; see `existing`.

    Raises:
        RemoteCommandError: As of `existing`.
    """
    check(session, act, node, given)
    if isinstance(node, QueueNode) and node.queue in session.broker.queues:
        return node.queue
    text = f"there is no queue {shown(given)}"
    raise not_found(text)


def check_owner(session: Amqp010Session, name: str) -> None:
    """Check that a queue is not exclusive to another session.

    Raises:
        RemoteCommandError: It is another session's.
    """
    if not session.broker.claims.may_use(name, session):
        text = f"queue {shown(name)} is exclusive to another session"
        raise locked(text)


def _refused(session: Amqp010Session, denial: Denial, name: str) -> RemoteCommandError:
    connection = session.connection
    access, principal = connection.access, connection.login.principal
    access.guard.refused(access.remote, principal, *denial)
    text = f"{shown(principal.name)} has no permission to {denial.right} {shown(name)}"
    return RemoteCommandError(ExecutionErrorCode.UNAUTHORIZED_ACCESS, text)
