"""exchange.declare, delete, query, bind, unbind and bound."""

from __future__ import annotations

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
from broker_shim.errors import StoreError
from broker_shim.framing.errors import RemoteCommandError
from broker_shim.listener_0_10.authorization import check
from broker_shim.listener_0_10.refusals import not_allowed, not_found, not_implemented
from broker_shim.listener_0_10.wiring.queue_commands import (
    canonical_or_empty,
    check_owner,
    existing,
)
from broker_shim.security.rules.permissions import Permission
from broker_shim.store.interface import Exchange, ExchangeBindingKey
from sparkstore.core.queue_names import shown


def declare(session: Any, command: ExchangeDeclare, command_id: int) -> None:
    """Have an exchange of this type: the one that is there, or a new one."""
    name, router = command.exchange, session.broker.router
    if not name:
        raise _nameless()
    there = router.type_of(name)
    if there is not None:
        if command.type not in {there, ""}:
            text = f"exchange {shown(name)} is of type {there}, not {shown(command.type)}"
            raise not_allowed(text)
        session.complete(command_id)
        return
    if command.passive:
        raise _missing(name)
    _allowed(session, name)
    _check_new(command)
    finished = session.done(command_id)

    def created(error: StoreError | None) -> None:
        if error is None:
            router.add_exchange(name, command.type)
        finished(error)

    session.broker.calls.create(Exchange(name, command.type), created)


def _check_new(command: ExchangeDeclare) -> None:
    if command.exchange.startswith("amq."):
        text = f"{shown(command.exchange)}: names with amq. are the broker's"
        raise not_allowed(text)
    if command.type not in EXCHANGE_TYPES:
        text = f"exchange type {shown(command.type)} is not one of {', '.join(EXCHANGE_TYPES)}"
        raise not_found(text)
    if command.alternate_exchange:
        raise not_implemented("exchange.declare with an alternate exchange")


def delete(session: Any, command: ExchangeDelete, command_id: int) -> None:
    """Destroy an exchange with its bindings."""
    name, router = command.exchange, session.broker.router
    _check(session, name)
    _allowed(session, name)
    if name in DEFAULT_EXCHANGES:
        text = f"exchange {shown(name)} is the broker's"
        raise not_allowed(text)
    bound_to = [key for key in router.bindings() if key.exchange == name]
    if command.if_unused and bound_to:
        text = f"exchange {shown(name)} has {len(bound_to)} bindings"
        raise RemoteCommandError(ExecutionErrorCode.PRECONDITION_FAILED, text)
    finished = session.done(command_id)

    def destroyed(error: StoreError | None) -> None:
        if error is None:
            router.remove_exchange(name)
        finished(error)

    session.broker.calls.destroy(Exchange(name, router.type_of(name)), destroyed)


def query(session: Any, command: ExchangeQuery, command_id: int) -> None:
    """What an exchange is; the one without a name is direct, to queues by their names."""
    name = command.name or ""
    kind = session.broker.router.type_of(name) if name else "direct"
    if kind is None:
        session.result(command_id, ExchangeQueryResult(not_found=True))
    else:
        session.result(command_id, ExchangeQueryResult(kind, durable=True))


def bind(session: Any, command: ExchangeBind, command_id: int) -> None:
    """Bind a queue to an exchange."""
    key, router = _key(session, command), session.broker.router
    finished = session.done(command_id)

    def done(error: StoreError | None) -> None:
        if error is None:
            router.bind(key.exchange, key.binding_key, key.queue)
        finished(error)

    session.broker.calls.bind(key, done)


def unbind(session: Any, command: ExchangeUnbind, command_id: int) -> None:
    """Take a binding away."""
    key, router = _key(session, command), session.broker.router
    if key not in router.bindings():
        text = f"queue {shown(key.queue)} is not bound to {shown(key.exchange)} by that key"
        raise not_found(text)
    finished = session.done(command_id)

    def done(error: StoreError | None) -> None:
        if error is None:
            router.unbind(key.exchange, key.binding_key, key.queue)
        finished(error)

    session.broker.calls.unbind(key, done)


def bound(session: Any, command: ExchangeBound, command_id: int) -> None:
    """What there is of an exchange, a queue and a binding; nothing is refused."""
    broker, exchange = session.broker, command.exchange or ""
    queue = None if not command.queue else canonical_or_empty(command.queue)
    no_exchange = bool(exchange) and exchange not in broker.router
    no_queue = queue is not None and queue not in broker.queues
    told = ExchangeBoundResult(exchange_not_found=no_exchange, queue_not_found=no_queue)
    if not no_exchange:
        keys = _keys(broker, exchange, queue)
        if queue is not None and not no_queue:
            told.queue_not_matched = not any(each[0] == queue for each in keys)
        wanted = command.binding_key
        if wanted is not None:
            of_queue = [each for each in keys if queue is None or each[0] == queue]
            told.key_not_matched = not any(each[1] == wanted for each in of_queue)
    session.result(command_id, told)


def _keys(broker: Any, exchange: str, queue: str | None) -> list[tuple[str, str]]:
    """Queue and key of the bindings of an exchange; to the nameless one each queue is bound."""
    if not exchange:
        return [(queue, queue)] if queue is not None and queue in broker.queues else []
    found = (each for each in broker.router.bindings() if each.exchange == exchange)
    return [(each.queue, each.binding_key) for each in found]


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


def _allowed(session: Any, name: str) -> None:
    connection = session.connection
    node = ExchangeNode(name)
    check(connection.access, connection.login, Permission.CREATE, node, name)


def _missing(name: str) -> RemoteCommandError:
    return not_found(f"there is no exchange {shown(name)}")


def _nameless() -> RemoteCommandError:
    return RemoteCommandError(ExecutionErrorCode.INVALID_ARGUMENT, "an exchange needs a name")
