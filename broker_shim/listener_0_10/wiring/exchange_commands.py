"""exchange.declare, delete, query, bind, unbind and bound."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker_shim.amqp_0_10.commands import (
    ExchangeBind,
    ExchangeBound,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeQuery,
    ExchangeUnbind,
)
from broker_shim.amqp_0_10.definitions import ExecutionErrorCode
from broker_shim.amqp_0_10.structs import ExchangeBoundResult, ExchangeQueryResult
from broker_shim.broker.address import ExchangeNode, QueueNode
from broker_shim.broker.routing import DEFAULT_EXCHANGES, EXCHANGE_TYPES
from broker_shim.framing.errors import RemoteCommandError
from broker_shim.listener_0_10.authorization import check
from broker_shim.listener_0_10.refusals import not_allowed, not_found
from broker_shim.listener_0_10.wiring.queue_commands import (
    canonical_or_empty,
    check_owner,
    existing,
    plain_arguments,
)
from broker_shim.security.rules.permissions import Permission
from broker_shim.store.interface import ExchangeBindingKey
from sparkstore.core.queue_names import shown
from sparkstore.core.wiring_arguments import ALTERNATE_EXCHANGE, HEADERS
from sparkstore.operations.administration import AdminAction, Order


def declare(session: Any, command: ExchangeDeclare, command_id: int) -> None:
    """Have an exchange of this type: the one that is there, or a new one."""
    name, router = command.exchange, session.broker.router
    if not name:
        raise _nameless()
    there = router.type_of(name)
    if there is not None:
        _check_there(command, there, router.alternate_of(name))
        session.complete(command_id)
        return
    if command.passive:
        raise _missing(name)
    _allowed(session, name)
    _check_new(session, command)
    alternate = command.alternate_exchange
    if alternate:  # what this one routes nowhere goes there
        _allowed(session, alternate, Permission.WRITE)
    arguments = {ALTERNATE_EXCHANGE: alternate} if alternate else {}
    order = Order(
        AdminAction.CREATE_EXCHANGE, exchange=name, type=command.type, arguments=arguments
    )
    _carry_out(session, order, command_id)


def _carry_out(session: Any, order: Order, command_id: int) -> None:
    finished = session.done(command_id)
    session.broker.administration.order(order, lambda error, _told: finished(error))


def _check_there(command: ExchangeDeclare, kind: str, alternate: str | None) -> None:
    name = shown(command.exchange)
    if command.type not in {kind, ""}:
        raise not_allowed(f"exchange {name} is of type {kind}, not {shown(command.type)}")
    if (
        command.alternate_exchange
        and not command.passive
        and command.alternate_exchange != alternate
    ):
        raise not_allowed(f"exchange {name} is there with another alternate exchange")


def _check_new(session: Any, command: ExchangeDeclare) -> None:
    if command.exchange.startswith("amq."):
        text = f"{shown(command.exchange)}: names with amq. are the broker's"
        raise not_allowed(text)
    if command.type not in EXCHANGE_TYPES:
        text = f"exchange type {shown(command.type)} is not one of {', '.join(EXCHANGE_TYPES)}"
        raise not_found(text)
    if command.alternate_exchange and command.alternate_exchange not in session.broker.router:
        raise _missing(command.alternate_exchange)


def delete(session: Any, command: ExchangeDelete, command_id: int) -> None:
    """Destroy an exchange with its bindings, unless it is the alternate of something."""
    name = command.exchange
    _check(session, name)
    _allowed(session, name)
    if name in DEFAULT_EXCHANGES:
        text = f"exchange {shown(name)} is the broker's"
        raise not_allowed(text)
    order = Order(
        AdminAction.DELETE_EXCHANGE, exchange=name, force=True, if_unused=command.if_unused
    )
    _carry_out(session, order, command_id)


def query(session: Any, command: ExchangeQuery, command_id: int) -> None:
    """What an exchange is; the one without a name is direct, to queues by their names."""
    name = command.name or ""
    there = session.broker.queries.exchange(name) if name else None
    if name and there is None:
        session.result(command_id, ExchangeQueryResult(not_found=True))
        return
    told = ExchangeQueryResult("direct" if there is None else there.type, durable=True)
    if there is not None and there.alternate is not None:
        told.arguments = {ALTERNATE_EXCHANGE: there.alternate}
    session.result(command_id, told)


def bind(session: Any, command: ExchangeBind, command_id: int) -> None:
    """Bind a queue to an exchange; arguments mean something to headers exchanges alone."""
    key = _key(session, command)
    arguments = _matching(session, key.exchange, command.arguments)
    act = AdminAction.ADD_BINDING
    order = Order(act, key.queue, key.exchange, key.binding_key, arguments=arguments or {})
    _carry_out(session, order, command_id)


def unbind(session: Any, command: ExchangeUnbind, command_id: int) -> None:
    """Take a binding away."""
    key = _key(session, command)
    if key not in session.broker.router.bindings():
        text = f"queue {shown(key.queue)} is not bound to {shown(key.exchange)} by that key"
        raise not_found(text)
    act = AdminAction.REMOVE_BINDING
    _carry_out(session, Order(act, key.queue, key.exchange, key.binding_key), command_id)


def _matching(
    session: Any, exchange: str, arguments: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    """Arguments of a binding, as far as the exchange asks for any; None: it does not."""
    if session.broker.router.type_of(exchange) != HEADERS:
        return None
    return plain_arguments(arguments)


def bound(session: Any, command: ExchangeBound, command_id: int) -> None:
    """What there is of an exchange, a queue and a binding; nothing is refused."""
    broker, exchange = session.broker, command.exchange or ""
    queue = None if not command.queue else canonical_or_empty(command.queue)
    if exchange:
        arguments = None
        if command.arguments:
            arguments = _matching(session, exchange, command.arguments)
        found = broker.queries.bound(exchange, queue, command.binding_key, arguments)
        session.result(command_id, ExchangeBoundResult(*found))
    else:
        session.result(command_id, _bound_by_name(broker, queue, command.binding_key))


def _bound_by_name(broker: Any, queue: str | None, key: str | None) -> ExchangeBoundResult:
    """To the exchange without a name each queue is bound by its own."""
    wanted = key if queue is None else queue
    told = ExchangeBoundResult(queue_not_found=queue is not None and queue not in broker.queues)
    told.key_not_matched = key is not None and (wanted != key or key not in broker.queues)
    return told


def _key(session: Any, command: ExchangeBind | ExchangeUnbind) -> ExchangeBindingKey:
    queue = existing(session, command.queue)
    check_owner(session, queue)
    _check(session, command.exchange)
    connection = session.connection
    check(
        connection.access,
        connection.login,
        Permission.READ,
        ExchangeNode(command.exchange),
        command.exchange,
    )
    check(connection.access, connection.login, Permission.CREATE, QueueNode(queue), queue)
    return ExchangeBindingKey(command.exchange, queue, command.binding_key)


def _check(session: Any, name: str) -> None:
    if not name:
        raise _nameless()
    if name not in session.broker.router:
        raise _missing(name)


def _allowed(session: Any, name: str, act: Permission = Permission.CREATE) -> None:
    connection = session.connection
    check(connection.access, connection.login, act, ExchangeNode(name), name)


def _missing(name: str) -> RemoteCommandError:
    return not_found(f"there is no exchange {shown(name)}")


def _nameless() -> RemoteCommandError:
    return RemoteCommandError(ExecutionErrorCode.INVALID_ARGUMENT, "an exchange needs a name")
