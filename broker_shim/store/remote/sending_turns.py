"""Send at the end of a loop's turn what a remote store was asked for in it.

The service decides what one read brought under one holding of its lock, and answers it by one
frame. So what a turn of a member's loop asks for is written together.

Why nothing waits for a turn's end that does not come. A request with none before it goes at once:
a lone caller waits no longer than without turns. Any other goes when one before it is answered, at
the latest, as that has all sent that is still to be. So does a read, and the end of the store.
Frames go in their order, whoever sends them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager


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
