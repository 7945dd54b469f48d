"""message.transfer of a client: where it goes, and when it is complete."""

from __future__ import annotations

from typing import Any

from broker_shim.amqp_0_10.commands import MessageReject, MessageTransfer
from broker_shim.amqp_0_10.definitions import (
    ExecutionErrorCode,
    MessageAcceptMode,
    MessageRejectCode,
)
from broker_shim.broker.address import ExchangeNode, Node, described
from broker_shim.broker.settings import DurableMessages
from broker_shim.errors import StoreError
from broker_shim.framing.assembly import Assembly
from broker_shim.framing.errors import RemoteCommandError
from broker_shim.framing.segments import HeaderSegment
from broker_shim.listener_0_10.authorization import check
from broker_shim.listener_0_10.messages import read_header
from broker_shim.listener_0_10.refusals import not_found
from broker_shim.security.rules.permissions import Permission
from sparkstore.core.queue_names import shown


def publish(session: Any, assembly: Assembly) -> None:
    """Put a message on the queues that it is routed to; complete when the store has it.

    Raises:
        RemoteCommandError: It goes nowhere, or may not.
    """
    transfer, command_id = assembly.method, assembly.command_id
    assert isinstance(transfer, MessageTransfer)
    assert command_id is not None
    broker, connection = session.broker, session.connection
    header = assembly.header or HeaderSegment.of()
    body = b"" if assembly.body is None else assembly.body.payload
    exchange = transfer.destination or ""
    routing_key = header.delivery.routing_key or ""
    node = _node(broker, exchange, routing_key)
    check(connection.access, connection.login, Permission.WRITE, node, exchange or routing_key)
    stored = read_header(header, exchange, len(body))
    if stored.durable and broker.settings.durable_messages is DurableMessages.REJECTED:
        text = "durable messages are not kept here: send them non-persistent"
        raise RemoteCommandError(ExecutionErrorCode.PRECONDITION_FAILED, text)
    queues = broker.queues_for(node, stored)
    if not queues:
        _unroutable(
            session, transfer, command_id, node, is_dropped=header.delivery.discard_unroutable
        )
        return
    waiting = len(body) + stored.header_bytes
    connection.waiting_bytes += waiting

    def done(error: StoreError | None) -> None:
        connection.waiting_bytes -= waiting
        finished(error)

    finished = session.done(command_id)
    if session.transaction is None:
        broker.publish(stored, body, queues, done)
    else:
        session.transaction.publish(stored, body, queues)
        done(None)


def _node(broker: Any, exchange: str, routing_key: str) -> Node:
    if not exchange:
        node: Node = broker.destinations.node_of(routing_key)
        return node
    if exchange not in broker.router:
        text = f"there is no exchange {shown(exchange)}"
        raise not_found(text)
    return ExchangeNode(exchange, routing_key)


def _unroutable(
    session: Any, transfer: MessageTransfer, command_id: int, node: Node, *, is_dropped: bool
) -> None:
    """No queue gets it: dropped if its sender said so, else it is told."""
    session.broker.metrics.unroutable += 1
    if is_dropped:
        session.complete(command_id)
    elif transfer.accept_mode == MessageAcceptMode.EXPLICIT:
        ranges = ((command_id, command_id),)
        text = described(node).encode()[:255].decode(errors="ignore")
        session.command(MessageReject(ranges, MessageRejectCode.UNROUTABLE, text))
        session.complete(command_id)
    else:
        raise not_found(f"no queue for this message: {described(node)}")
