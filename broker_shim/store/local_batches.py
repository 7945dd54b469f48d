"""Batches of a store that decides in this process: one lock, one append, one completion each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from broker_shim.completion import OnComplete, OnEachComplete, each_of, nobody, refusal_of
from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.store.interface import NewMessageRun
from broker_shim.store.sink import Sink
from sparkstore.core.state_machine import batches, transactions
from sparkstore.core.state_machine.arguments import (
    check_batch,
    check_completion,
    check_new_run,
    check_stored_run,
)
from sparkstore.core.state_machine.batches import Decided
from sparkstore.core.state_machine.call_values import (
    EnqueueCall,
    EntryCall,
    RecordStep,
    Transaction,
    TransactionContext,
)
from sparkstore.core.state_machine.state_machine import StoreStateMachine


class LocalBatches:
    """`BatchCalls` of a `LocalMessageStore`, and the calls about runs."""

    _machine: StoreStateMachine
    _sink: Sink
    _lock: threading.Lock
    _max_message_bytes: int
    _check_open: Callable[[], None]
    _take: Callable[[list[RecordStep], OnComplete], None]

    def enqueue_new(self, messages: NewMessageRun, on_complete: OnEachComplete) -> Sequence[int]:
        """Put new messages on their queue under one holding of the lock.

        See `BatchCalls.enqueue_new`.
        """
        check_completion(on_complete)
        check_new_run(messages)
        tells = each_of(len(messages.bodies), on_complete)
        with self._lock:
            self._check_open()
            decided, ids = batches.enqueue_new(self._machine, messages, self._max_message_bytes)
            self._take_each(decided, tells, is_last=True)
        return ids

    def decide_run(
        self,
        call: EntryCall | EnqueueCall,
        on_complete: OnComplete,
        context: TransactionContext | None = None,
    ) -> None:
        """Decide a call about a run of messages: one lock, one append, one completion.

        Raises:
            InvalidRequest: They are no such messages, or there is none.
        """
        if isinstance(call, EnqueueCall):
            self._enqueue_stored(call, on_complete)
            return
        message_ids, before = call.message_ids, list[StoreError | None]()
        check_batch(message_ids, on_complete)
        with self._lock:
            self._check_open()
            try:
                own = None if context is None else transactions.own(self._machine, context)
            except InvalidRequest as refusal:
                self._sink.finish(on_complete, refusal)
                return
            parts = [*batches.without_repeats(message_ids)]
            for part in parts:
                decided = batches.decided(self._machine, call, part, own)
                is_last = part is parts[-1]
                before = self._take_each(decided, on_complete, before, own, is_last=is_last)

    def _enqueue_stored(self, call: EnqueueCall, on_complete: OnComplete) -> None:
        check_completion(on_complete)
        check_stored_run(call.message, self._max_message_bytes)
        with self._lock:
            self._check_open()
            decided = transactions.put_alone(self._machine, call)
            self._take_each(decided, on_complete, is_last=True)

    def _take_each(
        self,
        decided: Decided,
        on_complete: OnComplete,
        before: Sequence[StoreError | None] = (),
        transaction: Transaction | None = None,
        *,
        is_last: bool,
    ) -> list[StoreError | None]:
        """Make decided calls true, and have `on_complete` told of them and of those before.

        A refusal spoils the transaction, and is told of all that was called in it.
        """
        steps, outcomes = decided
        results = [*before, *outcomes]
        if transaction is not None and is_last:
            refusal = next(filter(None, results), None)
            transaction.refusal = transaction.refusal or refusal
            self._sink.finish(on_complete, refusal)
            return results
        done = _telling(on_complete, results) if is_last else nobody
        try:
            self._take(steps, done)
        except StoreError as refusal:
            results[len(before) :] = [outcome or refusal for outcome in outcomes]
            if is_last:
                self._sink.finish(done, None)
        return results


def _telling(on_complete: OnComplete, outcomes: list[StoreError | None]) -> OnComplete:
    """Make the completion that tells the outcome of each call of a batch."""

    def complete(error: StoreError | None) -> None:
        on_complete(refusal_of([outcome or error for outcome in outcomes] if error else outcomes))

    return complete
