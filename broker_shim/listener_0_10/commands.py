"""Each command of AMQP 0-10 → what does it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from broker_shim.amqp_0_10 import commands as c
from broker_shim.amqp_0_10.definitions import ExecutionErrorCode
from broker_shim.framing.assembly import Assembly
from broker_shim.framing.errors import RemoteCommandError
from broker_shim.listener_0_10.dtx import dtx_commands
from broker_shim.listener_0_10.refusals import illegal_state, not_implemented
from broker_shim.listener_0_10.sessions.session import Amqp010Session
from broker_shim.listener_0_10.transaction import SessionTransaction
from broker_shim.listener_0_10.wiring import exchange_commands, queue_commands

Step = Callable[[Amqp010Session, Any, int], None]
"""step(session, command, its number)"""


def invoke(session: Amqp010Session, assembly: Assembly) -> None:
    """Do a command whose header and body are attached.

    Raises:
        RemoteCommandError: It cannot be done.
    """
    method, command_id = assembly.method, assembly.command_id
    assert command_id is not None
    if isinstance(method, c.MessageTransfer):
        session.publisher.add(assembly)
        return
    session.publisher.hand_over()  # what came before goes before
    step = _STEPS.get(type(method))
    if step is None:
        error = not_implemented(f"{method.NAME} is not served here")
        error.method_code = type(method).CODE
        raise error
    try:
        step(session, method, command_id)
    except RemoteCommandError as error:
        error.method_code = error.method_code or type(method).CODE
        raise


def _sync(session: Amqp010Session, _command: c.ExecutionSync, command_id: int) -> None:
    session.incoming.complete_in_turn(command_id)


def _heard(session: Amqp010Session, _command: Any, command_id: int) -> None:
    """A result or an exception of the client's: nothing of ours waits for one."""
    session.complete(command_id)


def _select(session: Amqp010Session, _command: c.TxSelect, command_id: int) -> None:
    """A transaction that is open for too long ends with its session, and is rolled back by that."""

    def late() -> None:
        text = f"a transaction was open for {opened.most_s:.0f} s: it is rolled back"
        session.fail(RemoteCommandError(ExecutionErrorCode.RESOURCE_LIMIT_EXCEEDED, text))

    if session.transaction is not None or session.is_distributed:
        raise illegal_state("tx.select: this session is transacted already")
    session.transaction = transaction = SessionTransaction(session.broker)
    opened = session.connection.host.transactions
    transaction.on_begun = lambda: opened.began(transaction, late)
    transaction.on_ended = lambda: opened.ended(transaction)
    session.complete(command_id)


def _commit(session: Amqp010Session, _command: c.TxCommit, command_id: int) -> None:
    if session.transaction is None or session.is_distributed:
        raise illegal_state("tx.commit before tx.select")
    session.transaction.commit(session.done(command_id))


def _rollback(session: Amqp010Session, _command: c.TxRollback, command_id: int) -> None:
    if session.transaction is None or session.is_distributed:
        raise illegal_state("tx.rollback before tx.select")
    session.transaction.rollback()
    session.complete(command_id)


def _of_subscriptions(name: str) -> Step:
    def step(session: Amqp010Session, command: Any, command_id: int) -> None:
        getattr(session.subscriptions, name)(command, command_id)

    return step


_STEPS: Mapping[type, Step] = {
    c.ExecutionSync: _sync,
    c.ExecutionResult: _heard,
    c.ExecutionException: _heard,
    c.MessageAccept: _of_subscriptions("accept"),
    c.MessageReject: _of_subscriptions("reject"),
    c.MessageRelease: _of_subscriptions("release"),
    c.MessageAcquire: _of_subscriptions("acquire"),
    c.MessageSubscribe: _of_subscriptions("subscribe"),
    c.MessageCancel: _of_subscriptions("cancel"),
    c.MessageSetFlowMode: _of_subscriptions("set_flow_mode"),
    c.MessageFlow: _of_subscriptions("flow"),
    c.MessageFlush: _of_subscriptions("flush"),
    c.MessageStop: _of_subscriptions("stop"),
    c.TxSelect: _select,
    c.TxCommit: _commit,
    c.TxRollback: _rollback,
    c.ExchangeDeclare: exchange_commands.declare,
    c.ExchangeDelete: exchange_commands.delete,
    c.ExchangeQuery: exchange_commands.query,
    c.ExchangeBind: exchange_commands.bind,
    c.ExchangeUnbind: exchange_commands.unbind,
    c.ExchangeBound: exchange_commands.bound,
    c.QueueDeclare: queue_commands.declare,
    c.QueueDelete: queue_commands.delete,
    c.QueuePurge: queue_commands.purge,
    c.QueueQuery: queue_commands.query,
    **dtx_commands.STEPS,
}
