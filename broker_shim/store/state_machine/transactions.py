"""Transactions over the ledger: claims now, records at commit. Pure: no clock, no thread.

While a transaction is open nothing of it is in the log, so a crash rolls it back by itself. What
it dequeues, acquires or releases it claims at once: nobody else gets it before commit or abort.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

from broker_shim.errors import InvalidRequest
from broker_shim.store.interface import Message, TransactionContext
from broker_shim.store.state_machine.arguments import check_entry, check_switch, check_taken
from broker_shim.store.state_machine.definitions import as_json
from broker_shim.store.state_machine.holders import check_holder, held
from broker_shim.store.state_machine.links import DELIVERY_KINDS
from broker_shim.store.state_machine.state_machine import Ledger
from broker_shim.store.state_machine.transaction import Enqueue, Step, Transaction
from sparkstore.core import records
from sparkstore.core.annotations import Annotations, given_back
from sparkstore.core.link_records import LinkKey
from sparkstore.core.records import Record


def own(ledger: Ledger, transaction: TransactionContext) -> Transaction:
    """A transaction of this ledger.

    Raises:
        InvalidRequest: It is another store's.
    """
    if not isinstance(transaction, Transaction) or transaction.owner is not ledger:
        number = getattr(transaction, "transaction", transaction)
        message = f"transaction {reprlib.repr(number)} is not one of this store"
        raise InvalidRequest(message)
    return transaction


def enqueue(
    ledger: Ledger,
    transaction: Transaction,
    message: Message,
    queue: str,
    annotations: Annotations | None = None,
) -> None:
    """Take an enqueue into a transaction: also of a message that it takes off the same queue.

    Raises:
        InvalidRequest: As the ledger's own.
    """
    check_open(transaction)
    ledger.enqueue(message, queue, taken=transaction.taken, annotations=annotations)
    transaction.queues.setdefault(queue, ledger.state.queues[queue])
    transaction.steps.append(Enqueue(message, queue, annotations))


def dequeue(
    ledger: Ledger,
    transaction: Transaction,
    message_id: int,
    queue: str,
    holder: str | None,
    outcome: Mapping[str, Any] | None,
) -> None:
    """Take a dequeue into a transaction."""
    check_taken(message_id, queue, holder)
    acquired_by = _claimable(ledger, transaction, queue, message_id)
    if acquired_by is not None and acquired_by != holder:
        raise held(queue, message_id, acquired_by)
    detail = None if outcome is None else as_json(outcome)
    record = records.message_dequeued(
        ledger.now_us(), queue, message_id, holder, detail, transaction.transaction
    )
    _claim(ledger, transaction, record, holder)
    transaction.taken.add((queue, message_id))


def acquire(
    ledger: Ledger, transaction: Transaction, message_id: int, queue: str, holder: str
) -> None:
    """Take an acquire into a transaction; its abort makes the entry available again."""
    check_entry(message_id, queue, holder)
    acquired_by = _claimable(ledger, transaction, queue, message_id)
    if acquired_by is not None:
        raise held(queue, message_id, acquired_by)
    record = records.message_acquired(
        ledger.now_us(), queue, message_id, holder, transaction.transaction
    )
    _claim(ledger, transaction, record, holder)


def release(
    ledger: Ledger,
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
    acquired_by = _claimable(ledger, transaction, queue, message_id)
    check_holder(queue, message_id, acquired_by, holder)
    key = (queue, message_id)
    entry = ledger.entry(*key)
    count, before = transaction.given_back.get(key, (entry.delivery_count, entry.detail))
    count += delivery_failed
    detail = given_back(before, annotations)
    transaction.given_back[key] = count, before if detail is None else detail
    record = records.message_released(
        ledger.now_us(), queue, message_id, count, transaction.transaction, detail
    )
    _claim(ledger, transaction, record, None)


def unsettled(
    ledger: Ledger,
    transaction: Transaction,
    key: LinkKey,
    tag: bytes,
    state: Mapping[str, Any] | None,
) -> None:
    """Take the state of a delivery into a transaction, beside what the delivery brought."""
    check_open(transaction)
    number = transaction.transaction
    transaction.steps.append(ledger.unsettled_record(key, tag, state, number))


def settle(ledger: Ledger, transaction: Transaction, key: LinkKey, tags: Sequence[bytes]) -> None:
    """Take into a transaction that deliveries are forgotten."""
    check_open(transaction)
    transaction.steps += ledger.settled_records(key, tags, transaction.transaction)


def end(ledger: Ledger, transaction: Transaction) -> None:
    """Let go of everything a transaction claimed: its abort, and the first half of its commit.

    Raises:
        InvalidRequest: It has ended already.
    """
    check_open(transaction)
    transaction.is_open = False
    for key in transaction.claims:
        if ledger.claims.get(key) is transaction:
            del ledger.claims[key]


def commit(ledger: Ledger, transaction: Transaction) -> list[Step]:
    """End a transaction; its steps, decided on the state as it is now.

    Raises:
        InvalidRequest: A queue or message that it uses is gone, or an operation in it was refused;
            then nothing of it may be applied.
    """
    end(ledger, transaction)
    _check_whole(ledger, transaction)
    steps: list[Step] = []
    brought: set[int] = set()
    targets: set[tuple[int, str]] = set()
    for planned in transaction.steps:
        if isinstance(planned, Record) and planned.kind in DELIVERY_KINDS:
            steps += ledger.delivery_steps(planned)
            continue
        if isinstance(planned, Record):
            steps.append(Step(planned, _is_kept_entry(ledger, planned)))
            continue
        message, queue, annotations = planned
        number, taken = transaction.transaction, transaction.taken
        step = ledger.enqueue(message, queue, number, brought, taken, annotations=annotations)
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


def _check_whole(ledger: Ledger, transaction: Transaction) -> None:
    number = transaction.transaction
    if transaction.is_refused:
        message = f"transaction {number} is aborted: an operation in it was refused"
        raise InvalidRequest(message)
    for name, queue in transaction.queues.items():
        if ledger.state.queues.get(name) is not queue:
            message = f"transaction {number} is aborted: queue {name!r} was destroyed"
            raise InvalidRequest(message)


def _claimable(ledger: Ledger, transaction: Transaction, queue: str, message_id: int) -> str | None:
    """Who holds an entry as the transaction sees it, once nobody else has a claim on it."""
    check_open(transaction)
    entry = ledger.entry(queue, message_id)
    key = (queue, message_id)
    if key in transaction.taken:
        message = f"message {message_id} on queue {queue!r} is dequeued by this transaction"
        raise InvalidRequest(message)
    claimant = ledger.claims.get(key)
    if claimant is None:
        return entry.acquired_by
    if claimant is not transaction:
        raise held(queue, message_id, "a transaction")
    return transaction.claims[key]


def _claim(ledger: Ledger, transaction: Transaction, record: Record, holder: str | None) -> None:
    assert record.queue is not None
    assert record.message_id is not None
    key = (record.queue, record.message_id)
    transaction.queues.setdefault(record.queue, ledger.state.queues[record.queue])
    ledger.claims[key] = transaction
    transaction.claims[key] = holder
    transaction.steps.append(record)


def _is_kept_entry(ledger: Ledger, record: Record) -> bool:
    assert record.queue is not None
    assert record.message_id is not None
    return ledger.entry(record.queue, record.message_id).position > 0
