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
from broker_shim.broker.wiring.address import ExchangeNode, Node, QueueNode
from broker_shim.broker.wiring.routing import DEFAULT_EXCHANGES
from broker_shim.durability import TerminusDurability
from broker_shim.framing.errors import RemoteCommandError
from broker_shim.listener_0_10.refusals import not_allowed, not_found, not_implemented
from broker_shim.listener_0_10.sessions.authorization import (
    check,
    check_owner,
    check_something,
    existing,
    may,
)
from broker_shim.listener_0_10.sessions.session import Amqp010Session
from broker_shim.listener_0_10.wiring.order_commands import carry_out, check_order
from broker_shim.listener_0_10.wiring.queue_commands import (
    destroyed,
    plain_arguments,
)
from broker_shim.security.rules.rights import Act
from broker_shim.sockets.authorization import may_do_something
from broker_shim.sockets.client_orders import canonical_or_empty
from broker_shim.store.interface import ExchangeBindingKey
from sparkstore.core.queue_names import shown
from sparkstore.core.wiring_arguments import (
    ALTERNATE_EXCHANGE,
    AUTO_DELETE,
    EXCHANGE_TYPES,
    HEADERS,
    alternate_of,
)
from sparkstore.operations.administration import AdminAction, Order

_SELECTOR = "x-filter-jms-selector"


def declare(session: Amqp010Session, command: ExchangeDeclare, command_id: int) -> None:
    """Have an exchange of this type: the one that is there, or a new one."""
    name, router = command.exchange, session.broker.router
    if not name:
        raise _nameless()
    type_of_existing = router.type_of(name)
    if type_of_existing is not None or command.passive:
        _check_known(session, name)
    if type_of_existing is not None:
        _check_there(command, type_of_existing, router.alternate_of(name))
        session.complete(command_id)
        return
    if command.passive:
        raise _missing(name)
    arguments: dict[str, Any] = {}
    if command.alternate_exchange:  # what this one routes nowhere goes there
        arguments[ALTERNATE_EXCHANGE] = command.alternate_exchange
    if command.auto_delete:
        arguments[AUTO_DELETE] = True
    kept = TerminusDurability.UNSETTLED_STATE if command.durable else TerminusDurability.NONE
    order = Order(
        AdminAction.CREATE_EXCHANGE,
        exchange=name,
        type=command.type,
        arguments=arguments,
        durability=int(kept),
    )
    check_order(session, order)
    _check_new(session, command)
    carry_out(session, order, command_id)


def _check_known(session: Amqp010Session, name: str, *others: Node) -> None:
    """Check that a client may know of an exchange; the broker's own all may know."""
    if name not in DEFAULT_EXCHANGES:
        check_something(session, name, ExchangeNode(name), *others)


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


def _check_new(session: Amqp010Session, command: ExchangeDeclare) -> None:
    if command.exchange.startswith("amq."):
        text = f"{shown(command.exchange)}: names with amq. are the broker's"
        raise not_allowed(text)
    if command.type not in EXCHANGE_TYPES:
        text = f"exchange type {shown(command.type)} is not one of {', '.join(EXCHANGE_TYPES)}"
        raise not_found(text)
    if command.alternate_exchange and command.alternate_exchange not in session.broker.router:
        raise _missing(command.alternate_exchange)


def delete(session: Amqp010Session, command: ExchangeDelete, command_id: int) -> None:
    """Destroy an exchange with its bindings, unless it is the alternate of something."""
    name = command.exchange
    _check(session, Act.DELETE_EXCHANGE, name)
    if name in DEFAULT_EXCHANGES:
        text = f"exchange {shown(name)} is the broker's"
        raise not_allowed(text)
    users = session.broker.administration.facts.users_of_alternate(name)
    if users:
        is_told = may(session, Act.USE_ANOTHERS, ExchangeNode(name))  # else it is not its affair
        whose = ", ".join(users[:5]) if is_told else f"{len(users)} others"
        raise not_allowed(f"exchange {shown(name)} is the alternate of {whose}: delete that first")
    order = Order(
        AdminAction.DELETE_EXCHANGE, exchange=name, force=True, if_unused=command.if_unused
    )
    carry_out(session, order, command_id)


def query(session: Amqp010Session, command: ExchangeQuery, command_id: int) -> None:
    """Answer an exchange.query; the exchange without a name is direct, to queues by name."""
    name = command.name or ""
    if name:  # clients ask by one name for an exchange and for a queue, to learn which it is
        _check_known(session, name, QueueNode(canonical_or_empty(name)))
    exchange = session.broker.router.definitions.get(name)
    if name and exchange is None:
        session.result(command_id, ExchangeQueryResult(not_found=True))
        return
    answer = ExchangeQueryResult("direct" if exchange is None else exchange.type, durable=True)
    if exchange is not None:
        answer.durable = exchange.durability is TerminusDurability.UNSETTLED_STATE
        alternate = alternate_of(exchange.arguments)
        answer.arguments = {ALTERNATE_EXCHANGE: alternate} if alternate else None
    session.result(command_id, answer)


