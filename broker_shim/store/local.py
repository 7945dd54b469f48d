"""A `BrokerStore` that decides in this process: the state machine in front of a sink.

Memory, JSON and Delta stores are this class over different sinks.

What is held: one lock, around the decision, the append to the sink and the fold. Completions fire
on the sink's thread without it, so they may call the store. Why nothing is lost: the sink takes
the records before the state shows them, and refuses by raising before either changed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import count
from typing import Any

from broker_shim.completion import OnComplete, nobody
from broker_shim.durability import TerminusDurability
from broker_shim.errors import Closed, InvalidRequest, StoreError
from broker_shim.messages.neutral import identity_of
from broker_shim.store.branch_store import NOT_IN_TRANSACTION, LocalBranches
from broker_shim.store.content_writer import LocalContentWriter, staged
from broker_shim.store.expiring_store import LocalExpiry
from broker_shim.store.full_queues import FullQueues
from broker_shim.store.interface import (
    BrokerStore,
    ContentWriter,
    MessageHeader,
    Recovered,
    StoredMessage,
    TransactionContext,
)
from broker_shim.store.local_batches import LocalBatches
from broker_shim.store.reads import LocalReads, ReadCalls
from broker_shim.store.settlement_times import SettlementTimes
from broker_shim.store.sink import Sink
from sparkstore.core import records
from sparkstore.core.records import Kind
from sparkstore.core.state_machine import batches, branches, transactions
from sparkstore.core.state_machine.arguments import (
    check_completion,
    check_message,
    check_queue,
    check_size,
    check_stored_run,
)
from sparkstore.core.state_machine.call_values import (
    AcquireCall,
    BranchCall,
    DequeueCall,
    EnqueueCall,
    RecordStep,
    ReleaseCall,
    StoreCall,
    StoredRun,
    Transaction,
    is_stored,
)
from sparkstore.core.state_machine.definitions import recovered_of
from sparkstore.core.state_machine.state_machine import StoreStateMachine

Decide = Callable[..., list[RecordStep]]

Observer = Callable[[Sequence[RecordStep]], None]
"""Told of steps when they are durable, in their order, on the thread that fires completions."""

_WIRING = (Kind.CREATED, Kind.ALTERED, Kind.DESTROYED, Kind.BOUND, Kind.UNBOUND)
_LINKS = (Kind.ATTACHED, Kind.DETACHED)
_POLICIES = (Kind.CONFIGURED, Kind.UNCONFIGURED)
SHARED_KINDS = frozenset((*_WIRING, *_LINKS, *_POLICIES))
"""Of a call that begins with one of these all members are told; a policy alters queues."""


class LocalMessageStore(LocalBatches, LocalBranches, LocalExpiry, ReadCalls, BrokerStore):
    """A `BrokerStore` that decides in this process; `max_message_bytes` is inclusive.

    Attributes:
        full_queues: Counts of what was refused because queues are full.
        settlement_times: How long accepted messages were on their queues.
    """

    def __init__(
        self, machine: StoreStateMachine, sink: Sink, max_message_bytes: int = 128 << 20
    ) -> None:
        self._machine, self._sink = machine, sink
        self._max_message_bytes, self._lock = max_message_bytes, threading.Lock()
        self._is_closed, self._transactions = False, count(1)
        self._observer: Observer | None = None
        machine.identity_of = identity_of
        self.full_queues = FullQueues(machine)
        self.settlement_times = SettlementTimes(machine)
        branches.restore(machine)
        self._reads = LocalReads(machine, sink, self._holding)

    @property
    def durability(self) -> TerminusDurability:
        """The highest tier that the store keeps."""
        return self._machine.durability

    def call(
        self,
        call: StoreCall,
        on_complete: OnComplete,
        transaction: TransactionContext | None = None,
    ) -> None:
        """Decide a call by the state machine: most by its method of the same name.

        See `CallTarget.call`.
        """
        is_alone = transaction is None
        if isinstance(call, EnqueueCall) and not (is_alone and is_stored(call)):
            self._decide(on_complete, self._enqueue, call, transaction=transaction)
        elif isinstance(call, EnqueueCall | DequeueCall | AcquireCall | ReleaseCall):
            self.decide_run(call, on_complete, transaction)
        elif not isinstance(call, BranchCall):
            decide = partial(getattr(self._machine, call.operation), **call.by_name())
            self._decide(on_complete, decide, transaction=transaction)
        elif is_alone:
            self.decide_branch(call, on_complete)
        else:
            refusal = InvalidRequest(NOT_IN_TRANSACTION)
            self._decide(on_complete, _refuse, refusal, transaction=transaction)

    def message(self, header: MessageHeader, body: bytes = b"") -> StoredMessage:
        """Make a message with the next id. See `ContentCalls.message`.

        It raises StoreError if no records are taken now.
        """
        with self._lock:  # as hot as `enqueue`
            self._check_open()
            message, steps = self._machine.message(header, body)
            if steps:
                self._take(steps, nobody)
        return message

    def messages(
        self, headers: Sequence[MessageHeader], bodies: Sequence[bytes]
    ) -> Sequence[StoredRun]:
        """Make a run of messages with the next ids. See `ContentCalls.messages`."""
        with self._holding():
            run, steps = batches.new_messages(
                self._machine, headers, bodies, self._max_message_bytes
            )
            if steps:
                self._take(steps, nobody)
        return [run]

    def adopt(self, message: StoredMessage) -> bool:
        """Take a message over with the id that another store gave it.

        See `chain.mirror.MirrorStore.adopt`.
        """
        with self._holding():
            steps = self._machine.adopt(message)
            if steps:
                self._take(steps, nobody)
        return steps is not None

    def content(self, message: StoredMessage) -> ContentWriter:
        """Write each piece of the content as a record; the last one completes it.

        See `ContentCalls.content`.
        """
        check_message(message)
        with self._holding():
            is_kept = self._machine.begin_content(message)
        take = self._stage_piece if is_kept else None
        return LocalContentWriter(message, take, self._end_content, self._max_message_bytes)

    def stage(
        self, message: StoredMessage, pieces: Iterable[bytes], on_complete: OnComplete
    ) -> StoredMessage:
        """Write the content of a new message from an iterator. See `ContentCalls.stage`."""
        return staged(
            self.content,
            message,
            pieces,
            on_complete,
            lambda refusal: self._decide(on_complete, _refuse, refusal),
        )

    def begin(self) -> TransactionContext:
        """Open a transaction with the next number. See `MessageStore.begin`."""
        with self._holding():
            return Transaction(next(self._transactions), self._machine)

    def commit(self, transaction: TransactionContext, on_complete: OnComplete) -> None:
        """Commit a transaction by the state machine, as one item of the log.

        See `MessageStore.commit`.
        """
        with self._ending(transaction):
            self._decide(on_complete, transactions.commit, self._machine, transaction)

    def abort(self, transaction: TransactionContext, on_complete: OnComplete) -> None:
        """End a transaction without effect. See `MessageStore.abort`."""
        is_refused = getattr(transaction, "refusal", None) is not None
        with self._ending(transaction) if is_refused else nullcontext():
            self._decide(on_complete, transactions.abort, self._machine, transaction)

    def flush(self, on_complete: OnComplete) -> None:
        """Have the sink complete when queries see all earlier calls. See `MessageStore.flush`."""
        check_completion(on_complete)
        with self._holding():
            self._sink.flush(on_complete)

    def recover(self) -> Recovered:
        """Tell what is in the store now. See `MessageStore.recover`."""
        with self._holding():
            return recovered_of(self._machine.state)

    def close(self) -> None:
        """Close the reads, then the sink, which completes what is under way.

        See `MessageStore.close`.
        """
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        self._reads.close()
        self._sink.close()

    def _decide(
        self,
        on_complete: OnComplete,
        decide: Decide,
        *args: Any,
        transaction: TransactionContext | None = None,
    ) -> None:
        check_completion(on_complete)
        with self._lock:
            self._check_open()
            try:
                if transaction is None:
                    steps = decide(*args)
                else:
                    steps = self._decided_in(transaction, decide, *args)
                self._take(steps, on_complete)
            except StoreError as refusal:
                self._sink.finish(on_complete, refusal)

    def _decided_in(
        self, transaction: TransactionContext, decide: Decide, *args: Any
    ) -> list[RecordStep]:
        """Decide a call within a transaction, which a refusal spoils as a whole."""
        own = transactions.own(self._machine, transaction)
        try:
            return decide(*args, transaction=own)
        except StoreError as refusal:
            own.refusal = own.refusal or refusal
            raise

    def _take(self, steps: list[RecordStep], on_complete: OnComplete) -> None:
        kept = [step.run for step in steps if step.is_kept]
        if self._observer is not None and steps and steps[0].record.kind in SHARED_KINDS:
            on_complete = observed(self._observer, steps, on_complete)
        self.settlement_times.note(steps)  # before they are true: their entries are still there
        on_complete = self.full_queues.telling(steps, on_complete)
        # The sink first: if it refuses the records, none of the steps is true.
        self._machine.apply(steps, self._sink.append(kept, on_complete))

    def _enqueue(
        self, call: EnqueueCall, transaction: Transaction | None = None
    ) -> list[RecordStep]:
        check_queue(call.queue)
        if is_stored(call):
            check_stored_run(call.message, self._max_message_bytes)
        else:
            check_message(call.message)
            check_size(call.message.headers[0].body_bytes, self._max_message_bytes)
        if transaction is not None:
            return transactions.enqueue(self._machine, call, transaction)
        message, notes = call.message, call.annotations
        assert isinstance(message, StoredMessage)
        nobody = (None, None)
        return self._machine.enqueue(message, call.queue, None, nobody, notes, call.delivery_count)

    def _stage_piece(
        self, message: StoredMessage, body_offset: int, piece: bytes, on_complete: OnComplete
    ) -> None:
        with self._holding():
            self._machine.check_room()
            now_us = self._machine.now_us()
            record = records.content_staged(now_us, message.message_id, body_offset, piece)
            self._take([RecordStep(record, is_kept=True)], on_complete)

    def _end_content(self, message: StoredMessage, on_complete: OnComplete) -> None:
        self._decide(on_complete, self._machine.end_content, message)

    @contextmanager
    def _ending(self, transaction: TransactionContext) -> Iterator[None]:
        """Have the new messages of a transaction forgotten: it ends here, or is refused."""
        yield
        with self._lock:
            transactions.forget_new(self._machine, transaction)

    @contextmanager
    def _holding(self) -> Iterator[None]:
        with self._lock:
            self._check_open()
            yield

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closed("the store is closed: open a new one")


def observed(
    observer: Observer, steps: Sequence[RecordStep], on_complete: OnComplete
) -> OnComplete:
    """Wrap a completion, so that the observer is told of the steps before it."""

    def complete(error: StoreError | None) -> None:
        if error is None:
            observer(steps)
        on_complete(error)

    return complete


def _refuse(refusal: StoreError, transaction: object = None) -> list[RecordStep]:  # noqa: ARG001
    raise refusal
