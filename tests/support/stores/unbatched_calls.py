"""A store whose runs are its single calls one by one: for stores that refuse some of these."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from broker_shim.completion import OnEachComplete
from broker_shim.store.chain.single_arrivals import SingleArrivals, call_each
from broker_shim.store.interface import Annotations, TransactionContext
from sparkstore.core.state_machine.arguments import check_batch


class UnbatchedCalls(SingleArrivals):
    """`BatchCalls` of a store, made of its single calls."""

    acquire: Callable[..., None]
    dequeue: Callable[..., None]
    release: Callable[..., None]

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
        call_each(calls, len(message_ids), on_complete)

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
        call_each(calls, len(message_ids), on_complete)

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
        call_each(calls, len(message_ids), on_complete)


def _within(transaction: TransactionContext | None) -> dict[str, Any]:
    return {} if transaction is None else {"transaction": transaction}
