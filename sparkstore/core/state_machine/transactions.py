"""Transactions over the state machine: claims now, records at commit. Pure: no clock, no thread.

While a transaction is open nothing of it is in the log, so a crash rolls it back by itself. What
it dequeues, acquires or releases it claims at once: nobody else gets it before commit or abort.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

from sparkstore.core import records
from sparkstore.core.annotations import Annotations, given_back
from sparkstore.core.link_records import LinkKey
from sparkstore.core.records import Record
from sparkstore.core.state_machine.arguments import check_entry, check_switch, check_taken
from sparkstore.core.state_machine.definitions import as_json
from sparkstore.core.state_machine.holders import check_holder, held
from sparkstore.core.state_machine.links import DELIVERY_KINDS
from sparkstore.core.state_machine.state_machine import StoreStateMachine
from sparkstore.core.state_machine.transaction import PlannedEnqueue, RecordStep, Transaction
from sparkstore.core.state_machine.values import StoredMessage, TransactionContext
from sparkstore.errors import InvalidRequest


def own(machine: StoreStateMachine, transaction: TransactionContext) -> Transaction:
    """A transaction of this state machine.

    Raises:
        InvalidRequest: It is another store's.
    """
    if not isinstance(transaction, Transaction) or transaction.owner is not machine:
        number = getattr(transaction, "transaction", transaction)
        message = f"transaction {reprlib.repr(number)} is not one of this store"
        raise InvalidRequest(message)
    return transaction


def enqueue(
    machine: StoreStateMachine,
    transaction: Transaction,
    message: StoredMessage,
    queue: str,
    annotations: Annotations | None = None,
) -> None:
    """Take an enqueue into a transaction: also of a message that it takes off the same queue.

    Raises:
        InvalidRequest: The queue is not there, or the message may not be put on it.
    """
    check_open(transaction)
    machine.enqueue(message, queue, taken=transaction.taken, annotations=annotations)
    transaction.queues.setdefault(queue, machine.state.queues[queue])
    transaction.steps.append(PlannedEnqueue(message, queue, annotations))


def dequeue(
    machine: StoreStateMachine,
    transaction: Transaction,
    message_id: int,
    queue: str,
    holder: str | None,
    outcome: Mapping[str, Any] | None,
) -> None:
    """Take a dequeue into a transaction."""
    check_taken(message_id, queue, holder)
    acquired_by = _claimable(machine, transaction, queue, message_id)
    if acquired_by is not None and acquired_by != holder:
        raise held(queue, message_id, acquired_by)
    detail = None if outcome is None else as_json(outcome)
    record = records.message_dequeued(
        machine.now_us(), queue, message_id, holder, detail, transaction.transaction
    )
    _claim(machine, transaction, record, holder)
    transaction.taken.add((queue, message_id))


def acquire(
    machine: StoreStateMachine, transaction: Transaction, message_id: int, queue: str, holder: str
) -> None:
    """Take an acquire into a transaction; its abort makes the entry available again."""
    check_entry(message_id, queue, holder)
    acquired_by = _claimable(machine, transaction, queue, message_id)
    if acquired_by is not None:
        raise held(queue, message_id, acquired_by)
    record = records.message_acquired(
        machine.now_us(), queue, message_id, holder, transaction.transaction
    )
    _claim(machine, transaction, record, holder)


def release(
    machine: StoreStateMachine,
    transaction: Transaction,
    message_id: int,
    queue: str,
    holder: str,
    *,
    delivery_failed: bool,
    annotations: Annotations | None = None,
) -> None:
    """Take a release into a transaction; the entry is available after its commit."""
    check_entry(message_id, queue, holder)
    check_switch("delivery_failed", delivery_failed)
    acquired_by = _claimable(machine, transaction, queue, message_id)
    check_holder(queue, message_id, acquired_by, holder)
    key = (queue, message_id)
    entry = machine.entry(*key)
    count, before = transaction.given_back.get(key, (entry.delivery_count, entry.detail))
    count += delivery_failed
    detail = given_back(before, annotations)
    transaction.given_back[key] = count, before if detail is None else detail
    record = records.message_released(
        machine.now_us(), queue, message_id, count, transaction.transaction, detail
    )
    _claim(machine, transaction, record, None)


def unsettled(
    machine: StoreStateMachine,
    transaction: Transaction,
    key: LinkKey,
    tag: bytes,
    state: Mapping[str, Any] | None,
) -> None:
    """Take the state of a delivery into a transaction, beside what the delivery brought."""
    check_open(transaction)
    number = transaction.transaction
    transaction.steps.append(machine.unsettled_record(key, tag, state, number))


def settle(
    machine: StoreStateMachine,
    transaction: Transaction,
    key: LinkKey,
    tags: Sequence[bytes],
) -> None:
    """Take into a transaction that deliveries are forgotten."""
    check_open(transaction)
    transaction.steps += machine.settled_records(key, tags, transaction.transaction)


def end(machine: StoreStateMachine, transaction: Transaction) -> None:
    """Let go of everything a transaction claimed: its abort, and the first half of its commit.

    Raises:
        InvalidRequest: It has ended already.
    """
    check_open(transaction)
    transaction.is_open = False
    for key in transaction.claims:
        if machine.claims.get(key) is transaction:
            del machine.claims[key]


def commit(machine: StoreStateMachine, transaction: Transaction) -> list[RecordStep]:
    """End a transaction; its steps, decided on the state as it is now.

    Raises:
        InvalidRequest: A queue or message that it uses is gone, or an operation in it was refused;
            then nothing of it may be applied.
    """
    end(machine, transaction)
    _check_whole(machine, transaction)
    steps: list[RecordStep] = []
    brought: set[int] = set()
    targets: set[tuple[int, str]] = set()
    for planned in transaction.steps:
        if isinstance(planned, Record) and planned.kind in DELIVERY_KINDS:
            steps += machine.delivery_steps(planned)
            continue
        if isinstance(planned, Record):
            steps.append(RecordStep(planned, _is_kept_entry(machine, planned)))
            continue
        message, queue, annotations = planned
        number, taken = transaction.transaction, transaction.taken
        step = machine.enqueue(message, queue, number, brought, taken, annotations=annotations)
        if (message.message_id, queue) in targets:
            refusal = f"message {message.message_id} is on queue {queue!r} already"
            raise InvalidRequest(refusal)
        targets.add((message.message_id, queue))
        if step.is_kept:
            brought.add(message.message_id)
        steps.append(step)
    return steps


def check_open(transaction: Transaction) -> None:
    """Raises InvalidRequest if a transaction has ended."""
    if not transaction.is_open:
        message = f"transaction {transaction.transaction} has ended: begin another"
        raise InvalidRequest(message)


def _check_whole(machine: StoreStateMachine, transaction: Transaction) -> None:
    number = transaction.transaction
    if transaction.is_refused:
        message = f"transaction {number} is aborted: an operation in it was refused"
        raise InvalidRequest(message)
    for name, queue in transaction.queues.items():
        if machine.state.queues.get(name) is not queue:
            message = f"transaction {number} is aborted: queue {name!r} was destroyed"
            raise InvalidRequest(message)


def _claimable(
    machine: StoreStateMachine, transaction: Transaction, queue: str, message_id: int
) -> str | None:
    """Who holds an entry as the transaction sees it, once nobody else has a claim on it."""
    check_open(transaction)
    entry = machine.entry(queue, message_id)
    key = (queue, message_id)
    if key in transaction.taken:
        message = f"message {message_id} on queue {queue!r} is dequeued by this transaction"
        raise InvalidRequest(message)
    claimant = machine.claims.get(key)
    if claimant is None:
        return entry.acquired_by
    if claimant is not transaction:
        raise held(queue, message_id, "a transaction")
    return transaction.claims[key]


def _claim(
    machine: StoreStateMachine, transaction: Transaction, record: Record, holder: str | None
) -> None:
    assert record.queue is not None
    assert record.message_id is not None
    key = (record.queue, record.message_id)
    transaction.queues.setdefault(record.queue, machine.state.queues[record.queue])
    machine.claims[key] = transaction
    transaction.claims[key] = holder
    transaction.steps.append(record)


def _is_kept_entry(machine: StoreStateMachine, record: Record) -> bool:
    assert record.queue is not None
    assert record.message_id is not None
    return machine.entry(record.queue, record.message_id).position > 0
