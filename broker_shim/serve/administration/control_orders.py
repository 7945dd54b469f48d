"""An administrator's orders: queues, purges, branches.

Whoever gives them may do everything: the control socket is for the owner of the root, and users of
the HTTP port were asked for their rights before. What changes something is written down.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from broker_shim.broker.virtual_host import Broker
from broker_shim.errors import StoreError
from broker_shim.service.socket import process_of
from sparkstore.control.audit import Audit, AuditEvent, audit_branch, audit_order
from sparkstore.core.state_machine.call_values import RecordStep
from sparkstore.core.xids import xid_of
from sparkstore.operations import wire
from sparkstore.operations.administration import Order
from sparkstore.operations.branch_orders import BranchAct, BranchOrder, branch_order_of
from sparkstore.operations.bulk import Answer
from sparkstore.operations.placement import PlacementRequest
from sparkstore.operations.placement_wire import placements_of
from sparkstore.operations.wire import answer_line, error_line


class Asker(NamedTuple):
    """The client that asked, over the control socket or the HTTP port.

    Attributes:
        name: Its process and user.
        say: Send it a line; more follow.
        answer: Send it the last line.
        is_there: False once it went away.
        user: The user who logged in to ask; None: the process itself asks.
    """

    name: str
    say: Callable[[bytes], None]
    answer: Callable[[bytes], None]
    is_there: Callable[[], bool]
    user: str | None = None


Call = Callable[[Asker], None]


class ControlOrders:
    """Carries out what an administrator asks by the control socket. On the loop's thread only."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit

    def call(self, content: dict[str, Any], broker: Broker) -> Call | None:
        """Choose the call that a line about a broker's queues asks for; None if it is about others.

        Raises:
            InvalidRequest: It is not well formed.
        """
        if "order" in content:
            return partial(self._order, wire.order_of(content), broker)
        if "purge" in content:
            named = wire.text_of(content, "purge"), wire.operation_of(content)
            return partial(self._purge, *named, broker)
        if "flush" in content:
            return partial(self._flush, broker)
        if "placements" in content:
            return partial(self._place, placements_of(content), broker)
        if "branch" in content:
            return partial(self._branch, branch_order_of(content), broker)
        return None

    def _order(self, order: Order, broker: Broker, asker: Asker) -> None:
        def told(error: StoreError | None, told: dict[str, Any]) -> None:
            audit_order(self._audit, asker.name, order, told, error, asker.user)
            asker.answer(wire.told_line(told) if error is None else error_line(error))

        broker.administration.order(order, told)

    def _branch(self, order: BranchOrder, broker: Broker, asker: Asker) -> None:
        def done(error: StoreError | None) -> None:
            audit_branch(self._audit, asker.name, order, error)
            asker.answer(wire.told_line(order.answer()) if error is None else error_line(error))

        def took(steps: Sequence[RecordStep]) -> None:
            for step in steps:
                broker.observer.took(step.record)

        if order.act is BranchAct.FORGET:
            broker.calls.forget_branch(xid_of(order.xid), done)
        else:
            commits = order.act is BranchAct.COMMIT
            broker.calls.decide_branch(xid_of(order.xid), order.by, took, done, commits=commits)

    def _place(self, request: PlacementRequest, broker: Broker, asker: Asker) -> None:
        def placed(error: StoreError | None, answer: Answer) -> None:
            queue = next((each.source or each.target for each in request.placements), None)
            self._audit(
                AuditEvent.ADMINISTRATION,
                peer=asker.name,
                act="resubmit" if request.undoes is None else "undo",
                queue=queue,
                operation=request.operation,
                undoes=request.undoes,
                messages=len(request.placements),
                done=None if error else answer.done,
                error=error,
                user=asker.user,
            )
            asker.answer(answer_line(answer) if error is None else error_line(error))

        broker.placements.run(request, placed)

    def _flush(self, broker: Broker, asker: Asker) -> None:
        def flushed(error: StoreError | None) -> None:
            line = wire.line({"flushed": True}) if error is None else error_line(error)
            asker.answer(line)

        broker.calls.flush(flushed)

    def _purge(self, queue: str, operation: str | None, broker: Broker, asker: Asker) -> None:
        def show(so_far: Answer) -> bool:
            if sum(so_far):
                asker.say(wire.so_far_line(so_far))
            return asker.is_there()

        def purged(error: StoreError | None, total: Answer) -> None:
            self._audit(
                AuditEvent.ADMINISTRATION,
                peer=asker.name,
                act="purge-queue",
                queue=queue,
                operation=operation,
                done=total.done,
                error=error,
                user=asker.user,
            )
            asker.answer(answer_line(total) if error is None else error_line(error))

        broker.administration.purge(queue, show, purged, operation=operation)


class ControlClient:
    """A connection: what came of its next line, what is to be written; `waiting`: its orders."""

    user = None

    def __init__(self, peer: socket.socket, send: Callable[[ControlClient, bytes], None]) -> None:
        self.peer, self._send = peer, send
        self.is_there = True
        self.name = process_of(peer)
        self.received = bytearray()
        self.to_send = bytearray()
        self.is_watched = False
        self.has_greeted = False
        self.waiting = 0
        self._searched_bytes = 0

    def say(self, line: bytes) -> None:
        """Send it a line, as `order_turns.OrderClient` says."""
        self._send(self, line)

    def lines(self) -> list[bytes]:
        """The lines that have come whole, once."""
        if self.received.find(b"\n", self._searched_bytes) < 0:
            self._searched_bytes = len(self.received)
            return []
        *lines, rest = bytes(self.received).split(b"\n")
        self.received = bytearray(rest)
        self._searched_bytes = len(rest)
        return lines
