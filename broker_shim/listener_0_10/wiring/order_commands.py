"""A client's orders about queues and exchanges, as commands that complete when they are durable."""

from __future__ import annotations

from typing import Any

from broker_shim.errors import StoreError
from broker_shim.listener_0_10.sessions.authorization import check
from broker_shim.listener_0_10.sessions.session import Amqp010Session
from broker_shim.sockets import client_orders
from sparkstore.operations.administration import Order


def check_order(session: Amqp010Session, order: Order) -> None:
    """Check that a session's peer may give an order that makes something.

    Raises:
        RemoteCommandError: It may not; the audit log was told.
    """
    for needed in client_orders.needed_acts(order, session.broker.policies):
        check(session, *needed)


def carry_out(session: Amqp010Session, order: Order, command_id: int) -> None:
    """Have the broker do what a command orders; it is complete when that is durable."""
    finished = session.done(command_id)

    def done(error: StoreError | None, _told: Any) -> None:
        finished(error)

    client_orders.carry_out(session.connection, order, done)


def purge(session: Amqp010Session, queue: str, command_id: int) -> None:
    """Have what waits on a queue taken off it."""
    finished = session.done(command_id)
    client_orders.purge(session.connection, queue, lambda error, _total: finished(error))
