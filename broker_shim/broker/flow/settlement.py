"""Consumers' outcomes made durable: dequeue and release, repeated until the store took them.

Why repeated: the store did not answer, or had no room, and the consumer has made up its mind.
Taking an accepted message off again is harmless (the store says that it is not there), giving up
would deliver it twice. A broker that stops meanwhile delivers it again: at least once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from broker_shim.broker.flow.served_queues import ServedQueues
from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.completion import OnComplete
from broker_shim.errors import InvalidRequest, NotAcquired, NotNow, StoreError, Unavailable
from broker_shim.store.interface import Annotations
from sparkstore.core.state_machine.call_values import DequeueCall, ReleaseCall

_ACCEPTED: Mapping[str, Any] = {"outcome": "accepted"}

_log = logging.getLogger(__name__)

OnRemoved = Callable[[Sequence[int], Sequence[StoreError | None]], None]
"""Gets messages, and what came of each of them."""

What = tuple[str | int, ...]
"""What is done, for the log: a format and its values, put together only when it is written."""


class Settlement:
    """Ends what a consumer holds.

    A queue that was deleted and made again meanwhile, under its old name, knows nothing of it.

    Attributes:
        waiting_count: How many calls wait to be tried again.
        on_released: Called with the queue and the ids of messages that wait again.
    """

    on_released: Callable[[QueueDispatch, Sequence[int]], None]

    def __init__(self, served: ServedQueues) -> None:
        self._served, self.waiting_count = served, 0

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
        dispatch = self._served.queues.get(queue)

        def ended(ids: Sequence[int], outcomes: Sequence[StoreError | None]) -> None:
            if dispatch is not None and self._served.serves(dispatch):
                dispatch.removed(ids, (outcome or _ACCEPTED).get("outcome", "other"))
            on_done(ids, outcomes)

        self._insist_each(DequeueCall(message_ids, queue, holder, outcome), ended)

    def give_back(
        self,
        message_ids: Sequence[int],
        queue: str,
        holder: str,
        *,
        failed: bool,
        on_done: OnRemoved | None = None,
        delay_s: float = 0.0,
        annotations: Annotations | None = None,
    ) -> None:
        """Make held messages available again; `failed` raises their delivery counts.

        With `annotations`, these are what their entries add to them from now on. `on_done` is
        called as that of `remove`.

        With a delay it counts as waiting meanwhile, so that a stop does not leave it held. There is
        one after `Unavailable`, when a message may never have been acquired: then it waits, and
        the store's refusal to release it says so.
        """
        dispatch = self._served.queues.get(queue)

        def ended(ids: Sequence[int], outcomes: Sequence[StoreError | None]) -> None:
            if dispatch is not None and self._served.serves(dispatch):
                again, over = list[int](), list[int]()
                for message_id, error in zip(ids, outcomes, strict=True):
                    (again if error is None else over).append(message_id)
                if over:
                    dispatch.removed(over)
                self.released(again, dispatch, failed=failed)
            if on_done is not None:
                on_done(ids, outcomes)

        self._served.metrics.released += len(message_ids)
        call = ReleaseCall(message_ids, queue, holder, failed, annotations)
        again = partial(self._insist_each, call, ended)
        if delay_s:
            self._later(delay_s, partial(again, 1))
        else:
            again()

    def released(self, message_ids: Sequence[int], queue: QueueDispatch, *, failed: bool) -> None:
        """Let messages wait again that the store has given back, or end what may not stay."""
        for message_id in message_ids:
            queue.released(message_id, delivery_failed=failed)
        self._served.on_waiting(queue, message_ids)
        self._served.wanted(queue.name)
        # After their release: only what waits can be taken off the queue, if it may not stay.
        self.on_released(queue, message_ids)

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
                again = turn + isinstance(error, Unavailable)
                delay_s = self._served.settings.probe_interval_s
                self._later(delay_s, partial(self.insist, call, on_done, what, again))
                return
            on_done(_known(error, what, turn))

        call(done)

    def _insist_each(
        self,
        call: DequeueCall | ReleaseCall,
        on_ended: OnRemoved,
        turn: int = 0,
    ) -> None:
        """Make a call of the store about messages until it is `NotNow` of none of them.

        See `insist`; `on_ended` is called some times, until it was told of each message.
        """

        def done(outcomes: Sequence[StoreError | None]) -> None:
            ended, again = call.message_ids, list[int]()
            if any(outcomes):
                pairs = [*zip(ended, outcomes, strict=True)]
                tried = any(isinstance(error, Unavailable) for error in outcomes)
                again = [i for i, error in pairs if isinstance(error, NotNow)]
                pairs = [pair for pair in pairs if not isinstance(pair[1], NotNow)]
                ended = [message_id for message_id, _error in pairs]
                what = "%s on %r of message %d", call.operation, call.queue
                outcomes = [_known(error, (*what, i), turn) for i, error in pairs]
            if again:
                rest = replace(call, message_ids=again)
                insist = partial(self._insist_each, rest, on_ended, turn + tried)
                self._later(self._served.settings.probe_interval_s, insist)
            if ended:
                on_ended(ended, outcomes)

        self._served.calls.make_each(call, done)

    def _later(self, delay_s: float, call: Callable[[], None]) -> None:
        """Make a call after a while; until then it counts as waiting."""

        def again() -> None:
            self.waiting_count -= 1
            call()

        self.waiting_count += 1
        self._served.later(delay_s, again)


def one_by_one(on_done: OnComplete) -> OnRemoved:
    """Make what calls a completion once for each message."""

    def done(_ids: Sequence[int], outcomes: Sequence[StoreError | None]) -> None:
        for error in outcomes:
            on_done(error)

    return done


def _known(error: StoreError | None, what: What, turn: int) -> StoreError | None:
    """Judge the error of a call made `turn` times before: a refusal then says that it was done."""
    if isinstance(error, InvalidRequest) and turn:
        return None
    if isinstance(error, (InvalidRequest, NotAcquired)):
        text, *values = what
        _log.warning("%s: %s", str(text) % tuple(values), error)
    return error
