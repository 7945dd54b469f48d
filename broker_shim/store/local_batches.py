"""Batches of a store that decides in this process: one lock, one append, one completion each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from broker_shim.completion import OnComplete, OnEachComplete
from broker_shim.errors import StoreError
from broker_shim.store.interface import Annotations, NewMessageRun
from broker_shim.store.sink import Sink
from sparkstore.core.state_machine import batches
from sparkstore.core.state_machine.arguments import check_batch, check_completion, check_new_run
from sparkstore.core.state_machine.batches import Decided
from sparkstore.core.state_machine.call_values import (
    AcquireCall,
    DequeueCall,
    RecordStep,
    StoredMessage,
    joined,
)
from sparkstore.core.state_machine.state_machine import StoreStateMachine


class LocalBatches:
    """`BatchCalls` of a `LocalMessageStore`, and the single calls that are batches of one."""

    _machine: StoreStateMachine
    _sink: Sink
    _lock: threading.Lock
    _max_message_bytes: int
    _check_open: Callable[[], None]
    _take: Callable[[list[RecordStep], OnComplete], None]

    def enqueue_plain(self, message: StoredMessage, queue: str, on_complete: OnComplete) -> bool:
        """The batch of one that is asked for most, by the shortest way.

        Returns:
            False if nothing was done: it is to be decided as any other call.
        """
        check_completion(on_complete)
        with self._lock:
            self._check_open()
            try:
                steps = batches.plain_enqueue(
                    self._machine, message, queue, self._max_message_bytes
                )
                if steps is None:
                    return False
                if len(steps) > 1:  # others make room
                    self._take(steps, on_complete)
                    return True
                (step,) = steps
                position = self._sink.append((step.run,) if step.is_kept else (), on_complete)
            except StoreError as refusal:
                self._sink.finish(on_complete, refusal)
            else:
                self._machine.apply_enqueued(step, position)
        return True

    def enqueue_new(self, messages: NewMessageRun, on_complete: OnEachComplete) -> Sequence[int]:
        """Put new messages on their queue under one holding of the lock.

        See `BatchCalls.enqueue_new`.
        """
        check_completion(on_complete)
        check_new_run(messages)
        with self._lock:
            self._check_open()
            decided, ids = batches.enqueue_new(self._machine, messages, self._max_message_bytes)
            self._take_each(decided, on_complete, is_last=True)
        return ids

    def dequeue_each(
        self,
        message_ids: Sequence[int],
        queue: str,
        holder: str | None,
        on_complete: OnEachComplete,
        outcome: Mapping[str, Any] | None = None,
    ) -> None:
        """Remove many messages of a queue under one holding of the lock.

        See `BatchCalls.dequeue_each`.
        """
        self.decide_each(on_complete, message_ids, batches.dequeue, queue, holder, outcome)

    def acquire_each(
        self, message_ids: Sequence[int], queue: str, holder: str, on_complete: OnEachComplete
    ) -> None:
        """Reserve many messages of a queue under one holding of the lock.

        See `BatchCalls.acquire_each`.
        """
        self.decide_each(on_complete, message_ids, batches.acquire, queue, holder)

    def release_each(
        self,
        message_ids: Sequence[int],
        queue: str,
        holder: str,
        on_complete: OnEachComplete,
        *,
        delivery_failed: bool,
        annotations: Annotations | None = None,
    ) -> None:
        """Give many messages of a queue back under one holding of the lock.

        See `BatchCalls.release_each`.
        """
        terms = queue, holder, delivery_failed, annotations
        self.decide_each(on_complete, message_ids, _released, *terms)

    def decide_one(self, call: AcquireCall | DequeueCall, on_complete: OnComplete) -> None:
        """Decide a call by itself, as a batch of one."""
        decide = batches.acquire if isinstance(call, AcquireCall) else batches.dequeue
        _message_id, *terms = call.by_name().values()
        self.decide_each(alone(on_complete), (call.message_id,), decide, *terms)

    def decide_each(
        self,
        on_complete: OnEachComplete,
        message_ids: Sequence[int],
        decide: Callable[..., Decided],
        *args: Any,
    ) -> None:
        """Decide each call by itself, in their order: one lock, one append, one completion."""
        check_batch(message_ids, on_complete)
        before: list[StoreError | None] = []
        with self._lock:
            self._check_open()
            parts = [*batches.without_repeats(message_ids)]
            for part in parts:
                decided = decide(self._machine, part, *args)
                is_last = part is parts[-1]
                before = self._take_each(decided, on_complete, before, is_last=is_last)

    def _take_each(
        self,
        decided: Decided,
        on_complete: OnEachComplete,
        before: Sequence[StoreError | None] = (),
        *,
        is_last: bool,
    ) -> list[StoreError | None]:
        """Make decided calls true, and have `on_complete` told of them and of those before."""
        steps, outcomes = decided
        results = [*before, *outcomes]
        done = _telling(on_complete, results) if is_last else _nothing
        try:
            self._take(steps, done)
        except StoreError as refusal:
            results[len(before) :] = [outcome or refusal for outcome in outcomes]
            if is_last:
                self._sink.finish(done, None)
        return results


def _released(
    machine: StoreStateMachine,
    message_ids: Sequence[int],
    queue: str,
    holder: str,
    failed: bool,  # noqa: FBT001  # a field of the call
    annotations: Annotations | None = None,
) -> Decided:
    """Give each of these messages back; neighbours of which the records say the same are a run."""
    steps, outcomes = batches.of_entries(
        machine,
        message_ids,
        queue,
        holder,
        None,
        lambda _index, message_id: machine.release(
            message_id, queue, holder, delivery_failed=failed, annotations=annotations
        ),
    )
    return Decided([*joined(steps)], outcomes)


def alone(on_complete: OnComplete) -> OnEachComplete:
    """Wrap the completion of a single call as that of a batch of one."""
    check_completion(on_complete)
    return lambda outcomes: on_complete(outcomes[0])


def _telling(on_complete: OnEachComplete, outcomes: list[StoreError | None]) -> OnComplete:
    """Make the completion that tells the outcome of each call of a batch."""

    def complete(error: StoreError | None) -> None:
        on_complete(outcomes if error is None else [outcome or error for outcome in outcomes])

    return complete


def _nothing(_error: StoreError | None) -> None:
    """The last part of the batch tells."""