def bind(session: Amqp010Session, command: ExchangeBind, command_id: int) -> None:
    """Bind a queue to an exchange; only bindings to headers exchanges have arguments.

    Others are refused: a client that binds by a selector would get what it does not select.
    """
    queue = existing(session, command.queue, Act.BIND_QUEUE)
    check_owner(session, queue)
    _check(session, Act.BIND_TO_EXCHANGE, command.exchange)
    key = ExchangeBindingKey(command.exchange, queue, command.binding_key)
    arguments = _asked(command.arguments)
    kind = session.broker.router.type_of(key.exchange)
    if arguments and kind != HEADERS:
        text = f"a binding to an exchange of type {kind} has no argument {min(arguments)!r:.60}"
        raise not_implemented(f"{text}: leave it out, or bind to one of type {HEADERS}")
    act = AdminAction.ADD_BINDING
    order = Order(act, key.queue, key.exchange, key.binding_key, arguments=arguments)
    carry_out(session, order, command_id)


def unbind(session: Amqp010Session, command: ExchangeUnbind, command_id: int) -> None:
    """Take a binding away."""
    queue = destroyed(session, command.queue, Act.UNBIND)
    _check(session, Act.BIND_TO_EXCHANGE, command.exchange)
    key = ExchangeBindingKey(command.exchange, queue, command.binding_key)
    if key not in session.broker.router.bindings():
        text = f"queue {shown(key.queue)} is not bound to {shown(key.exchange)} by that key"
        raise not_found(text)
    act = AdminAction.REMOVE_BINDING
    carry_out(session, Order(act, key.queue, key.exchange, key.binding_key), command_id)


def _asked(arguments: Mapping[str, Any] | None) -> dict[str, Any]:
    """Read the arguments of a binding; Qpid's older JMS client says an empty selector for none."""
    plain = plain_arguments(arguments)
    return {name: value for name, value in plain.items() if (name, value) != (_SELECTOR, "")}


def bound(session: Amqp010Session, command: ExchangeBound, command_id: int) -> None:
    """Answer an exchange.bound, as far as the client may know."""
    broker, exchange = session.broker, command.exchange or ""
    queue = None if not command.queue else canonical_or_empty(command.queue)
    _check_asked(session, command, queue)
    if exchange:
        arguments = _asked(command.arguments) or None
        answer = broker.queries.bound(exchange, queue, command.binding_key, arguments)
        is_of_others = answer.queue_not_matched or answer.queue_not_found
        if is_of_others and not may_do_something(session.connection, ExchangeNode(exchange)):
            answer = answer._replace(  # of what is bound for others nothing is told
                key_not_matched=command.binding_key is not None,
                arguments_not_matched=arguments is not None,
            )
        session.result(command_id, ExchangeBoundResult(*answer))
    else:
        session.result(command_id, _bound_by_name(broker, queue, command.binding_key))


def _bound_by_name(broker: Any, queue: str | None, key: str | None) -> ExchangeBoundResult:
    """To the exchange without a name each queue is bound by its own."""
    answer = ExchangeBoundResult(queue_not_found=queue is not None and queue not in broker.queues)
    bound = broker.queues if queue not in broker.queues else {queue}
    answer.key_not_matched = key is not None and key not in bound
    return answer


def _check_asked(session: Amqp010Session, command: ExchangeBound, queue: str | None) -> None:
    """Check that a client may know of the exchange and the queue that it asks about.

    Of the broker's own exchanges everybody knows, but not what others bound to them.
    """
    exchange = command.exchange or ""
    if queue is not None:
        check_something(session, command.queue or "", QueueNode(queue))
    if exchange and (queue is None or exchange not in DEFAULT_EXCHANGES):
        check_something(session, exchange, ExchangeNode(exchange))
    if not exchange and command.binding_key:  # which is a queue's name
        node = QueueNode(canonical_or_empty(command.binding_key))
        check_something(session, command.binding_key, node)


def _check(session: Amqp010Session, act: Act, name: str) -> None:
    """Check that a client may do this at an exchange, and that it is there."""
    if not name:
        raise _nameless()
    check(session, act, ExchangeNode(name), name)
    if name not in session.broker.router:
        raise _missing(name)


def _missing(name: str) -> RemoteCommandError:
    return not_found(f"there is no exchange {shown(name)}")


def _nameless() -> RemoteCommandError:
    return RemoteCommandError(ExecutionErrorCode.INVALID_ARGUMENT, "an exchange needs a name")
