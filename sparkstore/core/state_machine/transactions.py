"""Commit or abort a transaction over the state machine: its records, or none. Pure.

While a transaction is open nothing of it is in the log, so a crash rolls it back by itself. What
it dequeues, acquires or releases it claims at once: nobody else gets it before commit or abort.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from functools import partial

from sparkstore.core.annotations import as_detail
from sparkstore.core.records import Kind, Record, RecordRun, each_header, run_of
from sparkstore.core.state_machine.admission import Admission
from sparkstore.core.state_machine.batches import Decided, rising_parts
from sparkstore.core.state_machine.call_values import (
    EnqueueCall,
    RecordStep,
    StoredMessage,
    StoredRun,
    Transaction,
    TransactionContext,
    joined,
)
from sparkstore.core.state_machine.link_state_machine import DELIVERY_KINDS
from sparkstore.core.state_machine.state_machine import StoreStateMachine
from sparkstore.errors import InvalidRequest, NotNow, StoreError


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

    Each message of a run is looked at by itself, as by a call of its own. Whether there is room for
    all of them the commit decides: what the transaction takes off later makes room, too.
    Whoever is refused spoils the transaction.

    Raises:
        InvalidRequest: The queue is not there, or the message may not be put on it.
        Full: There is no room for it now.
    """
    transaction.check_open()
    transaction.steps.append(call)  # also of one that is refused: its messages end with it
    alone = partial(Admission, machine, taken=transaction.taken, claimed=transaction.claims)
    _put(machine, call, alone)
    transaction.queues.setdefault(call.queue, machine.state.queues[call.queue])
    return []


def _put(machine: StoreStateMachine, call: EnqueueCall, admission: Callable[[], Admission]) -> None:
    """Put the messages of a call on its queue; all of them, or raise why one of them is not."""
    if isinstance(call.message, StoredRun):
        refusals = filter(None, _put_stored(machine, call, admission))
        if (refusal := next(refusals, None)) is not None:
            raise refusal
    else:
        machine.enqueue(**call.by_name(), admission=admission())


def _put_stored(
    machine: StoreStateMachine, call: EnqueueCall, admission: Callable[[], Admission]
) -> list[StoreError | None]:
    """Put messages on a queue: each for itself, plain neighbours as one.

    Args:
        machine: Of the store.
        call: Names the messages and the queue, and what all of the entries begin with.
        admission: Makes what gets the steps: the same for all, or one for each message.

    Returns:
        Why each is refused; None: it is not.
    """
    messages, outcomes = call.message, list[StoreError | None]()
    assert isinstance(messages, StoredRun)
    headers = each_header(messages.headers, len(messages.message_ids))
    for part in rising_parts(messages.message_ids):
        its = slice(len(outcomes), len(outcomes) + len(part))
        shared = messages.headers if len(messages.headers) == 1 else headers[its]
        run = StoredRun(part, shared, messages.bodies[its])
        common = admission()
        if _is_plain_run(machine, run, call.queue, common):
            _admit_run(common, run, call, is_new=machine.is_fresh(part[0]))
            outcomes += [None] * len(part)
            continue
        outcomes += [_put_one(machine, call, message, admission()) for message in run.singles()]
    return outcomes


def _put_one(
    machine: StoreStateMachine, call: EnqueueCall, message: StoredMessage, admission: Admission
) -> StoreError | None:
    """Put a message on a queue; one that the store has in memory only with its content."""
    known = machine.volatile.get(message.message_id)
    if known is not None:
        expires_at = message.header.expires_at
        message = known._replace(header=known.header._replace(expires_at=expires_at))
    terms = (None, None), call.annotations, call.delivery_count
    try:
        machine.enqueue(message, call.queue, admission, *terms)
    except StoreError as refusal:
        return refusal
    return None


def _is_plain_run(
    machine: StoreStateMachine, run: StoredRun, queue: str, admission: Admission
) -> bool:
    """True if no rule can refuse these messages, or ask anything of them.

    All of them are new, were brought by the same transaction, or are in the log.
    """
    message_ids, headers, bodies = run
    terms = machine.terms.get(queue)
    if type(message_ids) is not range or terms is None:
        return False
    if machine.in_doubt or machine.promised or not terms.keeps_messages:
        return False
    is_kept = all(header.durable for header in headers)
    if terms.asks_of_arrivals or admission.overflowed or not is_kept:
        return False
    if not machine.volatile.keys().isdisjoint(message_ids):
        return False
    are_brought = not admission.brought.isdisjoint(message_ids)
    if not are_brought and not machine.fresh.keys().isdisjoint(message_ids):
        is_whole = bool(bodies) and all(map(machine.is_fresh, message_ids))
        return is_whole and not machine.held_back
    entries = machine.state.queues[queue].entries
    known = admission.brought.issuperset if are_brought else machine.state.messages.has_all
    return known(message_ids) and all(
        (queue, message_id) in admission.taken
        for message_id in message_ids
        if message_id in entries
    )


def _admit_run(admission: Admission, run: StoredRun, call: EnqueueCall, *, is_new: bool) -> None:
    """Put messages on a queue that refuses none of them, and asks nothing.

    The first queue that new messages come on has their content, no other one again.
    """
    ids, headers, bodies = run
    is_new = is_new and ids[0] not in admission.brought
    contents = bodies if is_new else [None] * len(ids)
    known = headers if is_new else [header.known() for header in headers]
    detail = None if call.annotations is None else as_detail(call.annotations)
    at = admission.now_us, call.queue, ids[0], None
    put = Record(Kind.ENQUEUED, *at, None, admission.number, detail=detail)
    admission.steps.append(RecordStep(run_of(put, len(ids), known, contents), is_kept=True))
    if call.delivery_count:
        failed = Record(Kind.RELEASED, *at, call.delivery_count, admission.number)
        admission.steps.append(RecordStep(run_of(failed, len(ids)), is_kept=True))
    if is_new and admission.number is not None:
        admission.brought.update(ids)


def put_alone(machine: StoreStateMachine, call: EnqueueCall) -> Decided:
    """Decide a call that puts messages of the store on a queue, in no transaction."""
    admission = Admission(machine)
    return Decided(admission.steps, _put_stored(machine, call, lambda: admission))


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


def forget_new(machine: StoreStateMachine, context: TransactionContext) -> None:
    """Forget the new messages of a transaction that has ended: done, or refused.

    They are on a queue, or used up; but a branch in doubt has its own until it is decided.
    """
    steps = context.steps if isinstance(context, Transaction) and context.owner is machine else ()
    for planned in steps if machine.fresh else ():
        for message_id in planned.message.message_ids if isinstance(planned, EnqueueCall) else ():
            if message_id not in machine.in_doubt:
                machine.end_fresh(message_id)


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
            _put(machine, planned, lambda: admission)
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
