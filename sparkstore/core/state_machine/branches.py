"""Two-phase commit: a transaction that was prepared, decided later, perhaps after a crash. Pure.

`prepare` makes one group of records, which is durable as a whole or not at all:

* the content of each new message of the branch, as `content` with its header: it is *staged*, so it
  is kept, compacted and replicated, and is on no queue;
* `acquired` for each entry that the branch took or acquired, held by the branch (`xids`);
* `prepared`, with all that is left to do as JSON in `detail`, neighbours that are alike as one.

A decision makes one group, too, and ends with `committed` or `rolled_back`. So a crash leaves one
of three things. Before the records of `prepare` are durable there is no branch, and its transaction
never was. Between the two groups the branch is in doubt: `restore` builds it anew from `detail`.
After the second it is gone, with its effect or without. Who does not know whether a call arrived
looks whether the branch is in doubt still.

Why a commit cannot be refused any more: nobody else gets what the branch claims, may enqueue its
new messages, put those that it moves where it will put them, end a staging, or destroy its queues;
and it is tried when it is prepared.

What the store does not keep (a transient message) the branch has while the process lives.

Decision: a branch enqueues new messages, and those of which it takes an entry: that stays where it
is until the decision, and the content with it. Any other might leave its last queue long before.
Rejected: counting a branch as a queue of the message, which all forms of the fold would have to do.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from sparkstore.core import fold, records
from sparkstore.core.annotations import annotations_of, given_back
from sparkstore.core.durability import TerminusDurability
from sparkstore.core.records import Kind, Record
from sparkstore.core.state_machine import heuristics, transactions
from sparkstore.core.state_machine.arguments import PIECE_BYTES
from sparkstore.core.state_machine.call_values import (
    EnqueueCall,
    RecordStep,
    StoredMessage,
    Transaction,
    TransactionContext,
    arrivals_in,
    joined,
    single_steps,
)
from sparkstore.core.state_machine.definitions import header_of, operation_of, planned_in
from sparkstore.core.state_machine.heuristics import (
    HeuristicDecision,
    decided_otherwise,
    forgotten,
    heuristic_of,
    remembered,
)
from sparkstore.core.state_machine.link_state_machine import DELIVERY_KINDS
from sparkstore.core.state_machine.state_machine import StoreStateMachine
from sparkstore.core.xids import Xid, branch_holder, check_xid, xid_bytes, xid_of, xid_text
from sparkstore.errors import InvalidRequest

PREPARED = "prepared"


@dataclass(frozen=True, slots=True)
class PreparedBranch:
    """A branch in doubt, or one that an operator decided and its coordinator does not know of.

    Attributes:
        xid: The name that its coordinator gave it.
        since: When it was prepared, or decided by an operator, UTC µs.
        operations: How many calls wait in it, of those that survive a restart.
        holder: The member of the store's service that prepared it, or the operator who decided it.
        state: `PREPARED`, `heuristics.COMMITTED` or `heuristics.ROLLED_BACK`.
    """

    xid: Xid
    since: int
    operations: int
    holder: str | None = None
    state: str = PREPARED


class BranchEntries(NamedTuple):
    """The entries that a branch in doubt puts on queues and takes off.

    Attributes:
        enqueued: (queue, message id, priority, durable) of what a commit puts there.
        taken: (queue, message id) of what a commit takes off, and a rollback gives back.
        state: As of `PreparedBranch`. Of one that an operator decided only the queues are known,
            with 0 as the message id.
    """

    enqueued: tuple[tuple[str, int, int, bool], ...]
    taken: tuple[tuple[str, int], ...]
    state: str = PREPARED


def prepare(
    machine: StoreStateMachine,
    context: TransactionContext,
    xid: Xid,
    member: str | None = None,
    *,
    may_be_empty: bool = False,
) -> list[RecordStep]:
    """Prepare a branch: check all of it, and record it as one that can be committed.

    A member of the store's service has its name kept. A branch of which a restart of another store
    left nothing may be empty.

    Raises:
        InvalidRequest: It is no xid, or that of a branch in doubt; the transaction is empty, could
            not be committed, or holds what a branch cannot.
    """
    transaction = transactions.own(machine, context)
    transactions.abort(machine, transaction)
    key = xid_text(check_xid(xid))
    if key in machine.branches or heuristic_of(machine.state, key) is not None:
        message = f"xid {key} is that of a prepared branch already: give another, or decide it"
        raise InvalidRequest(message)
    if not (transaction.steps or may_be_empty):
        message = f"branch {key} is empty: nothing was called in its transaction"
        raise InvalidRequest(message)
    transaction.steps = [*single_steps(transaction.steps)]
    decided = transactions.decided_steps(machine, transaction, is_tried=True)
    _check_moved(machine, transaction, decided)
    transaction.steps = [*_staged_plans(transaction, decided)]
    staged = [*_staging(machine, transaction, decided)]
    now_us, holder = machine.now_us(), branch_holder(key)
    held = [
        RecordStep(
            records.message_acquired(now_us, queue, message_id, holder, transaction.transaction),
            machine.entry(queue, message_id).position > 0,
        )
        for queue, message_id in transaction.claims
    ]
    kept = [step for step in decided if step.is_kept]
    operations = [operation_of(step.run) for step in joined(kept)]
    about = {"count": len(kept), "since_us": now_us, "member": member}
    detail = json.dumps({"operations": operations, **about})
    record = records.prepared(now_us, xid_bytes(xid), key, detail)
    return [*staged, *joined(held), RecordStep(record, _keeps(machine))]


def accept(machine: StoreStateMachine, context: TransactionContext, xid: Xid) -> None:
    """Note that the records of `prepare` were taken: its xid alone decides a branch now."""
    transaction = transactions.own(machine, context)
    _hold(machine, transaction, xid_text(xid))


def commit(machine: StoreStateMachine, xid: Xid, number: int) -> list[RecordStep]:
    """Commit a prepared branch; `number` is what its records carry as `transaction`.

    Raises:
        InvalidRequest: It is no xid, or of no branch in doubt.
    """
    if (known := _settled(machine, xid, heuristics.COMMITTED)) is not None:
        return known
    key, branch = _branch(machine, xid)
    branch.transaction = number
    with machine.own_in_doubt():
        steps = transactions.decided_steps(machine, branch, is_promised=True)
    steps = [
        step._replace(run=step.record._replace(at=machine.now_us(), transaction=number))
        for step in steps
    ]
    record = records.committed(machine.now_us(), xid_bytes(xid), key)
    return [*joined(steps), RecordStep(record, _keeps(machine))]


def roll_back(machine: StoreStateMachine, xid: Xid, number: int) -> list[RecordStep]:
    """Roll a prepared branch back: what it held is available again.

    Raises:
        InvalidRequest: It is no xid, or of no branch in doubt.
    """
    if (known := _settled(machine, xid, heuristics.ROLLED_BACK)) is not None:
        return known
    key, branch = _branch(machine, xid)
    now_us = machine.now_us()
    steps: list[RecordStep] = []
    for queue, message_id in branch.claims:
        entry = machine.entry(queue, message_id)
        detail = given_back(entry.detail, None)
        record = records.message_released(
            now_us, queue, message_id, entry.delivery_count, number, detail
        )
        steps.append(RecordStep(record, entry.position > 0))
    ended = (number for number in machine.brought_by(key) if number in machine.state.staged)
    aborted = (records.staging_aborted(now_us, number) for number in ended)
    steps += [RecordStep(record, is_kept=True) for record in aborted]
    record = records.rolled_back(now_us, xid_bytes(xid), key)
    return [*joined(steps), RecordStep(record, _keeps(machine))]


def decide_heuristically(
    machine: StoreStateMachine, xid: Xid, number: int, by: str, *, commits: bool
) -> list[RecordStep]:
    """End a branch in doubt as an operator decided, which is remembered (`heuristics`).

    Raises:
        InvalidRequest: It is no xid, of no branch in doubt, or was decided so already.
    """
    key = xid_text(check_xid(xid))
    if (known := heuristic_of(machine.state, key)) is not None:
        raise decided_otherwise(key, known)
    steps = (commit if commits else roll_back)(machine, xid, number)
    state = heuristics.COMMITTED if commits else heuristics.ROLLED_BACK
    entries = entries_of(machine, xid)
    puts, takes = ({entry[0] for entry in some} for some in entries[:2])
    decision = HeuristicDecision(state, by, machine.now_us(), sorted(puts), sorted(takes))
    return [*steps, remembered(key, decision, is_kept=_keeps(machine))]


def forget_heuristic(machine: StoreStateMachine, xid: Xid) -> list[RecordStep]:
    """Forget what an operator decided about a branch: its coordinator knows.

    Raises:
        InvalidRequest: It is no xid, in doubt still, or nothing is remembered of it.
    """
    key = xid_text(check_xid(xid))
    if key in machine.branches:
        message = f"branch {key} is in doubt still: commit it or roll it back"
        raise InvalidRequest(message)
    if heuristic_of(machine.state, key) is None:
        message = f"nothing is remembered of branch {key}: no operator decided it"
        raise InvalidRequest(message)
    return [forgotten(machine.now_us(), key, is_kept=_keeps(machine))]


def forget(machine: StoreStateMachine, xid: Xid) -> None:
    """Note that the records of a decision were taken: the branch holds nothing any more."""
    key = xid_text(xid)
    if key not in machine.branches:  # an operator had decided it
        return
    machine.decided(key)
    ended = machine.branches.pop(key)
    for entry in ended.claims:
        if machine.claims.get(entry) is ended:
            del machine.claims[entry]
    for _queue, message in arrivals_in(ended.steps):  # one that was rolled back is used up
        machine.end_fresh(message.message_id)


def prepared_in(state: fold.State) -> list[PreparedBranch]:
    """List the branches in doubt, and those that an operator decided, the oldest first."""
    branches = [
        PreparedBranch(xid_of(key), decision.since_us, 0, decision.by, decision.state)
        for key, decision in heuristics.heuristics(state).items()
    ]
    for key, detail in state.prepared.items():
        content = json.loads(detail)
        count = content.get("count", len(content["operations"]))  # an older one has singles alone
        member = content.get("member")
        branches.append(PreparedBranch(xid_of(key), content["since_us"], count, member))
    return sorted(branches, key=lambda branch: (branch.since, branch.xid))


def entries_of(machine: StoreStateMachine, xid: Xid) -> BranchEntries:
    """Read what a branch does to queues, also a branch of an earlier run.

    Raises:
        InvalidRequest: It is no xid, or of no branch in doubt.
    """
    known = heuristic_of(machine.state, xid_text(check_xid(xid)))
    if known is not None:
        puts = tuple((queue, 0, 0, False) for queue in known.puts)
        return BranchEntries(puts, tuple((queue, 0) for queue in known.takes), known.state)
    _, branch = _branch(machine, xid)
    arrivals = ((queue, new.message_id, new.header) for queue, new in arrivals_in(branch.steps))
    enqueued = ((queue, number, sent.priority, sent.durable) for queue, number, sent in arrivals)
    return BranchEntries(tuple(enqueued), tuple(branch.taken))


def restore(machine: StoreStateMachine) -> None:
    """Build the branches anew that were in doubt when the last run ended.

    An earlier release put a duplicate on its queue and took it off when the branch was prepared,
    without content. Neither is there now, so it is left out: it is dropped, whatever is decided.
    """
    for key, detail in machine.state.prepared.items():
        branch = Transaction(0, machine, is_open=False)
        planned = [*planned_in(detail)]
        dropped = {
            (operation["queue"], message_id)
            for operation, message_id, header in planned
            if header is None and message_id not in machine.state.queues[operation["queue"]].entries
        }
        for operation, message_id, header in planned:
            queue, notes = operation["queue"], operation.get("detail")
            branch.queues[queue] = machine.state.queues[queue]
            if (queue, message_id) in dropped:
                continue
            if header is not None:
                message = StoredMessage(message_id, header_of(header), b"", is_staged=True)
                added = annotations_of(notes) if notes else None
                branch.steps.append(EnqueueCall(message, queue, added))
                continue
            kind, holder = Kind[operation["kind"].upper()], operation.get("holder")
            branch.claims[queue, message_id] = holder
            if kind is Kind.DEQUEUED:
                branch.taken.add((queue, message_id))
            held = holder, operation.get("delivery_count")
            branch.steps.append(Record(kind, 0, queue, message_id, *held, detail=notes))
        _hold(machine, branch, key)


def _hold(machine: StoreStateMachine, branch: Transaction, key: str) -> None:
    machine.branches[key] = branch
    for entry in branch.claims:
        machine.claims[entry] = branch
    for queue, message in arrivals_in(branch.steps):
        message_id = message.message_id
        is_staged = message_id in machine.state.staged  # else it is transient, or is moved
        if message_id in machine.state.messages:
            machine.promised[queue, message_id] = key
        if is_staged or message_id not in machine.state.messages:
            machine.in_doubt[message_id] = key
        if is_staged:
            machine.end_fresh(message_id)


def _branch(machine: StoreStateMachine, xid: Xid) -> tuple[str, Transaction]:
    key = xid_text(check_xid(xid))
    branch = machine.branches.get(key)
    if branch is None:
        message = f"no branch {key} is prepared: it was decided, or never prepared"
        raise InvalidRequest(message)
    return key, branch


def _settled(machine: StoreStateMachine, xid: Xid, state: str) -> list[RecordStep] | None:
    """Return what is left to do for a branch that an operator decided; None if none did.

    Raises:
        InvalidRequest: It is no xid, or was decided otherwise.
    """
    key = xid_text(check_xid(xid))
    decision = heuristic_of(machine.state, key)
    if decision is None:
        return None
    if decision.state != state:
        raise decided_otherwise(key, decision)
    return [forgotten(machine.now_us(), key, is_kept=_keeps(machine))]


def _keeps(machine: StoreStateMachine) -> bool:
    return machine.durability >= TerminusDurability.UNSETTLED_STATE


def _check_moved(
    machine: StoreStateMachine, transaction: Transaction, decided: list[RecordStep]
) -> None:
    """Refuse to prepare a move of a message whose content may be gone when it is enqueued.

    It is there if the message is new, or if the branch holds an entry of it that survives as long.
    """
    stored = machine.state.messages
    held = {message_id: False for _queue, message_id in transaction.claims}
    for queue, message_id in transaction.claims:
        held[message_id] |= machine.entry(queue, message_id).position > 0
    for step in decided:
        header, message_id = step.record.message, step.record.message_id or 0
        if header is None or message_id not in stored:
            continue
        is_held_for_long, brings = held.get(message_id), header.protocol is not None
        if is_held_for_long is None or (step.is_kept and not (is_held_for_long or brings)):
            whose = f"message {message_id} is on a queue already"
            refusal = f"{whose}: a branch takes new messages, and moves what it takes"
            raise InvalidRequest(refusal)


def _staged_plans(
    transaction: Transaction, decided: list[RecordStep]
) -> Iterator[EnqueueCall | Record]:
    """Plan what waits, with the content of kept messages in the log.

    Raises:
        InvalidRequest: It is about a link's deliveries.
    """
    kept = {step.record.message_id for step in decided if step.record.message and step.is_kept}
    transient: list[EnqueueCall] = []
    for planned, step in zip(single_steps(transaction.steps), decided, strict=True):
        if isinstance(planned, Record):
            if planned.kind in DELIVERY_KINDS:
                message = "deliveries of a link cannot wait in a prepared branch: commit them"
                raise InvalidRequest(message)
            yield planned
            continue
        if planned.delivery_count:
            raise InvalidRequest("a prepared branch begins no entry with failed deliveries")
        for new in planned.message.singles():
            if step.is_kept:
                staged = StoredMessage(new.message_id, new.header, b"", is_staged=True)
                yield EnqueueCall(staged, planned.queue, planned.annotations)
            elif new.message_id in kept:
                transient.append(replace(planned, message=new._replace(body=b"")))
            else:
                yield planned
    yield from transient  # after those that bring the content of the same message


def _staging(
    machine: StoreStateMachine, transaction: Transaction, decided: list[RecordStep]
) -> Iterator[RecordStep]:
    """Stage the content of new messages in pieces; the first, or an empty last, has the header."""
    now_us, number = machine.now_us(), transaction.transaction
    for step in decided:
        message = step.message
        if message is None or not step.is_kept or step.record.message is None:
            continue
        message_id, header = message.message_id, message.header
        if step.record.message.protocol is None or message_id in machine.state.staged:
            continue
        start = header.body_bytes if message.is_staged else 0
        pieces = range(0, len(message.body) or 1, PIECE_BYTES)
        for offset in pieces:
            body = message.body[offset : offset + PIECE_BYTES]
            with_header = header if offset == 0 else None
            place = start + offset
            record = records.content_staged(now_us, message_id, place, body, with_header, number)
            yield RecordStep(record, is_kept=True)
