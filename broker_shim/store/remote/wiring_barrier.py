"""Completions of what a member does to wiring itself, held until it has been told of it.

A member's broker has the wiring that the stream has told it (`members.stream`), and no other: what
it makes itself comes back in the order of the store, among what others did. So whoever makes and
destroys a queue meanwhile, and whatever is lost with a connection, all brokers end with the same.
The completion tells a client that its queue can be used, so it waits for the row: when the service
has done a call it is asked to answer after all rows there are.

Why the row is told before that answer: the service's broker observes a record before its request is
answered (`store.local.observed`), and what it observes, and the question, are handled in the order
in which they came. The answer is said after the rows, on the same connection; in the member both
come by one inbox. If the connection is lost the question is asked again, and answered after the
whole or the rest that is told then.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from broker_shim.completion import OnComplete
from broker_shim.errors import StoreError
from broker_shim.store.remote.pending_requests import Answer, OnAnswer


def as_it_is(on_complete: OnComplete) -> OnComplete:
    """Leave a completion as it is: no broker is told of wiring, or not yet."""
    return on_complete


class WiringBarrier:
    """Fires completions when all rows are told that were there before. On the reading thread only.

    One question is asked at a time, for all completions that came before it.

    Args:
        ask: Asks the service to answer after all rows.
    """

    def __init__(self, ask: Callable[[OnAnswer], None]) -> None:
        self._ask = ask
        self._waiting: list[OnComplete] = []
        self._is_asking = False

    def behind(self, on_complete: OnComplete) -> OnComplete:
        """Wrap the completion of a call: what was done is told when its rows are here."""
        return partial(self._done, on_complete)

    def _done(self, on_complete: OnComplete, error: StoreError | None) -> None:
        if error is not None:
            on_complete(error)
            return
        self._waiting.append(on_complete)
        if not self._is_asking:
            self._ask_for_all()

    def _ask_for_all(self) -> None:
        asked, self._waiting = self._waiting, []
        self._is_asking = True
        try:
            self._ask(partial(self._answered, asked))
        except StoreError as error:  # it is being closed
            self._answered(asked, (True, (), error))

    def _answered(self, asked: list[OnComplete], answer: Answer) -> None:
        _is_last, _body, error = answer
        for on_complete in asked:
            on_complete(error)
        self._is_asking = False
        if self._waiting:
            self._ask_for_all()
