"""A handle that becomes done when an operation is durable.

What a `BrokerStore` takes is a plain callback; `Completion.finish` is one, and lets a thread wait.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence

from broker_shim.errors import StoreError

OnComplete = Callable[[StoreError | None], None]

OnEachComplete = Callable[[Sequence[StoreError | None]], None]
"""Gets what came of each of several calls, in their order."""


class SomeRefused(StoreError):
    """Some messages of a run were refused; of the others is done what was called.

    Attributes:
        outcomes: Of each message, in their order: None, or why it is refused.
    """

    def __init__(self, outcomes: Sequence[StoreError | None]) -> None:
        refusals = [*filter(None, outcomes)]
        super().__init__(f"{len(refusals)} of {len(outcomes)} messages: {refusals[0]}")
        self.outcomes = outcomes


def refusal_of(outcomes: Sequence[StoreError | None]) -> StoreError | None:
    """Return the error that stands for what came of each message of a run; None: all are done."""
    if not any(outcomes):
        return None
    return outcomes[0] if len(outcomes) == 1 else SomeRefused(outcomes)


def each_of(count: int, on_complete: OnEachComplete) -> OnComplete:
    """Make the completion of a call about so many messages that tells what came of each."""

    def complete(error: StoreError | None) -> None:
        on_complete(error.outcomes if isinstance(error, SomeRefused) else [error] * count)

    return complete


_log = logging.getLogger(__name__)
_new_lock = threading.Lock
_GUARD = threading.Lock()


class Completion:
    """Done once, with success or an error. Safe from any thread.

    A waiter blocks on a bare lock that `finish` releases: it costs a third of an Event. The guard
    is one for all completions: it is held for a few instructions, and a store makes one for every
    message.
    """

    __slots__ = ("_callbacks", "_done", "_error")

    def __init__(self) -> None:
        self._done = _new_lock()
        self._done.acquire()
        self._error: StoreError | None = None
        self._callbacks: tuple[OnComplete, ...] | None = ()

    @property
    def is_complete(self) -> bool:
        """True once `finish` was called."""
        return self._callbacks is None

    def complete(self, timeout_s: float = -1) -> None:
        """Wait until the call is done; return at once if it is.

        Raises:
            StoreError: What the operation failed with.
            TimeoutError: It was not done in `timeout_s` seconds (-1 waits for ever).
        """
        if self._callbacks is not None:
            if not self._done.acquire(timeout=timeout_s):
                message = f"not complete after {timeout_s} s"
                raise TimeoutError(message)
            self._done.release()
        if self._error is not None:
            raise self._error

    def add_callback(self, callback: OnComplete) -> None:
        """Call `callback(error | None)` when it is done: at once if it is."""
        with _GUARD:
            if self._callbacks is not None:
                self._callbacks += (callback,)
                return
        callback(self._error)

    def finish(self, error: StoreError | None = None) -> None:
        """Complete the call; callbacks run here, in order, after the lock is released.

        Raises:
            RuntimeError: It was done already: a bug of the caller.
        """
        with _GUARD:
            callbacks, self._callbacks = self._callbacks, None
            if callbacks is None:
                raise RuntimeError("completion finished twice")
            self._error = error
        self._done.release()
        for callback in callbacks:
            try:
                callback(error)
            except Exception:  # noqa: BLE001 - one failing callback must not stop the others
                _log.exception("a completion callback failed")


def nobody(_error: StoreError | None) -> None:
    """Tell nobody what came of a call: who made it does not wait for it."""


def all_of(parts: Sequence[Completion]) -> Completion:
    """Done after the last of `parts`, with the first error that was reported; [] is done."""
    whole = Completion()
    guard = threading.Lock()
    remaining = len(parts)
    first_error: StoreError | None = None

    def one_done(error: StoreError | None) -> None:
        nonlocal remaining, first_error
        with guard:
            remaining -= 1
            first_error = first_error or error
            last = remaining == 0
        if last:
            whole.finish(first_error)

    if not parts:
        whole.finish()
    for part in parts:
        part.add_callback(one_done)
    return whole


def after(count: int, on_done: OnComplete) -> OnComplete:
    """Make one completion for several calls of one thread, the last of which fires `on_done(None)`.

    What came of each is not told.

    Args:
        count: How many times it is called: once for each call, say, and once when all are made.
        on_done: Called within the last one.
    """
    left = count

    def one_done(_error: StoreError | None) -> None:
        nonlocal left
        left -= 1
        if not left:
            on_done(None)

    return one_done


def wait_for(calls: Iterable[Callable[[OnComplete], None]], timeout_s: float = -1) -> None:
    """Make calls that take a completion, and wait until all have completed; -1 waits for ever.

    Raises:
        StoreError: The first of them that was refused.
        TimeoutError: Not all of them have completed in this time.
    """
    completions = []
    for call in calls:
        completion = Completion()
        call(completion.finish)
        completions.append(completion)
    all_of(completions).complete(timeout_s)
