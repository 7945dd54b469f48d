"""A store whose runs are its single calls one by one: for stores that refuse some of these."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from broker_shim.completion import OnComplete, OnEachComplete
from broker_shim.errors import Closed, StoreError
from broker_shim.store.interface import (
    Annotations,
    MessageHeader,
    NewMessageRun,
    StoredMessage,
    TransactionContext,
)
from sparkstore.core.state_machine.arguments import check_batch, check_completion, check_new_run


class UnbatchedCalls:
    """`BatchCalls` of a store, made of its single calls."""

    message: Callable[[MessageHeader, bytes], StoredMessage]
    enqueue: Callable[..., None]
    acquire: Callable[..., None]
    dequeue: Callable[..., None]
    release: Callable[..., None]

    def enqueue_new(self, messages: NewMessageRun, on_complete: OnEachComplete) -> Sequence[int]:
        """Put each new message on the queue by calls of its own. See `BatchCalls.enqueue_new`."""
        check_completion(on_complete)
        ids: list[int] = []

        def put(single: NewMessageRun, on_complete: OnComplete) -> None:
            ids.append(0)
            message = self.message(single.headers[0], single.bodies[0])
            ids[-1] = message.message_id
            self.enqueue(message, single.queue, on_complete)

        singles = check_new_run(messages).singles()
        _each((partial(put, single) for single in singles), len(messages.bodies), on_complete)
        return ids

    def acquire_each(
        self,
        message_ids: Sequence[int],
        queue: str,
        holder: str,
        on_complete: OnEachComplete,
        transaction: TransactionContext | None = None,
    ) -> None:
        """Reserve each message by a call of its own. See `BatchCalls.acquire_each`."""
        check_batch(message_ids, on_complete)
        calls = (
            partial(self.acquire, i, queue, holder, **_within(transaction)) for i in message_ids
        )
        _each(calls, len(message_ids), on_complete)

    def dequeue_each(
        self,
        message_ids: Sequence[int],
        queue: str,
        holder: str | None,
        on_complete: OnEachComplete,
        outcome: Mapping[str, Any] | None = None,
        transaction: TransactionContext | None = None,
    ) -> None:
        """Remove each message by a call of its own. See `BatchCalls.dequeue_each`."""
        check_batch(message_ids, on_complete)
        options = {"outcome": outcome, **_within(transaction)}
        calls = (partial(self.dequeue, i, queue, holder, **options) for i in message_ids)
        _each(calls, len(message_ids), on_complete)

    def release_each(
        self,
        message_ids: Sequence[int],
        queue: str,
        holder: str,
        on_complete: OnEachComplete,
        transaction: TransactionContext | None = None,
        *,
        delivery_failed: bool,
        annotations: Annotations | None = None,
    ) -> None:
        """Give each message back by a call of its own. See `BatchCalls.release_each`."""
        check_batch(message_ids, on_complete)
        options: dict[str, Any] = {"delivery_failed": delivery_failed, "annotations": annotations}
        options |= _within(transaction)
        calls = (partial(self.release, i, queue, holder, **options) for i in message_ids)
        _each(calls, len(message_ids), on_complete)


def _within(transaction: TransactionContext | None) -> dict[str, Any]:
    return {} if transaction is None else {"transaction": transaction}


def _each(calls: Iterable[Callable[..., None]], count: int, on_complete: OnEachComplete) -> None:
    """Make calls that take a completion, and tell what came of each when all have completed.

    Raises:
        Closed: The store was closed before the first of them.
    """
    outcomes: list[StoreError | None] = [None] * count
    guard, left = threading.Lock(), count

    def done(index: int, error: StoreError | None) -> None:
        nonlocal left
        outcomes[index] = error
        with guard:
            left -= 1
            is_last = not left
        if is_last:
            on_complete(outcomes)

    for index, call in enumerate(calls):
        try:
            call(on_complete=partial(done, index))
        except Closed as closed:
            if not index:
                raise
            done(index, closed)
        except StoreError as refusal:  # of `message`, which says so at once
            done(index, refusal)
