"""`AdminClient` over a root that nobody serves: the pure steps, written by the log under its lock.

Why nothing is lost: the records of a request are one `append`, so one group of the write-ahead log
and one Delta commit. The answer is given when the log says that they are durable. The state here
is that of the state machine, the fold of what was written, as a broker's is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from sparkstore.bucket.epochs import check_nobody_serves
from sparkstore.config import StoreConfig
from sparkstore.control.audit import (
    AUDIT_FILE,
    AuditEvent,
    add_audit_file,
    audit_branch,
    audit_order,
    remove_audit_file,
    this_process,
    write_audit,
)
from sparkstore.core.durability import TerminusDurability
from sparkstore.core.fold import State
from sparkstore.core.state_machine import branches
from sparkstore.core.state_machine.call_values import Queue, RecordStep
from sparkstore.core.state_machine.sole_host import changed_by_others, why_unchangeable
from sparkstore.core.state_machine.state_machine import StoreStateMachine
from sparkstore.core.xids import xid_of
from sparkstore.errors import InvalidRequest, StoreError
from sparkstore.log.start import open_log
from sparkstore.operations.administration import Order, decide, existing
from sparkstore.operations.branch_orders import BranchAct, BranchOrder
from sparkstore.operations.bulk import RUN_IDS, Action, Answer, MessageDraft, Request
from sparkstore.operations.placement import PlacementRequest
from sparkstore.operations.root_at_rest import (
    StateFacts,
    bulk_steps,
    order_steps,
    placement_steps,
    plan,
    put_steps,
)
from sparkstore.storage.objects import ObjectStorage, is_object_uri
from sparkstore.tables.fencing import identity_at
from sparkstore.tables.root import Root


class OfflineControl:
    """An `AdminClient` that changes the root itself; it holds the writer's lock until `close`."""

    def __init__(
        self,
        where: Root | str | Path,
        config: StoreConfig,
        audit_file: Path | None = None,
    ) -> None:
        """Open the root as a store does: heal it, replay its write-ahead log, begin an epoch.

        Args:
            where: What to change: a root, its folder, or the URI of one in a bucket.
            config: Settings of its store.
            audit_file: Gets a line for what is asked and what it came to, as a running broker
                writes it; None: `AUDIT_FILE` in the root, of a bucket in its working copy.

        Raises:
            InvalidRequest: There is no root; the audit file cannot be written, or is open to
                others.
            Locked: A broker has it; of a bucket: it may be served elsewhere.
            StoreError: The root cannot be opened, for the reasons of `open_log`.
        """
        place = where.path if isinstance(where, Root) else where
        if is_object_uri(place):
            _check_at_rest(str(place))
        opened = open_log(place, config)
        try:
            self._audit_lines = add_audit_file(audit_file or opened.log.root.path / AUDIT_FILE)
        except StoreError:
            opened.log.close()
            raise
        self._log = opened.log
        self._machine = StoreStateMachine(
            opened.state, TerminusDurability.UNSETTLED_STATE, lambda: time.time_ns() // 1000
        )
        branches.restore(self._machine)
        self._transaction = 0

    def run(self, request: Request) -> Answer:
        """Carry out a request and write its audit line (`AdminClient.run`)."""
        action, queue, message_ids, to, operation = request
        with self._audited(action, queue, len(message_ids), to, operation) as answers:
            answers.append(answer := self._run(request))
        return answer

    def put(self, queue: str, messages: Sequence[MessageDraft]) -> Answer:
        """Put new messages on a queue (`AdminClient.put`)."""
        with self._audited("put", queue, len(messages)) as answers:
            self._transaction += 1
            for group in put_steps(self._machine, queue, messages, self._transaction):
                self._append(group)
            answers.append(answer := Answer(done=len(messages)))
        return answer

    def place(self, request: PlacementRequest) -> Answer:
        """Carry out changes of place (`AdminClient.place`)."""
        act = "resubmit" if request.undoes is None else "undo"
        name = next((place.source or place.target for place in request.placements), None)
        count = len(request.placements)
        with self._audited(act, name or "", count, None, request.operation) as answers:
            self._transaction += 1
            groups, answer = placement_steps(self._machine, request, self._transaction)
            for group in groups:
                self._append(group)
            answers.append(answer)
        return answer

    def order(self, order: Order) -> dict[str, Any]:
        """Decide and apply an administrator's order (`AdminClient.order`)."""
        try:
            decided = decide(order, StateFacts(self._machine.state))
            self._append(order_steps(decided, self._machine))
        except StoreError as reason:
            audit_order(write_audit, this_process(), order, {}, reason)
            raise
        audit_order(write_audit, this_process(), order, decided.answer, None)
        return decided.answer

    def branch(self, order: BranchOrder) -> dict[str, Any]:
        """Decide a branch in doubt (`AdminClient.branch`)."""
        try:
            self._branch(order)
        except StoreError as reason:
            audit_branch(write_audit, this_process(), order, reason)
            raise
        audit_branch(write_audit, this_process(), order, None)
        return order.answer()

    def _branch(self, order: BranchOrder) -> None:
        machine, xid = self._machine, xid_of(order.xid)
        if order.act is BranchAct.FORGET:
            self._append(branches.forget_heuristic(machine, xid))
            return
        self._transaction += 1
        commits = order.act is BranchAct.COMMIT
        self._append(
            branches.decide_heuristically(
                machine, xid, self._transaction, order.by, commits=commits
            )
        )
        branches.forget(machine, xid)

    def flush(self) -> None:
        """Put all that was done into the tables (`AdminClient.flush`)."""
        done: SimpleQueue[StoreError | None] = SimpleQueue()
        self._log.flush(done.put)
        error = done.get()
        if error is not None:
            raise error

    def purge(
        self, queue: str, show: Callable[[Answer], None], operation: str | None = None
    ) -> Answer:
        """Purge a queue in parts of `RUN_IDS`, showing each answer (`AdminClient.purge`)."""
        total = Answer()
        with self._audited("purge-queue", queue, operation=operation) as answers:
            name = existing(queue, StateFacts(self._machine.state))
            message_ids = [*self._machine.state.queues[name].entries]
            for first in range(0, len(message_ids), RUN_IDS):
                part = tuple(message_ids[first : first + RUN_IDS])
                request = Request(Action.PURGE, name, part, operation=operation)
                total = total.plus(self._run(request))
                answers.append(total)
                show(total)
        return total

    def close(self) -> None:
        """Make everything visible in Delta, and let go of the root."""
        self._log.close()
        remove_audit_file(self._audit_lines)

    def _run(self, request: Request) -> Answer:
        machine = self._machine
        planned, missing = plan(machine.state, request, now_us=machine.now_us())
        if missing is not None:
            self._append(machine.create(Queue(missing)))
        self._transaction += 1
        self._append(bulk_steps(machine, planned.steps, self._transaction))
        return planned.answer

    @contextmanager
    def _audited(
        self,
        act: str,
        queue: str,
        count: int | None = None,
        to: str | None = None,
        operation: str | None = None,
    ) -> Iterator[list[Answer]]:
        """Write down what was asked and, if the block ends, the last answer that it tells."""
        answers = [Answer()]
        error: StoreError | None = None
        try:
            yield answers
        except StoreError as reason:
            error = reason
            raise
        finally:
            write_audit(
                AuditEvent.ADMINISTRATION,
                peer=this_process(),
                act=act,
                queue=queue,
                to=to,
                operation=operation,
                messages=count,
                done=answers[-1].done if error is None or len(answers) > 1 else None,
                error=error,
            )

    def _append(self, steps: Sequence[RecordStep]) -> None:
        """Write steps and make them true; whatever a queue asks for, all that is here is kept.

        Raises:
            InvalidRequest: A Broker-J host may live that would not see it.
        """
        if not steps:
            return
        _check_host_left(self._machine.state)
        steps = [*changed_by_others(self._machine.state, self._machine.now_us()), *steps]
        done: SimpleQueue[StoreError | None] = SimpleQueue()
        position = self._log.append([step.run for step in steps], done.put)
        self._machine.apply([step._replace(is_kept=True) for step in steps], position)
        error = done.get()
        if error is not None:
            raise error


def _check_at_rest(uri: str) -> None:
    bucket = ObjectStorage(uri)
    if identity_at(bucket) is None:
        message = f"{uri} is not a sparkstore root: sparkstore serve makes one"
        raise InvalidRequest(message)
    check_nobody_serves(bucket)


def _check_host_left(state: State) -> None:
    reason = why_unchangeable(state)
    if reason is not None:
        message = (
            f"{reason}, then start the service: it takes orders when the grace of members that are"
            " gone (member_grace_s) is over"
        )
        raise InvalidRequest(message)
