"""A remote store puts off frames to the end of a loop's turn, and completions to their turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager

from broker_shim.completion import OnComplete
from broker_shim.errors import StoreError
from sparkstore.log.completions import fire_once


class SendingTurns:
    """Puts off what is sent in turns of a loop; without a loop nothing is put off."""

    def __init__(self, send: Callable[[], None], guard: AbstractContextManager[object]) -> None:
        """Begin without a loop; `send` sends all that is to be sent, under the guard."""
        self._send, self._guard = send, guard
        self._is_in_turn: Callable[[], bool] = _never
        self._is_put_off = False

    def begin(self, is_in_turn: Callable[[], bool]) -> Callable[[], None]:
        """Put off from now on what need not go at once.

        Args:
            is_in_turn: Tells whether a turn's end will come on this thread, after what runs now.

        Returns:
            What is to be called at the end of each turn.
        """
        self._is_in_turn = is_in_turn
        return self._end

    def pump(self, *, is_urgent: bool) -> None:
        """Send now, or at the end of the turn in which this is called. Under the guard."""
        if is_urgent or not self._is_in_turn():
            self._send()
        else:
            self._is_put_off = True

    def _end(self) -> None:
        if self._is_put_off:
            self._is_put_off = False
            with self._guard:
                self._send()


def _never() -> bool:
    """Tell that no loop runs here."""
    return False


class RemoteCompletions:
    """The completions that wait for their turn.

    Any thread puts one in; the thread that reads fires them.
    """

    def __init__(self) -> None:
        self._turns: deque[tuple[OnComplete, StoreError | None]] = deque()
        self._is_firing = False

    def put(self, on_complete: OnComplete, error: StoreError | None) -> None:
        """Fire one after those before it, as soon as `fire` is called."""
        self._turns.append((on_complete, error))

    def fire(self) -> None:
        """Fire what is there, under no lock; within a completion nothing: it is not over yet."""
        if self._is_firing:
            return
        self._is_firing = True
        while self._turns:
            fire_once(*self._turns.popleft())
        self._is_firing = False
