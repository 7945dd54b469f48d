"""The orders that an administrator can give a broker: queues, messages, branches, the log.

Whoever gives them may do everything: the owner of the root may, and other users were asked for
their rights before. What changes something is written down.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from broker_shim.broker.orders.bulk_turns import BulkTurns
from broker_shim.broker.virtual_host import Broker
from broker_shim.errors import InvalidRequest, StoreError
from sparkstore.control.audit import Audit, AuditEvent, audit_branch, audit_order
from sparkstore.core.state_machine.call_values import RecordStep
from sparkstore.core.xids import xid_of
from sparkstore.operations.administration import Order
from sparkstore.operations.branch_orders import BranchAct, BranchOrder
from sparkstore.operations.bulk import Answer, MessageDraft, Request
from sparkstore.operations.placement import PlacementRequest


class Asker(NamedTuple):
    """The client that gave an order. On the loop's thread only.

    Attributes:
        name: Its process or address, for the audit log.
        user: The user who logged in to ask; None: the process itself asks.
        show: Takes how far the order is.
        answer: Takes what came of it, or the error instead; once.
        is_there: False once it went away.
    """

    name: str
    user: str | None
    show: Callable[[Answer], None]
    answer: Callable[[Any], None]
    is_there: Callable[[], bool]


BrokerCall = Callable[[Broker, Asker], None]
"""Has a broker carry an order out; on the loop's thread."""


class BrokerOrders:
    """Makes the calls that carry orders out. On any thread; the calls are for the loop's."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit

    def order(self, order: Order) -> BrokerCall:
        """Carry out an order about queues, exchanges, bindings or policies; it answers a dict."""

        def give(broker: Broker, asker: Asker) -> None:
            def done(error: StoreError | None, answer: dict[str, Any]) -> None:
                audit_order(self._audit, asker.name, order, answer, error, asker.user)
                asker.answer(error or answer)

            broker.administration.order(order, done)

        return give

    def branch(self, order: BranchOrder) -> BrokerCall:
        """Decide a branch in doubt, or forget that this was done; it answers a dict."""

        def give(broker: Broker, asker: Asker) -> None:
            def done(error: StoreError | None) -> None:
                audit_branch(self._audit, asker.name, order, error)
                asker.answer(error or order.answer())

            def took(steps: Sequence[RecordStep]) -> None:
                for step in steps:
                    broker.observer.took(step.run)

            if order.act is BranchAct.FORGET:
                broker.calls.forget_branch(xid_of(order.xid), done)
            else:
                commits = order.act is BranchAct.COMMIT
                broker.calls.decide_branch(xid_of(order.xid), order.by, took, done, commits=commits)

        return give

    def place(self, request: PlacementRequest) -> BrokerCall:
        """Carry out changes of place; it answers an `Answer`, as all that follow but `flush`."""
        queue = next((place.source or place.target for place in request.placements), None)

        def give(broker: Broker, asker: Asker) -> None:
            done = self._audited(
                asker,
                act="resubmit" if request.undoes is None else "undo",
                queue=queue,
                operation=request.operation,
                undoes=request.undoes,
                messages=len(request.placements),
            )
            broker.placements.run(request, done)

        return give

    def flush(self) -> BrokerCall:
        """Put all that was done before into the tables; it answers None."""
        return lambda broker, asker: broker.calls.flush(asker.answer)

    def purge(self, queue: str, operation: str | None) -> BrokerCall:
        """Take what nobody holds off a queue, in steps; ends with an asker that is gone."""

        def give(broker: Broker, asker: Asker) -> None:
            done = self._audited(asker, act="purge-queue", queue=queue, operation=operation)
            broker.administration.purge(queue, _shower(asker), done, operation=operation)

        return give

    def put(self, queue: str, messages: Sequence[MessageDraft]) -> BrokerCall:
        """Put new messages on a queue, all or none."""

        def give(broker: Broker, asker: Asker) -> None:
            limit = broker.settings.max_message_bytes
            if any(len(message.body) > limit for message in messages):
                asker.answer(InvalidRequest(f"a message is longer than {limit} bytes"))
                return
            done = self._audited(asker, act="put", queue=queue, messages=len(messages))
            broker.bulk.put(queue, messages, done)

        return give

    def bulk(self, request: Request, message_ids: Sequence[int] | None) -> BrokerCall:
        """Do something with messages of a queue, in steps; ends with an asker that is gone.

        Args:
            request: What is done, and with which queue.
            message_ids: The messages, none of them twice; None: all that nobody holds.
        """
        act, queue, _ids, to, operation = request

        def give(broker: Broker, asker: Asker) -> None:
            count = None if message_ids is None else len(message_ids)
            more = {"to": to, "operation": operation, "messages": count}
            done = self._audited(asker, act=act, queue=queue, **more)
            BulkTurns(broker, broker.bulk, request, _shower(asker), done).start(message_ids)

        return give

    def _audited(
        self, asker: Asker, **details: object
    ) -> Callable[[StoreError | None, Answer], None]:
        """Wrap the answer to a client, so that an order is written down with what came of it.

        What was done before it was refused, or its client went away, is done all the same.
        """

        def answer(error: StoreError | None, answer: Answer) -> None:
            self._audit(
                AuditEvent.ADMINISTRATION,
                peer=asker.name,
                user=asker.user,
                error=error,
                done=answer.done,
                **details,
            )
            asker.answer(error or answer)

        return answer


def _shower(asker: Asker) -> Callable[[Answer], bool]:
    """Make what shows a client how far its order is; False: it has gone away."""

    def show(so_far: Answer) -> bool:
        if sum(so_far):
            asker.show(so_far)
        return asker.is_there()

    return show
