"""Consumers' outcomes made durable: dequeue and release, repeated until the store took them.

Why repeated: the store did not answer, or had no room, and the consumer has made up its mind.
Taking an accepted message off again is harmless (the store says that it is not there), giving up
would deliver it twice. A broker that stops meanwhile delivers it again: at least once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from broker_shim.broker.flow.served_queues import ServedQueues
from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.completion import OnComplete
from broker_shim.errors import InvalidRequest, NotAcquired, NotNow, StoreError, Unavailable
from broker_shim.store.interface import Annotations

_ACCEPTED: Mapping[str, Any] = {"outcome": "accepted"}

_log = logging.getLogger(__name__)

OnRemoved = Callable[[Sequence[int], Sequence[StoreError | None]], None]
"""Gets messages, and what came of each of them."""

What = tuple[str | int, ...]
"""What is done, for the log: a format and its values, put together only when it is written."""


class Settlement:
    """Ends what a consumer holds; `waiting_count` is how many wait to be tried again."""

    def __init__(
        self,
        served: ServedQueues,
        on_released: Callable[[QueueDispatch, int], None],
    ) -> None:
        """Begin with no call under way.

        Args:
            served: The queues that the messages are on.
            on_released: Called with the queue and the id of each message that waits again.
        """
        self._served, self._on_released = served, on_released
        self.waiting_count = 0

    def remove(
        self,
        message_ids: Sequence[int],
        queue: str,
        holder: str | None,
        on_done: OnRemoved,
        outcome: Mapping[str, Any] | None = None,
    ) -> None:
        """Take held messages off their queue for good.

        Args:
            message_ids: The messages, none of them twice.
            queue: Name of the queue that all of them are on.
            holder: Who holds them; None for what only the broker holds.
            on_done: Called some times, until it was told of each: with messages, and what came of
                them: None once that is durable.
            outcome: Why they leave, as in `MessageStore.dequeue`.
        """
        self._remove(message_ids, queue, holder, on_done, outcome, 0)

    def _remove(
        self,
        message_ids: Sequence[int],
        queue: str,
        holder: str | None,
        on_done: OnRemoved,
        outcome: Mapping[str, Any] | None,
        turn: int,
    ) -> None:
        """Remove messages, as `remove` does, in the `turn`th repetition."""

        def done(outcomes: Sequence[StoreError | None]) -> None:
            ended = message_ids
            if any(outcomes):
                ended, outcomes, again = self._sorted(message_ids, queue, outcomes, turn)
                if again:
                    anew = partial(self._remove, again, queue, holder, on_done, outcome, turn + 1)
                    self._again(self._served.settings.probe_interval_s, anew)
            dispatch = self._served.queues.get(queue)
            if dispatch is not None:
                dispatch.removed(ended, (outcome or _ACCEPTED).get("outcome", "other"))
            if ended:
                on_done(ended, outcomes)

        self._served.calls.dequeue_each(message_ids, queue, holder, done, outcome)

    def _sorted(
        self,
        message_ids: Sequence[int],
        queue: str,
        outcomes: Sequence[StoreError | None],
        turn: int,
    ) -> tuple[list[int], list[StoreError | None], list[int]]:
        """Part the messages whose outcome is known from those to be tried again."""
        ended: list[int] = []
        results: list[StoreError | None] = []
        again: list[int] = []
        for message_id, outcome in zip(message_ids, outcomes, strict=True):
            if isinstance(outcome, NotNow):
                again.append(message_id)
                continue
            what: What = ("dequeue of message %d on %r", message_id, queue)
            ended.append(message_id)
            results.append(_known(outcome, what, turn))
        return ended, results, again

    def _again(self, delay_s: float, call: Callable[[], None]) -> None:
        """Make a call after a while; until then it counts as waiting."""

        def again() -> None:
            self.waiting_count -= 1
            call()

        self.waiting_count += 1
        self._served.later(delay_s, again)

    def give_back(
        self,
        message_id: int,
        queue: str,
        holder: str,
        *,
        failed: bool,
        on_done: OnComplete | None = None,
        delay_s: float = 0.0,
        annotations: Annotations | None = None,
    ) -> None:
        """Make a held message available again; `failed` raises its delivery count.

        With `annotations`, these are what its entry adds to it from now on.

        With a delay it counts as waiting meanwhile, so that a stop does not leave it held. There is
        one after `Unavailable`, when the message may never have been acquired: then it waits, and
        the store's refusal to release it says so.
        """

        def call(done: OnComplete) -> None:
            self._served.calls.release(
                message_id, queue, holder, done, failed=failed, annotations=annotations
            )

        def done(error: StoreError | None) -> None:
            dispatch = self._served.queues.get(queue)
            if dispatch is not None:
                if error is None:
                    self.released(message_id, dispatch, failed=failed)
                else:
                    dispatch.removed((message_id,))
            if on_done is not None:
                on_done(error)

        self._served.metrics.released += 1
        what: What = ("release of message %d on %r", message_id, queue)
        if delay_s:
            self._again(delay_s, partial(self.insist, call, done, what, 1))
        else:
            self.insist(call, done, what)

    def released(self, message_id: int, queue: QueueDispatch, *, failed: bool) -> None:
        """Let a message wait again that the store has given back, or end it if it may not stay."""
        queue.released(message_id, delivery_failed=failed)
        self._served.on_waiting(queue, (message_id,))
        self._served.wanted(queue.name)
        # After its release: only what waits can be taken off the queue, if it may not stay.
        self._on_released(queue, message_id)

    def insist(
        self, call: Callable[[OnComplete], None], on_done: OnComplete, what: What, turn: int = 0
    ) -> None:
        """Make a call of the store until it is not `NotNow`.

        Args:
            call: Makes it, with a completion.
            on_done: Called with how it ended.
            what: Says in the log what the call was to do.
            turn: 1 if it may have been taken before, so that a refusal says that it was.
        """

        def done(error: StoreError | None) -> None:
            if isinstance(error, NotNow):
                again = partial(self.insist, call, on_done, what)
                next_turn = turn + isinstance(error, Unavailable)
                self._again(self._served.settings.probe_interval_s, partial(again, next_turn))
                return
            on_done(_known(error, what, turn))

        call(done)


def _known(error: StoreError | None, what: What, turn: int) -> StoreError | None:
    """Judge the error of a call made `turn` times before: a refusal then says that it was done."""
    if isinstance(error, InvalidRequest) and turn:
        return None
    if isinstance(error, (InvalidRequest, NotAcquired)):
        text, *values = what
        _log.warning("%s: %s", str(text) % tuple(values), error)
    return error
