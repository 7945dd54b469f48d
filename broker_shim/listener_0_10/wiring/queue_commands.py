"""queue.declare, delete, purge and query."""

from __future__ import annotations

from typing import Any

from broker_shim.amqp_0_10.commands import QueueDeclare, QueueDelete, QueuePurge, QueueQuery
from broker_shim.amqp_0_10.definitions import ExecutionErrorCode
from broker_shim.amqp_0_10.structs import QueueQueryResult
from broker_shim.broker.address import QueueNode, refusal_to_create
from broker_shim.durability import TerminusDurability
from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.framing.errors import RemoteCommandError
from broker_shim.listener_0_10.authorization import check
from broker_shim.listener_0_10.refusals import (
    illegal_argument,
    locked,
    not_allowed,
    not_found,
    not_implemented,
)
from broker_shim.security.rules.permissions import Permission
from broker_shim.store.interface import Queue
from sparkstore.core.queue_names import canonical, shown


def declare(session: Any, command: QueueDeclare, command_id: int) -> None:
    """Have a queue: the one that is there, or a new one."""
    name = name_of(command.queue)
    broker, host = session.broker, session.connection.host
    if name in broker.queues:
        check_owner(session, name)
        session.complete(command_id)
        return
    _check_new(session, command, name)
    kept = TerminusDurability.UNSETTLED_STATE if command.durable else TerminusDurability.NONE
    finished = session.done(command_id)

    def created(error: StoreError | None) -> None:
        if error is None and command.auto_delete:
            host.delete_when_unused(name)
        if error is None and command.exclusive:
            if session.is_over:
                host.unsubscribed(name)
            else:
                host.claim(name, session)
        finished(error)

    broker.create_queue(Queue(name, kept), created)


def _check_new(session: Any, command: QueueDeclare, name: str) -> None:
    if command.passive:
        text = f"there is no queue {shown(name)}"
        raise not_found(text)
    _allowed(session, Permission.CREATE, name)
    refusal = refusal_to_create(name, session.broker.router)
    if refusal is not None:
        raise not_allowed(refusal)
    if command.alternate_exchange:
        raise not_implemented("queue.declare with an alternate exchange: name a dead-letter queue")


def delete(session: Any, command: QueueDelete, command_id: int) -> None:
    """Destroy a queue with its messages."""
    name = existing(session, command.queue)
    _allowed(session, Permission.CREATE, name)
    check_owner(session, name)
    dispatch = session.broker.queues[name]
    if command.if_unused and dispatch.consumer_count:
        text = f"queue {shown(name)} has {dispatch.consumer_count} subscribers"
        raise RemoteCommandError(ExecutionErrorCode.PRECONDITION_FAILED, text)
    if command.if_empty and len(dispatch):
        text = f"queue {shown(name)} has {len(dispatch)} messages"
        raise RemoteCommandError(ExecutionErrorCode.PRECONDITION_FAILED, text)
    for consumer in dispatch.consumers:
        consumer.queue_deleted()
    session.broker.destroy_queue(name, session.done(command_id))


def purge(session: Any, command: QueuePurge, command_id: int) -> None:
    """Take what waits on a queue off it; what is held stays."""
    name = existing(session, command.queue)
    _allowed(session, Permission.READ, name)
    check_owner(session, name)
    finished = session.done(command_id)
    session.broker.administration.purge(
        name, lambda _answer: True, lambda error, _count: finished(error)
    )


def query(session: Any, command: QueueQuery, command_id: int) -> None:
    """What a queue is; nothing is said of one that is not there."""
    name = canonical_or_empty(command.queue)
    dispatch, defined = session.broker.queues.get(name), session.broker.definitions.get(name)
    if dispatch is None or defined is None:
        session.result(command_id, QueueQueryResult(None))  # type: ignore[arg-type]
        return
    host = session.connection.host
    told = QueueQueryResult(
        command.queue,
        durable=defined.durability is TerminusDurability.UNSETTLED_STATE,
        exclusive=host.owner_of(name) is not None,
        auto_delete=host.is_leaving(name),
        message_count=min(len(dispatch), 0xFFFFFFFF),
        subscriber_count=dispatch.consumer_count,
    )
    session.result(command_id, told)


def name_of(said: str) -> str:
    """What the store calls a queue that a command names.

    Raises:
        RemoteCommandError: It is no name.
    """
    if not said:
        raise RemoteCommandError(ExecutionErrorCode.INVALID_ARGUMENT, "a queue needs a name")
    try:
        return canonical(said)
    except InvalidRequest as reason:
        raise illegal_argument(str(reason)) from reason


def canonical_or_empty(said: str) -> str:
    """The same of a name that may be none, and then names nothing."""
    try:
        return canonical(said)
    except InvalidRequest:
        return ""


def existing(session: Any, said: str) -> str:
    """The name of a queue that is there, also by its short name.

    Raises:
        RemoteCommandError: It is not.
    """
    name = name_of(said)
    if name not in session.broker.queues:
        node = session.broker.destinations.source_of(said)
        if isinstance(node, QueueNode) and node.queue in session.broker.queues:
            return node.queue
        text = f"there is no queue {shown(said)}"
        raise not_found(text)
    return name


def check_owner(session: Any, name: str) -> None:
    """See that a queue is nobody else's alone.

    Raises:
        RemoteCommandError: It is another session's.
    """
    if session.connection.host.owner_of(name) not in {None, session}:
        text = f"queue {shown(name)} is exclusive to another session"
        raise locked(text)


def _allowed(session: Any, act: Permission, name: str) -> None:
    connection = session.connection
    check(connection.access, connection.login, act, QueueNode(name), name)
