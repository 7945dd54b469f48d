"""queue.declare, delete, purge and query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker_shim.amqp_0_10.commands import QueueDeclare, QueueDelete, QueuePurge, QueueQuery
from broker_shim.amqp_0_10.structs import QueueQueryResult
from broker_shim.broker.queues.local_messages import NoLocal
from broker_shim.broker.virtual_host import Broker
from broker_shim.broker.wiring.address import (
    ExchangeNode,
    QueueNode,
    refusal_to_create,
)
from broker_shim.durability import TerminusDurability
from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.framing.errors import RemoteCommandError
from broker_shim.listener_0_10.refusals import (
    illegal_argument,
    locked,
    not_allowed,
    not_found,
)
from broker_shim.listener_0_10.sessions.authorization import (
    check,
    check_owner,
    check_something,
    existing_at,
    name_of,
    named,
)
from broker_shim.listener_0_10.sessions.session import Amqp010Session
from broker_shim.listener_0_10.wiring import order_commands as orders
from broker_shim.security.rules.rights import Act
from broker_shim.sockets import client_orders
from broker_shim.sockets.client_orders import canonical_or_empty
from sparkstore.core.queue_arguments import QueueArguments
from sparkstore.core.queue_names import shown
from sparkstore.core.wiring_arguments import ALTERNATE_EXCHANGE
from sparkstore.operations.administration import AdminAction, Order

_OTHER_NAMES = {"qpid.last_value_queue_key": "last_value_key"}
"""Arguments of queue.declare as other brokers call them, and as queues here do."""
_NO_LOCAL = "no-local"
"""Argument of an exclusive queue: it gets nothing of the connection whose session has it alone."""


def declare(session: Amqp010Session, command: QueueDeclare, command_id: int) -> None:
    """Have a queue: the one that is there, or a new one."""
    name = name_of(command.queue)
    broker = session.broker
    if name in broker.queues:
        _check_there(session, command, name)
        _claim(session, command, name)
        session.complete(command_id)
        return
    _check_not_passive(session, command, name)
    kept = TerminusDurability.UNSETTLED_STATE if command.durable else TerminusDurability.NONE
    act, arguments = AdminAction.CREATE_QUEUE, _arguments(command)
    order = Order(act, name, arguments=arguments, durability=int(kept))
    orders.check_order(session, order)
    _check_new(broker, command, name)
    finished = session.done(command_id)

    def created(error: StoreError | None, _told: Any) -> None:
        if error is None and not session.is_over:
            try:
                _claim(session, command, name, is_new=True)
            except RemoteCommandError as reason:
                session.fail(reason, command_id)
                return
        finished(error)

    user = session.connection.login.principal.name
    broker.administration.order(order, created, user=user)


def _arguments(command: QueueDeclare) -> dict[str, Any]:
    """Read the arguments of a new queue; others are no affair of the store."""
    given = plain_arguments(command.arguments)
    named = {_OTHER_NAMES.get(name, name): value for name, value in given.items()}
    arguments = {name: named[name] for name in QueueArguments._fields if name in named}
    if command.auto_delete:
        arguments["auto_delete"] = True
    if command.alternate_exchange:
        arguments[ALTERNATE_EXCHANGE] = command.alternate_exchange
    return arguments


def _check_there(session: Amqp010Session, command: QueueDeclare, name: str) -> None:
    if command.exclusive:
        check(session, Act.HAVE_ALONE, QueueNode(name), command.queue)
    else:
        check_something(session, command.queue, QueueNode(name))
    check_owner(session, name)
    alternate = session.broker.queues[name].arguments.alternate_exchange
    if command.alternate_exchange and not command.passive:
        check_something(
            session, command.alternate_exchange, ExchangeNode(command.alternate_exchange)
        )
        if command.alternate_exchange not in session.broker.router:
            raise _no_alternate(command.alternate_exchange)
        if command.alternate_exchange != alternate:
            text = f"queue {shown(name)} is there with another alternate exchange"
            raise not_allowed(text)


def _claim(
    session: Amqp010Session, command: QueueDeclare, name: str, *, is_new: bool = False
) -> None:
    """Have the queue to itself, if that is asked for."""
    if command.exclusive:
        try:
            session.broker.claims.claim(name, session, is_new=is_new)
        except InvalidRequest as reason:
            raise locked(str(reason)) from reason
        if command.arguments and _NO_LOCAL in command.arguments:
            is_asked = bool(command.arguments[_NO_LOCAL])
            session.broker.queues[name].no_local = NoLocal(of_claim=True) if is_asked else None


def _check_not_passive(session: Amqp010Session, command: QueueDeclare, name: str) -> None:
    if command.passive:
        check_something(session, command.queue, QueueNode(name))
        text = f"there is no queue {shown(name)}"
        raise not_found(text)


def _check_new(broker: Broker, command: QueueDeclare, name: str) -> None:
    refusal = refusal_to_create(name, broker.router)
    if refusal is not None:
        raise not_allowed(refusal)
    alternate = command.alternate_exchange
    if alternate and alternate not in broker.router:
        raise _no_alternate(alternate)


def _no_alternate(exchange: str) -> RemoteCommandError:
    return not_found(f"there is no exchange {shown(exchange)} to be the alternate")


def delete(session: Amqp010Session, command: QueueDelete, command_id: int) -> None:
    """Destroy a queue; its messages go by its alternate exchange, if it has one."""
    name = destroyed(session, command.queue, Act.DELETE_QUEUE)
    order = Order(
        AdminAction.DELETE_QUEUE,
        name,
        force=True,
        if_unused=command.if_unused,
        if_empty=command.if_empty,
    )
    orders.carry_out(session, order, command_id)


def purge(session: Amqp010Session, command: QueuePurge, command_id: int) -> None:
    """Take what waits on a queue off it; what is held stays."""
    name = destroyed(session, command.queue, Act.PURGE)
    orders.purge(session, name, command_id)


def destroyed(session: Amqp010Session, given: str, act: Act) -> str:
    """The queue of a command that takes away what others may use, or one's own.

    Raises:
        RemoteCommandError: It may not be destroyed by this session, or is not there.
    """
    node = named(session, given)
    if isinstance(node, QueueNode) and session.broker.claims.is_own(node.queue, session):
        act = Act.END_OWN_QUEUE
    name = existing_at(session, act, node, given)
    check_owner(session, name)
    return name


def query(session: Amqp010Session, command: QueueQuery, command_id: int) -> None:
    """Answer a queue.query; a queue that is not there is answered with nothing."""
    name = canonical_or_empty(command.queue)
    check_something(session, command.queue, QueueNode(name))
    queue = session.broker.queries.queue(name)
    nothing = QueueQueryResult(None)  # type: ignore[arg-type]
    if queue is None:
        session.result(command_id, nothing)
        return
    arguments = dict(queue.arguments)
    answer = QueueQueryResult(
        command.queue,
        arguments.pop(ALTERNATE_EXCHANGE, None),
        durable=queue.durability is TerminusDurability.UNSETTLED_STATE,
        exclusive=session.broker.claims.is_claimed(name),
        auto_delete=bool(arguments.pop("auto_delete", False)),
        arguments={key: value for key, value in arguments.items() if isinstance(value, str | int)},
    )

    def counted(error: StoreError | None, figures: dict[str, Any]) -> None:
        if error is not None:
            session.done(command_id)(error)
        elif not figures:  # it was deleted meanwhile
            session.result(command_id, nothing)
        else:
            available = max(0, figures["depth"] - figures["acquired"])
            answer.message_count = min(available, 0xFFFFFFFF)
            answer.subscriber_count = figures["consumers"]
            session.result(command_id, answer)

    session.broker.queries.usage(name, counted)


def plain_arguments(arguments: Mapping[str, Any] | None) -> dict[str, Any]:
    """Arguments of a command as values that the store keeps: text, numbers, true, false, null.

    Raises:
        RemoteCommandError: One is something else.
    """
    try:
        return client_orders.plain_arguments(arguments)
    except InvalidRequest as reason:
        raise illegal_argument(str(reason)) from reason
