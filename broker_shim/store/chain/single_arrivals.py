"""New messages of a store that decides elsewhere: its single calls one by one, told together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from broker_shim.completion import OnComplete, OnEachComplete
from broker_shim.errors import Closed, StoreError
from broker_shim.store.interface import (
    MessageHeader,
    NewMessageRun,
    StoredMessage,
)
from sparkstore.core.state_machine.arguments import check_completion, check_new_run


class SingleArrivals:
    """`enqueue_new` of a store, made of its single calls."""

    message: Callable[[MessageHeader, bytes], StoredMessage]
    enqueue: Callable[..., None]

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
        call_each((partial(put, single) for single in singles), len(messages.bodies), on_complete)
        return ids


def call_each(
    calls: Iterable[Callable[..., None]], count: int, on_complete: OnEachComplete
) -> None:
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
