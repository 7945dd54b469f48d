"""Commit or abort a transaction over the state machine: its records, or none. Pure.

While a transaction is open nothing of it is in the log, so a crash rolls it back by itself. What
it dequeues, acquires or releases it claims at once: nobody else gets it before commit or abort.
"""

from __future__ import annotations

import reprlib

from sparkstore.core.records import Record, RecordRun
from sparkstore.core.state_machine.admission import Admission
from sparkstore.core.state_machine.batches import put_stored
from sparkstore.core.state_machine.call_values import (
    EnqueueCall,
    RecordStep,
    StoredRun,
    Transaction,
    TransactionContext,
    joined,
)
from sparkstore.core.state_machine.link_state_machine import DELIVERY_KINDS
from sparkstore.core.state_machine.state_machine import StoreStateMachine
from sparkstore.errors import InvalidRequest, NotNow


def own(machine: StoreStateMachine, transaction: TransactionContext) -> Transaction:
    """Check that a transaction is of this state machine, and return it.

    Raises:
        InvalidRequest: It is another store's.
    """
    if not isinstance(transaction, Transaction) or transaction.owner is not machine:
        number = getattr(transaction, "transaction", transaction)
        message = f"transaction {reprlib.repr(number)} is not one of this store"
        raise InvalidRequest(message)
    return transaction


def enqueue(
    machine: StoreStateMachine, call: EnqueueCall, transaction: Transaction
) -> list[RecordStep]:
    """Take an enqueue into a transaction: also of what it takes off the same queue.

    Raises:
        InvalidRequest: The queue is not there, or the message may not be put on it.
        Full: There is no room for it now.
    """
    transaction.check_open()
    admission = Admission(machine, taken=transaction.taken, claimed=transaction.claims)
    _put(machine, call, admission)
    transaction.queues.setdefault(call.queue, machine.state.queues[call.queue])
    transaction.steps.append(call)
    return []


def _put(machine: StoreStateMachine, call: EnqueueCall, admission: Admission) -> None:
    """Put the messages of a call on its queue; all of them, or raise why one of them is not."""
    if isinstance(call.message, StoredRun):
        refusals = filter(None, put_stored(machine, call, call.message, admission))
        if (refusal := next(refusals, None)) is not None:
            raise refusal
    else:
        machine.enqueue(**call.by_name(), admission=admission)


def abort(machine: StoreStateMachine, transaction: TransactionContext) -> list[RecordStep]:
    """Let go of everything a transaction claimed: also the first half of its commit.

    Raises:
        InvalidRequest: It has ended already, or is another store's.
    """
    ended = own(machine, transaction)
    ended.check_open()
    ended.is_open = False
    for key in ended.claims:
        if machine.claims.get(key) is ended:
            del machine.claims[key]
    return []


def commit(machine: StoreStateMachine, context: TransactionContext) -> list[RecordStep]:
    """End a transaction; its steps, decided on the state as it is now.

    Raises:
        InvalidRequest: A queue or message that it uses is gone, or an operation in it was refused;
            then nothing of it may be applied.
        Full: There is no room for what it brings, or was none for an operation; likewise.
    """
    transaction = own(machine, context)
    abort(machine, transaction)
    return [*joined(decided_steps(machine, transaction))]


def decided_steps(
    machine: StoreStateMachine,
    transaction: Transaction,
    *,
    is_promised: bool = False,
    is_tried: bool = False,
) -> list[RecordStep]:
    """Make the steps of an ended transaction; a prepared branch is never refused for room.

    Raises:
        InvalidRequest: As of `commit`.
    """
    _check_whole(machine, transaction)
    number, taken = transaction.transaction, transaction.taken
    admission = Admission(
        machine,
        number,
        taken,
        transaction.claims,
        is_promised=is_promised,
        is_tried=is_tried,
    )
    steps = admission.steps
    targets: dict[str, set[int]] = {}
    for planned in transaction.steps:
        if isinstance(planned, RecordRun):  # each of them is kept, and claimed
            steps.append(RecordStep(planned, is_kept=True))
        elif isinstance(planned, EnqueueCall):
            _put(machine, planned, admission)
            queue, message_ids = planned.queue, planned.message.message_ids
            there_already = targets.setdefault(queue, set()).intersection(message_ids)
            if there_already:
                refusal = f"message {min(there_already)} is on queue {queue!r} already"
                raise InvalidRequest(refusal)
            targets[queue].update(message_ids)
        elif planned.kind in DELIVERY_KINDS:
            steps += machine.delivery_steps(planned)
        else:
            steps.append(RecordStep(planned, _is_kept_entry(machine, planned)))
    return steps


def _check_whole(machine: StoreStateMachine, transaction: Transaction) -> None:
    number = transaction.transaction
    if transaction.refusal is not None:
        message = f"transaction {number} is aborted: an operation in it was refused"
        if isinstance(transaction.refusal, NotNow):  # it may be made anew, and be taken then
            message += f": {transaction.refusal}"
            raise type(transaction.refusal)(message)
        raise InvalidRequest(message)
    for name, queue in transaction.queues.items():
        if machine.state.queues.get(name) is not queue:
            message = f"transaction {number} is aborted: queue {name!r} was destroyed"
            raise InvalidRequest(message)


def _is_kept_entry(machine: StoreStateMachine, record: Record) -> bool:
    assert record.queue is not None
    assert record.message_id is not None
    return machine.entry(record.queue, record.message_id).position > 0
