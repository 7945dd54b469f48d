"""A client's orders about queues and exchanges; those that destroy are written down."""

from __future__ import annotations

from typing import Any

from broker_shim.errors import StoreError
from sparkstore.control.audit import AuditEvent, audit_order
from sparkstore.operations.administration import AdminAction, Order
from sparkstore.operations.bulk import Answer

_DESTROYING = frozenset(
    {AdminAction.DELETE_QUEUE, AdminAction.DELETE_EXCHANGE, AdminAction.REMOVE_BINDING}
)


def carry_out(session: Any, order: Order, command_id: int) -> None:
    """Have the broker do what a command orders; that is complete when it is durable.

    The audit log says who had what destroyed, and what was refused, as of an administrator. What is
    made is not written down: clients make queues with every connection.
    """
    finished, connection = session.done(command_id), session.connection

    def done(error: StoreError | None, told: dict[str, Any]) -> None:
        if order.act in _DESTROYING:
            audit, peer = connection.access.guard.audit, str(connection.access.remote)
            audit_order(audit, peer, order, told, error, connection.login.principal.name)
        finished(error)

    user = connection.login.principal.name
    session.broker.administration.order(order, done, user=user)


def purge(session: Any, queue: str, command_id: int) -> None:
    """Have what waits on a queue taken off it, and written down."""
    finished, connection = session.done(command_id), session.connection

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
        finished(error)

    session.broker.administration.purge(queue, lambda _answer: True, purged)
